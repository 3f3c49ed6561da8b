"""The loop nests of a population: extents, accesses and innermost bodies as arrays, one entry a candidate.

A recipe describes what its schedules do *without building them*: feeding arrays of knob values through the
same arithmetic gives the loop nests of thousands of candidates in one pass. Footprints at every loop level
follow from the linear index expressions, as in Ansor's buffer-access features (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LoopKind = Literal["parallel", "serial", "unrolled", "vectorized"]
CACHE_LINE = 64
WAY_BYTES = 4096
_SHORT_RUN = 256.0


@dataclass(frozen=True)
class Loop:
    """One loop slot: it moves ``axis`` and runs ``extent`` [n] times (1 = absent in that candidate)."""

    axis: str
    extent: Numbers
    kind: LoopKind = "serial"


@dataclass(frozen=True)
class Access:
    """A tensor touched by the innermost body.

    Each entry of ``dims`` is one dimension as terms (axis, coefficient) of its index; ``shape`` bounds it.
    ``panel`` [n] says that the data was laid out in visiting order, so that no part of a line is wasted.
    Loops over the axes in ``outside`` do not repeat the access: it happens before or after them.
    """

    name: str
    item_bytes: int
    dims: tuple[tuple[tuple[str, int], ...], ...]
    shape: tuple[int, ...]
    write: bool = False
    panel: NDArray[np.bool_] | None = None
    outside: frozenset[str] = frozenset()

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes that move this access."""
        return frozenset(axis for terms in self.dims for axis, coefficient in terms if coefficient)


@dataclass(frozen=True)
class Body:
    """One execution of the unrolled innermost body, in instructions [n].

    ``chains`` counts independent accumulations (their latency overlaps); ``instructions`` is its code size.
    """

    steps: Numbers
    arithmetic: Numbers
    loads: Numbers
    stores: Numbers
    chains: Numbers
    registers: Numbers
    instructions: Numbers


@dataclass(frozen=True)
class Pass:
    """A kernel of its own before the main one (packing, padding): bytes moved [n], 0 where absent."""

    name: str
    read: Numbers
    written: Numbers


@dataclass(frozen=True)
class LoopNest:
    """The main loop nests of n candidates, loops outermost first; ``extents`` are the full axis extents.

    ``serial`` [n] marks candidates whose parallel loops run on one worker. ``scratch`` is (bytes [n], times
    filled [n]) of producers stored once a block.
    """

    family: str
    lanes: int
    flops: float
    extents: Mapping[str, int]
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    body: Body
    passes: tuple[Pass, ...] = ()
    tail_operations: Numbers | None = None
    serial: NDArray[np.bool_] | None = None
    scratch: tuple[Numbers, Numbers] | None = None
    tags: Mapping[str, Numbers] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.body.steps)

    @cached_property
    def tiles(self) -> Numbers:
        """Independent pieces of work for the workers [n]."""
        result = np.ones(len(self))
        for loop in self.loops:
            if loop.kind == "parallel":
                result = result * loop.extent
        return result if self.serial is None else np.where(self.serial, 1.0, result)

    def trips(self, access: Access) -> list[Numbers]:
        """How often each level is entered by ``access``: entry l is the product of extents outside loop l."""
        result = [np.ones(len(self))]
        for loop in self.loops:
            repeats = loop.axis not in access.outside
            result.append(result[-1] * loop.extent if repeats else result[-1])
        return result

    @cached_property
    def footprints(self) -> list[list[Numbers]]:
        """``footprints[a][l]``: bytes [n] of whole lines that access a touches in the loops from l inwards."""
        return [[_touched(access, span, len(self))[1] for span in self._spans] for access in self.accesses]

    @cached_property
    def transfers(self) -> list[list[tuple[Numbers, Numbers]]]:
        """``(bytes, cost)`` [n] that access a moves for one run of the loops from l inwards.

        Lines count in part where the next loop outside walks along them: it uses the rest at once. The cost
        is that of as many bytes in a long run: prefetchers do not follow short runs.
        """
        found = []
        for access in self.accesses:
            along = {axis for axis, _ in access.dims[-1]} if access.dims else set()
            walks = np.zeros(len(self), dtype=np.bool_)
            levels = []
            for level, span in enumerate(self._spans):
                exact, lines = _touched(access, span, len(self))
                moved = np.where(walks, exact, lines)
                levels.append((moved, np.where(walks, moved, moved * _scatter(access, span))))
                if level < len(self.loops):
                    loop = self.loops[level]
                    walks = np.where(loop.extent > 1, loop.axis in along, walks)
            found.append(levels)
        return found

    @cached_property
    def working_sets(self) -> list[Numbers]:
        """Cache space [n] that all accesses together take at each level, lost associativity included."""
        total = [np.zeros(len(self)) for _ in self._spans]
        for access, footprint in zip(self.accesses, self.footprints, strict=True):
            away = np.zeros(len(self), dtype=np.bool_)  # inside a loop that the access sits outside of
            for level, span in enumerate(self._spans):
                size = footprint[level] * _conflicts(access, span)
                total[level] = total[level] + np.where(away, 0.0, size)
                if level < len(self.loops) and self.loops[level].axis in access.outside:
                    away = away | (self.loops[level].extent > 1)
        return total

    @cached_property
    def _spans(self) -> list[dict[str, Numbers]]:
        """For every level, the extent of each axis that the loops inside it cover."""
        inside: dict[str, Numbers] = {axis: np.ones(len(self)) for axis in self.extents}
        result = [dict(inside)]
        for loop in reversed(self.loops):
            grown = inside[loop.axis] * loop.extent
            inside[loop.axis] = np.minimum(grown, float(self.extents[loop.axis]))
            result.append(dict(inside))
        return result[::-1]


