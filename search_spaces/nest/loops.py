"""The loop nests of a population: extents, accesses and innermost bodies as arrays, one entry a candidate.

A recipe describes what its schedules do *without building them*: feeding arrays of knob values through the
same arithmetic gives the loop nests of thousands of candidates in one pass. Footprints at every loop level
follow from the linear index expressions, as in Ansor's buffer-access features (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

Numbers = NDArray[np.float64]
LoopKind = Literal["parallel", "serial", "unrolled", "vectorized"]
WRITTEN_OUT = ("unrolled", "vectorized")
"""Kinds of loops whose iterations are one piece of code."""
CACHE_LINE = 64
WAY_BYTES = 4096
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Loop:
    """One loop slot: it moves ``axis`` and runs ``extent`` [n] times (1 = absent in that candidate)."""

    axis: str
    extent: Numbers
    kind: LoopKind = "serial"


@dataclass(frozen=True)
class Access:
    """A tensor touched by the innermost body.

    Each entry of ``dims`` is one dimension as terms (axis, coefficient) of its index, which is rounded down; ``shape``
    bounds it.
    ``panel`` [n] says that the data was laid out in visiting order, so that no part of a line is wasted.
    Loops over the axes in ``outside`` do not repeat the access: it happens before or after them.
    ``spread`` are the distances of the first read from the last in each dimension, where a body has several that move
    alike. ``row_bytes`` is the distance of neighbours in the last but one dimension where rows are not dense.
    ``streamed`` [n] says that writes go past the caches: nothing is fetched for them, and nothing stays.
    Instructions fetch it ``ahead`` of its use by so many bytes [n] of each line that is read side by side with others:
    ``abreast`` [n] are those lines. An iteration waits for ``awaited`` [n] of them at a time, in pieces of rows. Rows
    ``looked_up`` are anywhere in memory.
    """

    OWN: ClassVar[Mapping[str, DTypeLike]] = MappingProxyType(
        {"panel": bool, "streamed": bool, "ahead": float, "abreast": float, "awaited": float}
    )
    """The arrays: what candidates may have of their own. Who has nothing there is as one with zeros."""

    name: str
    item_bytes: int
    dims: tuple[tuple[tuple[str, float], ...], ...]
    shape: tuple[int, ...]
    write: bool = False
    panel: NDArray[np.bool_] | None = None
    outside: frozenset[str] = frozenset()
    row_bytes: int = 0
    streamed: NDArray[np.bool_] | None = None
    ahead: Numbers | None = None
    abreast: Numbers | None = None
    awaited: Numbers | None = None
    looked_up: bool = False
    spread: tuple[int, ...] = ()

    @cached_property
    def own(self) -> dict[str, Any]:
        """What candidates have of their own, as far as any has."""
        return {name: column for name in self.OWN if (column := getattr(self, name)) is not None}

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes that move this access."""
        return frozenset(axis for terms in self.dims for axis, coefficient in terms if coefficient)


@dataclass(frozen=True)
class Body:
    """One execution of the unrolled innermost body, in instructions [n].

    ``chains`` counts independent accumulations (their latency overlaps); ``instructions`` is its code size.
    ``narrow`` of the loads are of single elements or fetch a line ahead, which need no port of whole vectors.
    ``simple`` of the arithmetic are no multiply-adds of a reduction, and run on every port for vectors.
    Of its vector loads ``split`` cross cache lines, and ``pages`` are from a page that was not read since the others of
    ``page_reach``. The lanes of ``folds`` registers are added up at its end.
    Runs of elements begin anew ``restarts`` times, in each of several rows ``runs`` in all. ``stalls`` are other cycles
    that are lost on the way.
    ``shared`` of the loads serve several iterations that are written out, and may stay in registers in between.
    """

    steps: Numbers
    arithmetic: Numbers
    loads: Numbers
    stores: Numbers
    chains: Numbers
    registers: Numbers
    instructions: Numbers
    stalls: Numbers | float = 0.0
    narrow: Numbers | float = 0.0
    shared: Numbers | float = 0.0
    split: Numbers | float = 0.0
    pages: Numbers | float = 0.0
    page_reach: Numbers | float = 0.0
    folds: Numbers | float = 0.0
    simple: Numbers | float = 0.0
    restarts: Numbers | float = 0.0
    runs: Numbers | float = 0.0


