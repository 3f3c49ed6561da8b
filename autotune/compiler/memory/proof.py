"""Proof that a memory plan keeps every value from the dispatch that writes it to the last that reads it (``--verify``).

Independent of how the plan was made: the dispatches are gone through in order, and every unit of memory
remembers which root wrote it last, and in a loop for which step. Parts of a value that is joined in place are units
like any others, so
two dispatches that write into one root must leave each other's elements alone. Where some dispatches run under
conditions that is gone through several times, so that each of them runs once. Dispatches that are repeated are gone
through each time, on the memory that they have then; where nothing moves, three times say as much as all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InternalError
from autotune.passes.memory.plan_memory import Lifetime, MemoryPlan
from autotune.passes.partition import Dispatch, Partition
from autotune.passes.repetition import repeated_ranges

_Units = NDArray[np.int32]
_SETTLED = 3
"""Times after which a repeat does the same again and again, if nothing moves in it."""


@dataclass(frozen=True)
class MemoryProof:
    """The extent of the proof: ``reads`` and ``writes`` are arguments of dispatches, ``shared`` the values
    written into a part of another's memory, ``over`` those that take the place of an operand, ``bound`` the outputs
    that a caller may put in the place of an input."""

    reads: int
    writes: int
    shared: int
    over: int = 0
    bound: int = 0

    def __str__(self) -> str:
        over = f", {self.over} over an operand" if self.over else ""
        over += f", {self.bound} over an input" if self.bound else ""
        return f"memory: {self.reads} reads and {self.writes} writes, {self.shared} of them in place{over}, proven"


def prove_memory(parts: Partition, plan: MemoryPlan, bound: Mapping[str, str] | None = None) -> MemoryProof:
    """Go through the dispatches on the memory of the plan; with outputs in the memory of the inputs in ``bound``, by
    their roots, where a caller may put them.

    Raises:
        InternalError: an element is read that nothing has written or that was overwritten since, is
            written twice, or lies in memory that may not be written; an output is not complete.
    """
    proofs = [_Simulation(_taken(parts, way), plan, bound or {}).run() for way in _ways(parts)]
    return replace(proofs[0], reads=max(p.reads for p in proofs), writes=max(p.writes for p in proofs))


def _conditions(dispatch: Dispatch) -> dict[str, bool]:
    """Return what must hold for a dispatch to run."""
    return {each.value: each.wanted for each in dispatch.conditions if not each.refusal}


def _ways(parts: Partition) -> list[dict[str, bool]]:
    """Return conditions, a few of which together let every dispatch run in one of them."""
    ways: list[dict[str, bool]] = [{}]
    for dispatch in parts.dispatches:
        needed = _conditions(dispatch)
        for way in ways:
            if all(way.get(value, wanted) == wanted for value, wanted in needed.items()):
                way.update(needed)
                break
        else:
            ways.append(needed)
    return ways


def _taken(parts: Partition, way: Mapping[str, bool]) -> _Chosen:
    """Return the steps of the dispatches that run so; conditions that are left open do not hold."""
    return _Chosen(
        parts,
        [
            step
            for step, dispatch in enumerate(parts.dispatches)
            if all(way.get(value, False) == wanted for value, wanted in _conditions(dispatch).items())
        ],
    )


@dataclass(frozen=True)
class _Chosen:
    parts: Partition
    steps: list[int]


_Times: TypeAlias = tuple[int, ...]


def _order(parts: Partition, steps: Sequence[int]) -> Iterator[tuple[int, _Times, _Times]]:
    """Yield numbers of dispatches as they run, with how often the repeats around them have gone on; and the same once
    more, in the last that is gone through of a repeat where nothing moves as it is in its last."""
    moved = {
        d.repeats[level].name
        for d in parts.dispatches
        for value in (*d.reads, *d.outputs)
        for level, each in enumerate(parts.moving.get(value, ()))
        if each.elements
    }

    def within(steps: Sequence[int], times: _Times, as_if: _Times) -> Iterator[tuple[int, _Times, _Times]]:
        for repeat, numbers in repeated_ranges([parts.dispatches[step] for step in steps], len(times)):
            inside = steps[numbers.start : numbers.stop]
            if repeat is None:
                yield from ((step, times, as_if) for step in inside)
                continue
            shown = repeat.count if repeat.name in moved else min(repeat.count, _SETTLED)
            for time in range(shown):
                last = repeat.count - 1 if time == shown - 1 else time
                yield from within(inside, (*times, time), (*as_if, last))

    return within(steps, (), ())


class _Simulation:
    def __init__(self, chosen: _Chosen, plan: MemoryPlan, bound: Mapping[str, str]) -> None:
        self.parts = parts = chosen.parts
        self.steps = chosen.steps
        self.plan = plan
        self.unit = math.gcd(*(np.dtype(t.dtype).itemsize for t in parts.types.values()))
        self.outputs = {parts.placements[v].root: v for v in parts.outputs}
        self.arena: _Units = np.zeros(plan.arena_bytes // self.unit, np.int32)
        self.own = {root: self._fresh(root) for root in self.outputs}
        self.codes: dict[object, int] = {
            value.name: number for number, value in enumerate(plan.lifetimes, start=1)
        }
        self.codes |= {root: 1 + len(self.codes) + number for number, root in enumerate(self.outputs)}
        self.temporary = self._temporaries()
        self.times: _Times = ()
        self.as_if: _Times = ()
        """The times that the repeats around a dispatch have gone on; and those when what it does is gone through no
        more."""
        self.bound = bound
        for root, source in bound.items():
            self.own[source] = self.own[root]
            self.own[root][...] = self._code(source)

    def run(self) -> MemoryProof:
        reads = writes = shared = 0
        for step, times, as_if in _order(self.parts, self.steps):
            self.times, self.as_if = times, as_if
            dispatch = self.parts.dispatches[step]
            self._check_reads(dispatch, "was not written before, or overwritten")
            for workspace in self.temporary.get(step, ()):
                self._range(workspace.name, workspace.nbytes)[...] = self.codes[workspace.name]
            for value in dispatch.outputs:
                self._write(dispatch, value)
                shared += self.parts.placements[value].root != value
            self._check_reads(
                dispatch, "is overwritten by the dispatch that reads it", self._taking(dispatch)
            )
            reads += len(dispatch.inputs)
            writes += len(dispatch.outputs)
        for root, value in self.outputs.items():
            if not np.all(self.own[root] == self.codes[root]):
                raise InternalError(f"the memory plan is wrong: output {value!r} is not written completely")
        return MemoryProof(reads, writes, shared, len(self.plan.taken), len(self.bound))

    def _temporaries(self) -> Mapping[int, list[Lifetime]]:
        """Return the workspaces by the step that they live at."""
        roots = {placement.root for placement in self.parts.placements.values()}
        found: dict[int, list[Lifetime]] = {}
        for value in self.plan.lifetimes:
            if value.name not in roots:
                found.setdefault(value.first, []).append(value)
        return found

    def _fresh(self, root: str) -> _Units:
        return np.zeros(self.parts.root_nbytes(root) // self.unit, np.int32)

    def _range(self, name: str, nbytes: int) -> _Units:
        """Return the units of a root or workspace."""
        if name in self.own:
            return self.own[name]
        begin, end = self.plan.offsets[name], self.plan.offsets[name] + nbytes
        if not 0 <= begin <= end <= self.plan.arena_bytes:
            raise InternalError(f"the memory plan is wrong: {name!r} lies outside of the arena")
        return self.arena[begin // self.unit : end // self.unit]

    def _elements(self, value: str) -> _Units:
        """Return the units of a value, one row an element."""
        placement, found = self.parts.placements[value], self.parts.types[value]
        memory = self._range(placement.root, self.parts.root_nbytes(placement.root))
        wide = np.dtype(found.dtype).itemsize // self.unit
        last = sum((extent - 1) * s for extent, s in zip(found.shape, placement.strides, strict=True))
        moving = self.parts.moving.get(value, ())
        offset = placement.offset + sum(m.elements * n for m, n in zip(moving, self.times, strict=False))
        if found.size and not 0 <= offset <= offset + last < len(memory) // wide:
            raise InternalError(f"the memory plan is wrong: {value!r} lies outside of {placement.root!r}")
        steps = [s * wide * memory.itemsize for s in placement.strides]
        start = memory[offset * wide :]
        return np.lib.stride_tricks.as_strided(start, (*found.shape, wide), (*steps, memory.itemsize))

    def _code(self, value: str) -> int:
        version = self.parts.version(value, self.times)
        return self.codes.setdefault(version, 1 + len(self.codes))

    def _is_given(self, value: str) -> bool:
        root = self.parts.placements[value].root
        given = root in self.parts.inputs or root in self.parts.constants
        return given and root not in self.bound.values()

    def _taking(self, dispatch: Dispatch) -> dict[str, int]:
        """Return codes of results that take the memory of operands, by the roots of these."""
        roots = {self.parts.placements[value].root: value for value in dispatch.outputs}
        taken = {**self.plan.taken, **self.bound}
        return {old: self._code(roots[new]) for new, old in taken.items() if new in roots}

    def _check_reads(self, dispatch: Dispatch, problem: str, taking: Mapping[str, int] | None = None) -> None:
        """Check that what a dispatch reads is there; or, once it has run, what it put in the place of all of it."""
        for value in self._not_given(dispatch.reads):
            new = (taking or {}).get(self.parts.placements[value].root)
            if new is not None and np.all(self._elements(value) == new):
                continue
            if not np.all(self._elements(value) == self._code(value)):
                raise InternalError(
                    f"the memory plan is wrong: {dispatch.name} reads {value!r}, of which a part {problem}"
                )

    def _not_given(self, values: Iterable[str]) -> list[str]:
        return [value for value in values if not self._is_given(value)]

    def _write(self, dispatch: Dispatch, value: str) -> None:
        where = f"the memory plan is wrong: {dispatch.name} writes {value!r}"
        if self._is_given(value):
            raise InternalError(f"{where} into an input or a constant")
        elements, code = self._elements(value), self._code(value)
        if np.any(elements == code):
            raise InternalError(f"{where} over elements that were written before")
        elements[...] = code
        self.codes[self.parts.version(value, self.as_if)] = code


__all__ = ["MemoryProof", "prove_memory"]