def _touched(access: Access, spans: Mapping[str, Numbers], n: int) -> tuple[Numbers, Numbers]:
    """Bytes that the spans touch: (elements alone, whole lines)."""
    elements, last = np.ones(n), np.ones(n)
    for terms, size in zip(access.dims, access.shape, strict=True):
        last = np.ones(n)
        for axis, coefficient in terms:
            last = last + abs(coefficient) * (spans[axis] - 1)
        last = np.minimum(last, float(size))
        elements = elements * last
    exact = elements * access.item_bytes
    run = last * access.item_bytes
    lines = exact / run * np.ceil(run / CACHE_LINE) * CACHE_LINE
    return exact, lines if access.panel is None else np.where(access.panel, exact, lines)


def _conflicts(access: Access, spans: Mapping[str, Numbers]) -> Numbers | float:
    """How much more cache a strided access takes because its lines fall into few sets.

    Rows that are a multiple of a power of two apart share the sets that their runs cover; a way is 4 KiB.
    """
    if len(access.dims) < 2:
        return 1.0
    stride = math.gcd(access.shape[-1] * access.item_bytes, WAY_BYTES)
    lost = np.maximum(stride / np.maximum(_run(access, spans), CACHE_LINE), 1.0)
    return lost if access.panel is None else np.where(access.panel, 1.0, lost)


def _scatter(access: Access, spans: Mapping[str, Numbers]) -> Numbers | float:
    """Cost of short runs against long ones."""
    if len(access.dims) < 2:
        return 1.0
    run = np.minimum(np.maximum(_run(access, spans), CACHE_LINE), access.shape[-1] * access.item_bytes)
    whole = run >= access.shape[-1] * access.item_bytes  # consecutive rows make one long run
    cost = np.where(whole, 1.0, 1.0 + _SHORT_RUN / run)
    return cost if access.panel is None else np.where(access.panel, 1.0, cost)


def _run(access: Access, spans: Mapping[str, Numbers]) -> Numbers:
    run = np.ones(())
    for axis, coefficient in access.dims[-1]:
        run = run + abs(coefficient) * (spans[axis] - 1)
    return np.asarray(run * access.item_bytes)


__all__ = ["CACHE_LINE", "WAY_BYTES", "Access", "Body", "Loop", "LoopKind", "LoopNest", "Numbers", "Pass"]