@dataclass(frozen=True)
class Pass:
    """A kernel of its own before the main one (packing, padding): bytes moved [n], 0 where absent.

    Where it is ``shared``, each worker of the main kernel reads all that was written.
    """

    name: str
    read: Numbers
    written: Numbers
    shared: bool = False


@dataclass(frozen=True)
class LoopNest:
    """The main loop nests of n candidates, loops outermost first; ``extents`` are the full axis extents.

    ``rests`` are the bodies of those tiles that are smaller than the others, in addition to ``body``.
    ``serial`` [n] marks candidates whose parallel loops run on one worker. ``scratch`` is (bytes [n], times
    filled [n]) of producers stored once a block. Tiles are ``resumed`` so often [n] after others, for another block of
    a reduction. ``slots`` [loops, n] says which of the loops are a candidate's own, where some are of others only.
    """

    family: str
    lanes: int
    flops: float
    extents: Mapping[str, int]
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    body: Body
    rests: tuple[Body, ...] = ()
    passes: tuple[Pass, ...] = ()
    tail_operations: Numbers | None = None
    resumed: Numbers | float = 0.0
    serial: NDArray[np.bool_] | None = None
    scratch: tuple[Numbers, Numbers] | None = None
    tags: Mapping[str, Numbers] = field(default_factory=dict)
    slots: NDArray[np.bool_] | None = None

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
    def body_level(self) -> int:
        """The level of the innermost body: it loads each element once, whether or not the lines stay."""
        inside = itertools.takewhile(lambda loop: loop.kind in WRITTEN_OUT, reversed(self.loops))
        return len(self.loops) - sum(1 for _ in inside)

    @cached_property
    def depths(self) -> NDArray[np.intp]:
        """How many loops are a candidate's own [n]."""
        own = np.full(len(self), len(self.loops), np.intp)
        return own if self.slots is None else self.slots.sum(axis=0)

    def level(self, own: NDArray[np.intp]) -> NDArray[np.intp]:
        """The levels that are inside of so many of a candidate's own loops [n]."""
        if self.slots is None:
            return own
        outside: NDArray[np.intp] = np.cumsum(self.slots, axis=0) - self.slots
        return np.asarray((outside < own).sum(axis=0))

    @cached_property
    def walks(self) -> tuple[LoopNest, NDArray[np.intp]]:
        """The loops and accesses of those candidates alone that differ in them, and which each candidate has [n].

        Many knobs change neither: what follows from both is cheaper to compute once for all that share them.
        """
        columns: list[NDArray[Any]] = [loop.extent for loop in self.loops]
        columns += [column for access in self.accesses for column in access.own.values()]
        rows, which = _distinct(columns, len(self))
        body = Body(*(np.ones(len(rows)) for _ in range(7)))
        loops = tuple(replace(loop, extent=loop.extent[rows]) for loop in self.loops)
        accesses = tuple(
            replace(access, **{name: column[rows] for name, column in access.own.items()})
            for access in self.accesses
        )
        nest = LoopNest(self.family, self.lanes, self.flops, self.extents, loops, accesses, body)
        return nest, which

    @cached_property
    def stacked(self) -> Numbers:
        """The extents of the loops [loops, n]."""
        rows = [np.broadcast_to(loop.extent, len(self)) for loop in self.loops]
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), len(self))

    @cached_property
    def spans(self) -> dict[str, Numbers]:
        """How far each axis is walked in one run of every level [levels, n]."""
        found = {}
        for axis in {loop.axis for loop in self.loops} & self.extents.keys():
            spans = np.ones((len(self.loops) + 1, len(self)))
            own = np.asarray([loop.axis == axis for loop in self.loops])
            inwards = np.where(own[:, None], self.stacked, 1.0)[::-1]
            spans[:-1] = np.minimum(np.cumprod(inwards, axis=0), float(self.extents[axis]))[::-1]
            found[axis] = spans
        return found

    @cached_property
    def reaches(self) -> dict[tuple[tuple[tuple[str, float], ...], int, int], Numbers]:
        """What was found of each index, of the extent of its dimension, and of the spread of reads."""
        return {}

    @cached_property
    def enclosing(self) -> NDArray[np.intp]:
        """For every loop, the innermost one from it outwards that runs more than once [loops, n]; -1 without one."""
        numbers = np.arange(len(self.loops))[:, None]
        return np.maximum.accumulate(np.where(self.stacked > 1, numbers, -1), axis=0)

    @cached_property
    def touched(self) -> list[Touched]:
        """For each access, what it touches at every level: level l is one run of the loops from l inwards."""
        return [touched(self, access) for access in self.accesses]

    @cached_property
    def working_sets(self) -> Numbers:
        """Cache space [levels, n] that all accesses together take, lost associativity included."""
        total = np.zeros((len(self.loops) + 1, len(self)))
        for access, found in zip(self.accesses, self.touched, strict=True):
            # Inside a loop that the access sits outside of it takes none.
            outside = _of_loops(self, access.outside) & (self.stacked > 1)
            away = np.logical_or.accumulate(outside, axis=0)
            total[0] += found.space[0]
            total[1:] += np.where(away, 0.0, found.space[1:])
        return total


