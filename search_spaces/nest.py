"""The loop nests of a population: extents, accesses and innermost bodies as arrays, one entry a candidate.

A recipe describes what its schedules do *without building them*: feeding arrays of knob values through the
same arithmetic gives the loop nests of thousands of candidates in one pass. Footprints at every loop level
follow from the linear index expressions, as in Ansor's buffer-access features (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

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
    ``row_bytes`` is the distance of neighbours in the last but one dimension where rows are not dense.
    ``streamed`` [n] says that writes go past the caches: nothing is fetched for them, and nothing stays.
    """

    name: str
    item_bytes: int
    dims: tuple[tuple[tuple[str, int], ...], ...]
    shape: tuple[int, ...]
    write: bool = False
    panel: NDArray[np.bool_] | None = None
    outside: frozenset[str] = frozenset()
    row_bytes: int = 0
    streamed: NDArray[np.bool_] | None = None

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes that move this access."""
        return frozenset(axis for terms in self.dims for axis, coefficient in terms if coefficient)


@dataclass(frozen=True)
class Body:
    """One execution of the unrolled innermost body, in instructions [n].

    ``chains`` counts independent accumulations (their latency overlaps); ``instructions`` is its code size.
    ``stalls`` are cycles that its loads lose on the way: at borders of cache lines, and in address translation.
    """

    steps: Numbers
    arithmetic: Numbers
    loads: Numbers
    stores: Numbers
    chains: Numbers
    registers: Numbers
    instructions: Numbers
    stalls: Numbers | float = 0.0


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

    @cached_property
    def walks(self) -> tuple[LoopNest, NDArray[np.intp]]:
        """The loops and accesses of those candidates alone that differ in them, and which each candidate has [n].

        Many knobs change neither: what follows from both is cheaper to compute once for all that share them.
        """
        columns: list[NDArray[Any]] = [loop.extent for loop in self.loops]
        columns += [a for access in self.accesses for a in (access.panel, access.streamed) if a is not None]
        rows, which = _distinct(columns, len(self))
        body = Body(*(np.ones(len(rows)) for _ in range(7)))
        loops = tuple(replace(loop, extent=loop.extent[rows]) for loop in self.loops)
        accesses = tuple(
            replace(access, panel=_taken(access.panel, rows), streamed=_taken(access.streamed, rows))
            for access in self.accesses
        )
        nest = LoopNest(self.family, self.lanes, self.flops, self.extents, loops, accesses, body)
        return nest, which

    @cached_property
    def touched(self) -> list[Touched]:
        """For each access, what it touches at every level: level l is one run of the loops from l inwards."""
        return [touched(self, access) for access in self.accesses]

    @cached_property
    def working_sets(self) -> Numbers:
        """Cache space [levels, n] that all accesses together take, lost associativity included."""
        total = np.zeros((len(self.loops) + 1, len(self)))
        for access, found in zip(self.accesses, self.touched, strict=True):
            total[0] += found.space[0]
            away = np.zeros(len(self), dtype=np.bool_)  # inside a loop that the access sits outside of
            for level, loop in enumerate(self.loops):
                if loop.axis in access.outside:
                    away = away | (loop.extent > 1)
                total[level + 1] += np.where(away, 0.0, found.space[level + 1])
        return total


@dataclass(frozen=True)
class Touched:
    """Arrays [levels, n] of one access.

    ``lines``: bytes of whole cache lines. ``space``: cache they take. ``moved``: bytes loaded for one run;
    lines count in part where the next loop outside walks along them. ``cost``: ``moved`` in bytes of a long
    run, as prefetchers do not follow short ones. ``entries``: how often the level is entered, less those
    times that find the data still there because the loop around does not move the access.
    """

    lines: Numbers
    space: Numbers
    moved: Numbers
    cost: Numbers
    entries: Numbers


def _distinct(columns: Sequence[NDArray[Any]], n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One of the n rows for each that differs, and the position among those for every row."""
    varied = [column for column in columns if np.any(column != column[:1])]
    if not varied:
        return np.zeros(min(n, 1), dtype=np.intp), np.zeros(n, dtype=np.intp)
    order = np.lexsort(varied)
    first = np.zeros(n, dtype=np.bool_)
    first[0] = True
    for column in varied:
        arranged = column[order]
        first[1:] |= arranged[1:] != arranged[:-1]
    which = np.empty(n, dtype=np.intp)
    which[order] = np.cumsum(first) - 1
    return order[first], which


