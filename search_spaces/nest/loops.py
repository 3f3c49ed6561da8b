"""The loop nests of a population: extents, accesses and innermost bodies as arrays, one entry a candidate.

A recipe describes what its schedules do *without building them*: feeding arrays of knob values through the
same arithmetic gives the loop nests of thousands of candidates in one pass. Footprints at every loop level
follow from the linear index expressions, as in Ansor's buffer-access features (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from search_spaces.nest.touched import CACHE_LINE, PAGE_BYTES, WAY_BYTES, Here, Numbers, Reach, TouchedMemory

LoopKind = Literal["parallel", "serial", "unrolled", "vectorized", "beside"]
"""Loops ``beside`` the body are those of another stage, which runs before or after it."""
WRITTEN_OUT: tuple[LoopKind, ...] = ("unrolled", "vectorized", "beside")
"""Kinds of loops that do not repeat the body: their iterations are one piece of code, or beside it."""


@dataclass(frozen=True)
class Loop:
    """One loop slot: it moves ``axis`` and runs ``extent`` [n] times (1 = absent in that candidate)."""

    axis: str
    extent: Numbers
    kind: LoopKind = "serial"


@dataclass(frozen=True)
class TensorAccess:
    """A tensor touched by the innermost body.

    Each entry of ``dims`` is one dimension as terms (axis, coefficient) of its index, which is rounded down; ``shape``
    bounds it.
    ``panel`` [n] says that the data was laid out in visiting order, so that no part of a line is wasted.
    Loops over the axes in ``outside`` do not repeat the access: it happens before or after them. Of loops over the axes
    in ``unmoved`` those beside the body do not move it.
    ``gaps`` are the distances of each read from the next in each dimension, where a body has several that move alike.
    ``row_bytes`` is the distance of neighbours in the last but one dimension where rows are not dense.
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
    gaps: tuple[tuple[int, ...], ...] = ()
    unmoved: frozenset[str] = frozenset()

    @cached_property
    def own(self) -> dict[str, Any]:
        """Return the fields that candidates have of their own, as far as any has."""
        return {name: column for name in self.OWN if (column := getattr(self, name)) is not None}

    def having(self, own: Mapping[str, Any]) -> TensorAccess:
        """Return the access of candidates that have other numbers of their own."""
        return replace(self, **own) if own else self

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
    Runs of elements begin anew ``restarts`` times, in each of several rows ``runs`` in all. A library does ``foreign``
    of the arithmetic, and packs ``packed`` elements for it.
    ``shared`` of the loads serve several iterations that are written out, and may stay in registers in between.
    """

    steps: Numbers
    arithmetic: Numbers
    loads: Numbers
    stores: Numbers
    chains: Numbers
    registers: Numbers
    instructions: Numbers
    narrow: Numbers | float = 0.0
    shared: Numbers | float = 0.0
    split: Numbers | float = 0.0
    pages: Numbers | float = 0.0
    page_reach: Numbers | float = 0.0
    folds: Numbers | float = 0.0
    simple: Numbers | float = 0.0
    restarts: Numbers | float = 0.0
    runs: Numbers | float = 0.0
    foreign: Numbers | float = 0.0
    packed: Numbers | float = 0.0
    matrix: Numbers | float = 0.0
    """Cycles until sums of products of tiles are complete."""
    tiles: Numbers | float = 0.0
    """Products of whole tiles."""
    pairs: Numbers | float = 0.0
    """Products of vectors of pairs of bfloat16 numbers."""


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
    accesses: tuple[TensorAccess, ...]
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
        """Return the number of a candidate's own loops [n]."""
        own = np.full(len(self), len(self.loops), np.intp)
        return own if self.slots is None else self.slots.sum(axis=0)

    def level(self, own: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the levels that are inside of so many of a candidate's own loops [n]."""
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
        body = replace(body, tiles=float(np.any(self.body.tiles)))
        loops = tuple(replace(loop, extent=loop.extent[rows]) for loop in self.loops)
        accesses = tuple(
            access.having({name: column[rows] for name, column in access.own.items()})
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
    def axes(self) -> tuple[str, ...]:
        """The axes that the loops move."""
        return tuple(loop.axis for loop in self.loops)

    @cached_property
    def written_out(self) -> NDArray[np.bool_]:
        """Return which of the loops are parts of the body."""
        return np.asarray([loop.kind in WRITTEN_OUT for loop in self.loops], dtype=np.bool_)

    @cached_property
    def spans(self) -> dict[str, Numbers]:
        """Return the span of each axis [rows, n]: by the body, and in one run of each loop over it, innermost first."""
        found = {}
        for axis in set(self.axes) & self.extents.keys():
            own = [level for level, other in enumerate(self.axes) if other == axis][::-1]
            spans = np.ones((len(own) + 1, len(self)))
            np.minimum(np.cumprod(self.stacked[own], axis=0), float(self.extents[axis]), out=spans[1:])
            found[axis] = spans
        return found

    @cached_property
    def beside(self) -> dict[str, int]:
        """Return the number of innermost loops over each axis that are beside the body."""
        found = {}
        for axis in self.spans:
            own = [loop.kind for loop in reversed(self.loops) if loop.axis == axis]
            found[axis] = sum(1 for _ in itertools.takewhile(lambda kind: kind == "beside", own))
        return found

    @cached_property
    def reaches(self) -> dict[tuple[object, ...], Reach]:
        """Return the memo of each index, of the extent of its dimension, of the gaps between reads, and of what does
        not move it."""
        return {}

    @cached_property
    def entered(self) -> dict[frozenset[str], Numbers]:
        """Return the number of entries of each level [levels, n], by what was found to happen outside of
        loops over some axes."""
        return {}

    @cached_property
    def enclosing(self) -> NDArray[np.intp]:
        """For every level, the innermost of the loops outside that runs more than once [levels, n]; -1 without one."""
        found = np.full((len(self.loops) + 1, len(self)), -1, dtype=np.intp)
        numbers = np.arange(len(self.loops))[:, None]
        np.maximum.accumulate(np.where(self.stacked > 1, numbers, -1), axis=0, out=found[1:])
        return found

    @cached_property
    def touched(self) -> list[TouchedMemory]:
        """For each access, what it touches at every level: level l is one run of the loops from l inwards."""
        return [TouchedMemory(self, access) for access in self.accesses]

    @cached_property
    def working_sets(self) -> Numbers:
        """Cache space [levels, n] that all accesses together take, lost associativity included."""
        total = np.zeros((len(self.loops) + 1, len(self)))
        for access, found in zip(self.accesses, self.touched, strict=True):
            # Sums of tiles are written once, and their few lines of a page leave room for factors in the others.
            written = access.write and bool(np.any(self.body.tiles))
            space = (found.lines_of_all if written else found.space)[found.rows]
            if access.outside:  # Inside a loop that the access sits outside of it takes none.
                outside = np.asarray([axis in access.outside for axis in self.axes], dtype=np.bool_)
                away = np.logical_or.accumulate(outside[:, None] & (self.stacked > 1), axis=0)
                space[1:][away] = 0.0
            total += space
        return total


def _distinct(columns: Sequence[NDArray[Any]], n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return one of the n rows for each that differs, and the position among those for every row."""
    varied = [column for column in columns if np.any(column != column[:1])]
    if not varied:
        return np.zeros(min(n, 1), dtype=np.intp), np.zeros(n, dtype=np.intp)
    # Sums of different rows are hardly ever equal; where they are, more rows count as different than are.
    weights = np.random.default_rng(0).random(len(varied))
    order = np.argsort(sum(column * weight for column, weight in zip(varied, weights, strict=True)))
    first = np.zeros(n, dtype=np.bool_)
    first[0] = True
    for column in varied:
        arranged = column[order]
        first[1:] |= arranged[1:] != arranged[:-1]
    which = np.empty(n, dtype=np.intp)
    which[order] = np.cumsum(first) - 1
    return order[first], which


__all__ = [
    "CACHE_LINE",
    "PAGE_BYTES",
    "WAY_BYTES",
    "WRITTEN_OUT",
    "Body",
    "Here",
    "Loop",
    "LoopKind",
    "LoopNest",
    "Numbers",
    "Pass",
    "TensorAccess",
    "TouchedMemory",
]
