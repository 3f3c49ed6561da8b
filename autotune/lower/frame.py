"""The loops of one stage: how many iterations they have, and which values of an axis the loops around leave.

The arithmetic stands here once. It works on extents that are numbers, where code is generated
(:mod:`autotune.lower.opened`), and on extents of whole populations, where candidates are counted
(:mod:`search_spaces.nest.candidates`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from autotune.lower.ir import is_thread_axis
from autotune.schedule.arithmetic import (
    Value,
    both,
    ceil_div,
    common_divisor,
    either,
    is_one,
    least,
    negated,
    where,
)
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.stage import Stage
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp

REGISTER_ELEMENTS = 2048
"""Largest accumulator tile that is moved out of memory for the length of a reduction."""
THREAD_REGISTERS = 256
"""Largest one of a thread of a GPU."""

S = TypeVar("S")
"""The start of an interval, as far as it is known."""


class Starts(Protocol[S]):
    """Arithmetic on starts of intervals."""

    zero: S

    def plus(self, a: S, b: S) -> S:
        """Return the sum."""

    def scaled(self, start: S, factor: Value) -> S:
        """Return a multiple."""

    def moved(self, start: S, distance: Value) -> S:
        """Return the start plus a number."""

    def grain(self, start: S) -> Value:
        """Return a number that the start is a multiple of; 0 where it is 0."""

    def quotient(self, start: S, divisor: Value) -> S:
        """Return the start divided by a number, rounded down."""

    def remainder(self, start: S, divisor: Value) -> S:
        """Return what the division by a number leaves."""

    def where(self, condition: Any, a: S, b: S) -> S:
        """Return one of two starts for each candidate."""


class Frame(ABC, Generic[S]):
    """Extents and values of the loops of a stage at one point of its nest, where some of them are open.

    ``extents`` are those of the axes, and of loops that are not what the relations say, as in remainders; ``finishes``
    tells that the stage's reduction has an epilogue.
    """

    starts: Starts[S]

    def __init__(self, stage: Stage, extents: Mapping[IterVar, Value], *, finishes: bool = False) -> None:
        assert isinstance(stage.op, ComputeOp)
        self.stage = stage
        self.op = stage.op
        self.finishes = finishes
        self.opened: set[IterVar] = set()
        self._extents = dict(extents)
        self._derived: dict[IterVar | Split, Value] = {}
        self.parents: dict[IterVar, Split | Fuse] = {}
        """The origin of each loop that is no axis."""
        self.splits: dict[IterVar, Split] = {}
        """The split of each loop that was split."""
        self.fuses: dict[IterVar, Fuse] = {}
        """The loop that two were fused to, by each of them."""
        for relation in stage.relations:
            if isinstance(relation, Split):
                self.parents[relation.outer] = self.parents[relation.inner] = relation
                self.splits[relation.parent] = relation
            else:
                self.parents[relation.fused] = relation
                self.fuses[relation.outer] = self.fuses[relation.inner] = relation
        for loop in stage.all_iter_vars:
            if loop not in self.parents:  # the only loop of a stage without axes
                self._extents.setdefault(loop, loop.extent)

    def branch(self) -> Self:
        """Return a copy to go on with, apart from this one."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._extents, new.opened = dict(self._extents), set(self.opened)
        return new

    # -- what a schedule says of loops -----------------------------------------------------------------------

    def given(self, split: Split) -> Value:
        """Return the factor of a split, or its number of parts."""
        return split.factor or split.nparts

    def tail(self, split: Split, tail: str) -> Any:
        """Return whether a split asks for this treatment of its rest."""
        return split.tail == tail

    def is_kind(self, iv: IterVar, kind: str) -> Any:
        """Return whether a loop is of this kind."""
        return self.stage.kind_of(iv) == kind

    @property
    @abstractmethod
    def on_threads(self) -> bool:
        """True if the loops run in a thread of a GPU."""

    def is_written_out(self, iv: IterVar) -> Any:
        """Return whether the iterations of a loop are one piece of code."""
        return either(self.is_kind(iv, "unrolled"), self.is_kind(iv, "vectorized"))

    def is_shared(self, iv: IterVar) -> Any:
        """Return whether iterations of a loop run at the same time."""
        if is_thread_axis(self.stage.kind_of(iv)):
            return True
        return either(self.is_kind(iv, "parallel"), self.is_kind(iv, "vectorized"))

    # -- extents ---------------------------------------------------------------------------------------------

    def extent(self, iv: IterVar) -> Value:
        """Return iterations of a loop, from what is known now; where the last of them is narrower, of the others."""
        known = self._extents.get(iv)
        if known is None:
            known = self._derived.get(iv)
        if known is None:
            known = self._derived[iv] = self._extent(iv)
        return known

    def _extent(self, iv: IterVar) -> Value:
        relation = self.parents[iv]
        if isinstance(relation, Fuse):
            return self.extent(relation.outer) * self.extent(relation.inner)
        width = self.width(relation)
        if iv is relation.inner:
            return width
        return ceil_div(self.extent(relation.parent), max(width, 1) if isinstance(width, int) else width)

    def resize(self, iv: IterVar, extent: Value) -> None:
        """Give a loop another extent than its relation says."""
        self._extents[iv] = extent
        self._derived = {}

    def width(self, split: Split) -> Value:
        """Return the distance of two neighbouring iterations of the outer loop of a split."""
        width = self._derived.get(split)
        if width is None:
            extent, given = self.extent(split.parent), self.given(split)
            width = least(given, extent) if split.factor else ceil_div(extent, given)
            self._derived[split] = width
        return width

    def rest(self, split: Split) -> Value:
        """Return the extent of the inner loop in the last iteration of the outer one; 0 for an empty loop."""
        extent, width = self.extent(split.parent), self.width(split)
        if isinstance(extent, int) and not extent:
            return 0
        return extent - (ceil_div(extent, width) - 1) * width

    def leaves_of(self, loop: IterVar) -> list[int]:
        """Return the numbers of the leaves that a loop was split or fused to."""
        split, fuse = self.splits.get(loop), self.fuses.get(loop)
        if split is not None:
            return sorted({*self.leaves_of(split.outer), *self.leaves_of(split.inner)})
        return [self.stage.leaf("lower", loop)] if fuse is None else self.leaves_of(fuse.fused)

    # -- remainders ------------------------------------------------------------------------------------------

    def is_apart(self, split: Split, leaf: IterVar) -> Any:
        """Return whether the rest of a split gets a nest of its own after ``leaf``, which is its outer loop."""
        peels = self.tail(split, "peel")
        if peels is False or leaf in self.stage.reduced_together():
            return False
        shared = either(self.is_kind(leaf, "parallel"), self.is_kind(leaf, "vectorized"))
        larger = both(peels, self.extent(split.parent) > self.width(split))
        return both(both(larger, negated(shared)), negated(self.touched(split.inner)))

    def overlaps(self, split: Split) -> Any:
        """Return whether the last tile of a split whose outer loop is open starts early, where there is a rest.

        What would be computed twice must not be added to twice: the rest is peeled then.
        """
        asked = self.tail(split, "overlap")
        if asked is False or self._is_inside_reduction(split):
            return False
        # Where an inner loop is around the outer one, a condition keeps what runs inside of the axis.
        asked = both(asked, negated(self.touched(split.inner)))
        return asked if asked is False else both(asked, negated(self._races(split)))

    def first_update(self) -> int:
        """Return the number of the leaf from which on elements of a reduction are updated, not computed."""
        first = self.stage.first_reduction()
        if self.stage.init_at is not None:
            first = min(first, self.stage.leaf_iter_vars.index(self.stage.init_at))
        return first

    def _is_inside_reduction(self, split: Split) -> bool:
        """Return whether loops of a split run inside a reduction loop, where an element must not be updated twice."""
        return any(number >= self.first_update() for number in self.leaves_of(split.outer))

    def _races(self, split: Split) -> Any:
        """Return whether concurrent iterations of a split that overlap would update the same elements in memory.

        Those that two iterations only store get the same value from both; what is added to must belong to one.
        """
        stage, first = self.stage, self.first_update()
        leaves = stage.leaf_iter_vars
        if first == len(leaves) or self.finishes or stage.reduced_together():
            return False
        if any(iv in stage.tensorized for iv in leaves[: first + 1]):
            return False  # the whole reduction is inside of the call
        shared: Any = False
        for number in self.leaves_of(split.outer):
            shared = either(shared, self.is_shared(leaves[number]))
        if shared is False:
            return False
        inside = self.branch()
        inside.resize(split.inner, self.width(split))
        return both(shared, negated(inside.promotes(first)))

    def promotes(self, at: int) -> Any:
        """Return whether the elements of a reduction are in registers while the loops from leaf ``at`` on run.

        There must be only reduction loops and unrolled or vectorized data loops.
        """
        leaves = self.stage.leaf_iter_vars
        if leaves[at].kind != "reduce":
            return False
        folds: Any = False  # lanes are folded into the accumulator by each update
        for iv in leaves[:at]:
            if iv.kind == "reduce":
                folds = either(folds, self.is_kind(iv, "vectorized"))
        written: Any = True
        serial: Any = True
        for iv in leaves[at:]:
            if iv.kind == "data":
                once, out = self.extent(iv) <= 1, self.is_written_out(iv)
                written = both(written, either(once, out))
                serial = both(serial, either(once, either(out, negated(self.is_shared(iv)))))
        serial = both(both(self.on_threads, serial), negated(written))
        if folds is True or either(written, serial) is False:
            return False
        size: Value = math.prod(self.reach(axis)[1] for axis in self.op.axis)
        # Code for threads unrolls loops over registers.
        few = either(both(written, size <= REGISTER_ELEMENTS), both(serial, size <= THREAD_REGISTERS))
        return both(negated(folds), few)

    # -- values ----------------------------------------------------------------------------------------------

    @abstractmethod
    def start_of(self, iv: IterVar) -> S | None:
        """Return the value of a loop that has one now; None where that follows from others, or it is not open."""

    @abstractmethod
    def is_decided(self, split: Split) -> Any:
        """Return whether the outer loop of a split has a value, so that its rest is dealt with."""

    @abstractmethod
    def base(self, split: Split) -> S | None:
        """Return the start of the current tile of a split where that is no multiple of its width."""

    def touched(self, iv: IterVar) -> Any:
        """Return whether a loop that ``iv`` is made of is open already; one of a single iteration fixes nothing."""
        if iv in self.opened:
            return self.extent(iv) > 1
        split = self.splits.get(iv)
        if split is not None:
            return either(self.touched(split.outer), self.touched(split.inner))
        fuse = self.fuses.get(iv)
        return False if fuse is None else self.touched(fuse.fused)

    def reach(self, iv: IterVar) -> tuple[S, Value]:
        """Return the interval of a variable while the loops that are not open yet run: its start and extent."""
        value = self.start_of(iv)
        if value is not None:
            return value, 1
        split, fuse = self.splits.get(iv), self.fuses.get(iv)
        if (split is None and fuse is None) or self.touched(iv) is False:
            return self.starts.zero, self.extent(iv)
        if split is not None:
            return self._of_parts(split)
        assert fuse is not None
        return self._of_fused(fuse, iv)

    def _of_parts(self, split: Split) -> tuple[S, Value]:
        """Return the interval of a loop from those of the two that it was split into."""
        starts = self.starts
        outer, count = self.reach(split.outer)
        inner, part = self.reach(split.inner)
        base = self.base(split)
        if base is not None:
            return starts.plus(base, inner), part
        width, extent = self.width(split), self.extent(split.parent)
        low = starts.plus(starts.scaled(outer, width), inner)
        size = part if is_one(count) else least((count - 1) * width + part, extent)
        early = self.tail(split, "overlap")
        early = early if early is False else both(early, negated(self.is_decided(split)))
        early = early if early is False else both(early, size < extent)
        if early is False:
            return low, size
        # Which iteration is the last is not known yet: any may start early by this much.
        distance = where(early, width - self.rest(split), 0)
        wider = size + distance
        return self._chosen(
            wider < extent,
            lambda: (starts.moved(low, -distance), wider),
            lambda: (starts.zero, extent),
        )

    def _of_fused(self, fuse: Fuse, iv: IterVar) -> tuple[S, Value]:
        """Return the interval of one of two loops while an interval of the loop that they were fused to runs.

        Where that one starts at multiples of ``step`` alone, at most ``row - step`` iterations of a row are before it.
        """
        starts = self.starts
        low, size = self.reach(fuse.fused)
        row, extent = self.extent(fuse.inner), self.extent(iv)
        if any(isinstance(number, int) and number < 1 for number in (row, size)):
            return starts.zero, extent
        rows = 1
        if not is_one(size):
            rows = (row - common_divisor(row, starts.grain(low)) + size - 1) // row + 1
        if iv is fuse.inner:
            return self._chosen(
                rows == 1, lambda: (starts.remainder(low, row), size), lambda: (starts.zero, row)
            )
        return self._chosen(
            rows < extent, lambda: (starts.quotient(low, row), rows), lambda: (starts.zero, extent)
        )

    def _chosen(
        self, condition: Any, a: Callable[[], tuple[S, Value]], b: Callable[[], tuple[S, Value]]
    ) -> tuple[S, Value]:
        """Return one of two intervals for each candidate; where one is that of all, the other is never made."""
        if condition is True or condition is False:
            return a() if condition else b()
        (start, size), (other, whole) = a(), b()
        return self.starts.where(condition, start, other), where(condition, size, whole)


__all__ = ["REGISTER_ELEMENTS", "THREAD_REGISTERS", "Frame", "Starts"]