def _taken(column: NDArray[np.bool_] | None, rows: NDArray[np.intp]) -> NDArray[np.bool_] | None:
    return None if column is None else column[rows]


def touched(nest: LoopNest, access: Access) -> Touched:
    """Walk the levels from the innermost outwards; a loop that does not move the access changes nothing."""
    n, depth = len(nest), len(nest.loops)
    spans = {axis: np.ones(n) for axis in access.axes}
    exact, lines, space, cost = (np.empty((depth + 1, n)) for _ in range(4))
    _fill(access, spans, (exact, lines, space, cost), depth)
    for level in range(depth - 1, -1, -1):
        loop = nest.loops[level]
        if loop.axis in spans and not np.all(loop.extent == 1):
            grown = spans[loop.axis] * loop.extent
            spans[loop.axis] = np.minimum(grown, float(nest.extents[loop.axis]))
            _fill(access, spans, (exact, lines, space, cost), level)
        else:
            for array in (exact, lines, space, cost):
                array[level] = array[level + 1]
    along = {axis for axis, _ in access.dims[-1]} if access.dims else set()
    walks, reuse, trips = np.zeros(n, dtype=np.bool_), np.ones(n), np.ones(n)
    entries = np.ones((depth + 1, n))
    for level, loop in enumerate(nest.loops):
        # Here exact and cost become what is moved, and its cost, from this loop's inside.
        runs = loop.extent > 1
        walks = np.where(runs, loop.axis in along, walks)
        stays = loop.axis not in access.axes and loop.axis not in access.outside
        reuse = np.where(runs, loop.extent if stays else 1.0, reuse)
        if loop.axis not in access.outside:
            trips = trips * loop.extent
        entries[level + 1] = trips / reuse
        exact[level + 1] = np.where(walks, exact[level + 1], lines[level + 1])
        cost[level + 1] = np.where(walks, exact[level + 1], cost[level + 1])
    exact[0] = lines[0]
    return Touched(lines, space, exact, cost, entries)


def _fill(
    access: Access,
    spans: Mapping[str, Numbers],
    arrays: tuple[Numbers, Numbers, Numbers, Numbers],
    level: int,
) -> None:
    """Set (elements, lines, cache space, cost), all in bytes, of one level from the spans of the axes."""
    exact, lines, space, cost = arrays
    elements: Numbers | float = 1.0
    last: Numbers | float = 1.0
    for terms, size in zip(access.dims, access.shape, strict=True):
        last = 1.0
        for axis, coefficient in terms:
            last = last + abs(coefficient) * (spans[axis] - 1)
        last = np.minimum(last, float(size))
        elements = elements * last
    run = last * access.item_bytes
    row = access.row_bytes or access.item_bytes * (access.shape[-1] if access.shape else 1)
    whole_run = np.ceil(run / CACHE_LINE) * CACHE_LINE
    exact[level] = elements * access.item_bytes
    lines[level] = exact[level] / run * whole_run
    space[level], cost[level] = lines[level], lines[level]
    if len(access.dims) > 1:
        # Rows a power of two apart share the sets that their runs cover.
        space[level] *= np.maximum(math.gcd(row, WAY_BYTES) / whole_run, 1.0)
        # Rows that are touched whole make one long run.
        cost[level] *= np.where(run >= row, 1.0, 1.0 + _SHORT_RUN / whole_run)
    if access.panel is not None:
        for array in (lines, space, cost):
            array[level] = np.where(access.panel, exact[level], array[level])


__all__ = [
    "CACHE_LINE",
    "WAY_BYTES",
    "Access",
    "Body",
    "Loop",
    "LoopKind",
    "LoopNest",
    "Numbers",
    "Pass",
    "Touched",
    "touched",
]