@dataclass(frozen=True)
class Touched:
    """Arrays [levels, n] of one access.

    ``lines``: bytes of whole cache lines. ``space``: cache they take. ``moved``: bytes loaded for one run;
    lines count in part where the next loop outside walks along them. ``runs``: pieces of rows that begin
    where no prefetcher is. ``entries``: how often the level is entered, less those times that find the data
    still there because the loop around does not move the access. ``apart``: rows of ``row`` bytes that are
    visited between neighbouring pieces of one, 0 where these are not apart. ``in_one_set`` [n]: rows visited
    in turns that start in the same set of the first cache.
    """

    lines: Numbers
    space: Numbers
    moved: Numbers
    runs: Numbers
    entries: Numbers
    apart: Numbers
    row: int
    in_one_set: Numbers


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


def touched(nest: LoopNest, access: Access) -> Touched:
    """All levels at once; a loop that does not move the access changes nothing."""
    exact, lines, space, pieces = _filled(nest, access)
    along = {axis for axis, _ in access.dims[-1]} if access.dims else set()
    inner = (nest.enclosing, np.arange(len(nest)))
    runs = nest.enclosing >= 0
    walks = runs & _of_loops(nest, along)[nest.enclosing, 0]
    stays = ~_of_loops(nest, access.axes | access.outside)
    reuse = np.where(runs, np.where(stays, nest.stacked, 1.0)[inner], 1.0)
    repeats = np.where(_of_loops(nest, access.outside), 1.0, nest.stacked)
    entries = np.ones_like(lines)
    entries[1:] = np.cumprod(repeats, axis=0) / reuse
    moved = lines.copy()
    moved[1:] = np.where(walks, exact[1:], lines[1:])
    pieces[1:] = np.where(walks, 0.0, pieces[1:])
    apart, row = _apart(nest, access), _row(access)
    return Touched(lines, space, moved, pieces, entries, apart, row, _in_one_set(nest, access))


def _apart(nest: LoopNest, access: Access) -> Numbers:
    """The rows [levels, n] that are visited between neighbouring pieces of one, where it is not read from end to end.

    Parts of lines are found in a cache the next time, and what is touched once a reduction waits in buffers while the
    arithmetic goes on. Stores past the caches fetch nothing.
    """
    if len(access.dims) < 2 or access.outside:
        return np.zeros((1, len(nest)))
    # A loop along the row takes up each piece where the run before has left it.
    along = _of_loops(nest, {axis for axis, _ in access.dims[-1]}) & (nest.stacked > 1)
    length, rows = (_reach(nest, access, dimension)[1:] for dimension in (-1, -2))
    in_lines = length * access.item_bytes >= CACHE_LINE
    apart = along & in_lines & (length < access.shape[-1]) & (rows > 1)
    return _unless(np.where(apart, rows, 0.0), 0.0, access.panel, access.streamed)


def _unless(numbers: Numbers, instead: float, *exempt: NDArray[np.bool_] | None) -> Numbers:
    """``instead`` for the candidates that are exempt, else the numbers [..., n]."""
    for those in exempt:
        numbers = numbers if those is None else np.where(those, instead, numbers)
    return numbers


def _in_one_set(nest: LoopNest, access: Access) -> Numbers:
    """Rows of an access [n] that are visited in turns and start in the same set of the first cache.

    The innermost loop around the body that moves it within a page comes back to a row after as many others, in pages
    of their own, as are visited inside of the loop. Stores past the caches take no place in them, and panels have no
    rows.
    """
    distance, far = _row(access), dict[int, int]()
    for dimension in range(len(access.dims) - 2, -1, -1):
        if distance >= PAGE_BYTES:
            far[dimension] = distance
        distance *= access.shape[dimension]
    near = {axis for d, terms in enumerate(access.dims) if d not in far for axis, _ in terms}
    body = [[loop.kind in WRITTEN_OUT] for loop in nest.loops]
    moving = _of_loops(nest, near) & (nest.stacked > 1) & ~np.asarray(body, dtype=np.bool_).reshape(-1, 1)
    if not far or access.outside or not moving.any():
        return np.ones(len(nest))
    inside = len(nest.loops) - np.argmax(moving[::-1], axis=0)
    rows = math.prod((_reach(nest, access, d) for d in far), start=np.ones((1, 1)))
    together = math.gcd(WAY_BYTES, *far.values()) / WAY_BYTES
    found: Numbers = np.where(moving.any(axis=0), rows[inside, np.arange(len(nest))] * together, 1.0)
    return _unless(found, 1.0, access.panel, access.streamed)


def _reach(nest: LoopNest, access: Access, dimension: int) -> Numbers:
    """Elements [levels, n] between the first and the last that each level touches in one dimension, both counted."""
    terms, spread = access.dims[dimension], access.spread[dimension] if access.spread else 0
    key = terms, access.shape[dimension], spread
    if key not in nest.reaches:
        reach: Numbers = np.full((len(nest.loops) + 1, len(nest)), 1.0 + spread)
        for axis, coefficient in terms:
            if axis in nest.spans:
                reach = reach + abs(coefficient) * (nest.spans[axis] - 1)
        if any(coefficient % 1 for _, coefficient in terms):
            reach = np.floor(reach)
        nest.reaches[key] = np.minimum(reach, float(access.shape[dimension]))
    return nest.reaches[key]


def _row(access: Access) -> int:
    """Bytes from one row to the next."""
    return access.row_bytes or max(1, access.item_bytes * (access.shape[-1] if access.shape else 1))


def _of_loops(nest: LoopNest, axes: Collection[str]) -> NDArray[np.bool_]:
    """Which loops move one of the axes [loops, 1]."""
    return np.asarray([loop.axis in axes for loop in nest.loops], dtype=np.bool_)[:, None]


def _filled(nest: LoopNest, access: Access) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Elements, lines and cache space of each level [levels, n] in bytes, and the pieces of rows that these are."""
    elements: Numbers = np.ones((len(nest.loops) + 1, len(nest)))
    last = np.ones_like(elements)
    for dimension in range(len(access.dims)):
        last = _reach(nest, access, dimension)
        elements = elements * last
    run = last * access.item_bytes
    row = _row(access)
    whole_run = np.maximum(np.ceil(run / CACHE_LINE), 1.0) * CACHE_LINE
    exact = elements * access.item_bytes
    lines = exact / np.maximum(run, 1.0) * whole_run  # a tensor without elements has no runs
    space, pieces = lines, np.zeros_like(lines)
    if len(access.dims) > 1:
        # Rows a power of two apart share the sets that their runs cover.
        space = lines * np.maximum(math.gcd(row, WAY_BYTES) / whole_run, 1.0)
        # Rows that are touched whole make one long run.
        pieces = np.where(run >= row, 0.0, lines / whole_run)
    if access.panel is not None:
        lines, space = (np.where(access.panel, exact, array) for array in (lines, space))
        pieces = np.where(access.panel, 0.0, pieces)
    return exact, lines, space, pieces


__all__ = [
    "CACHE_LINE",
    "PAGE_BYTES",
    "WAY_BYTES",
    "WRITTEN_OUT",
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
