"""Memory that the accesses of loop nests touch: bytes, cache lines and rows at every level.

Level l is one run of the loops from l inwards. A loop that does not move an access changes nothing of it, so there is
one row of numbers for each loop that does, beside that of the body; ``rows`` says which row is that of a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from search_spaces.nest.loops import LoopNest, TensorAccess

Numbers = NDArray[np.float64]
CACHE_LINE = 64
WAY_BYTES = 4096
PAGE_BYTES = 4096


class Here:
    """Levels [..., m] of some candidates [m].

    ``around`` is the innermost of the loops outside that runs more than once, and ``times`` how often; without one
    these are -1 and 1.
    """

    def __init__(self, nest: LoopNest, level: NDArray[np.intp], candidate: NDArray[np.intp]) -> None:
        self.level = level
        self.candidate = candidate
        self.around = nest.enclosing[level, candidate]
        repeats = nest.stacked if nest.loops else np.ones((1, len(nest)))
        self.times = np.where(self.around < 0, 1.0, repeats[self.around, candidate])


@dataclass(frozen=True, eq=False)
class Reach:
    """Elements [rows, n] between the first and the last that are touched in one dimension, both counted."""

    elements: Numbers
    rows: NDArray[np.intp]

    def inside(self, loops: NDArray[np.intp]) -> Numbers:
        """Return those of one run of each of some loops."""
        return self.elements[self.rows[loops + 1]]


class TouchedMemory:
    """The memory that one access touches; ``row`` are the bytes from one row to the next.

    ``space`` [rows, n] is the cache that its lines take, lost associativity included.
    """

    def __init__(self, nest: LoopNest, access: TensorAccess) -> None:
        self._nest = nest
        self._access = access
        self.row = access.row_bytes or max(1, access.item_bytes * (access.shape[-1] if access.shape else 1))
        self.rows, levels = _rows(nest.axes, access.axes)
        reaches = [reach(nest, access, dimension) for dimension in range(len(access.dims))]
        elements: Numbers = np.ones((len(levels), len(nest)))
        for one in reaches:
            elements *= one.elements[one.rows[levels]]
        last = reaches[-1] if reaches else Reach(np.ones((1, len(nest))), np.zeros_like(self.rows))
        self._along = last.rows[levels]
        self._run = last.elements * access.item_bytes
        self._whole_run = np.maximum(np.ceil(self._run / CACHE_LINE), 1.0) * CACHE_LINE
        self._bytes = elements * access.item_bytes
        # A tensor without elements has no runs.
        self._lines = self._bytes / np.maximum(self._run, 1.0)[self._along] * self._whole_run[self._along]
        self.space = self._lines
        sets = math.gcd(self.row, WAY_BYTES)
        if len(access.dims) > 1 and sets > CACHE_LINE:
            # Rows a power of two apart share the sets that their runs cover.
            self.space = self._lines * np.maximum(sets / self._whole_run, 1.0)[self._along]
        if access.panel is not None:
            self._lines = np.where(access.panel, self._bytes, self._lines)
            self.space = np.where(access.panel, self._bytes, self.space)

    @property
    def lines_of_all(self) -> Numbers:
        """Return bytes [rows, n] of whole cache lines."""
        return np.asarray(self._lines)

    def lines(self, at: Here) -> Numbers:
        """Return bytes [..., m] of whole cache lines."""
        return np.asarray(self._lines[self.rows[at.level], at.candidate])

    def moved(self, at: Here) -> Numbers:
        """Return bytes [..., m] loaded for one run; lines count in part where the next loop outside
        walks along them."""
        return np.where(self._is_walked(at), self._bytes[self.rows[at.level], at.candidate], self.lines(at))

    def runs(self, at: Here) -> Numbers:
        """Return pieces of rows [..., m] that begin where no prefetcher is."""
        if len(self._access.dims) < 2:
            return np.zeros(at.level.shape)
        along = self._along[self.rows[at.level]], at.candidate
        # Rows that are touched whole make one long run.
        whole = (self._run[along] >= self.row) | self._is_walked(at)
        whole = whole if self._access.panel is None else whole | self._access.panel[at.candidate]
        return np.where(whole, 0.0, self.lines(at) / self._whole_run[along])

    def entries(self, at: Here) -> Numbers:
        """Return the number of entries of a level [..., m], without the times that find the data still there.

        These are those of the loop around where it does not move the access.
        """
        moved = _moved(self._nest.axes, self._access.axes | self._access.outside)[at.around]
        entered = self._entered(self._access.outside)[at.level, at.candidate]
        return np.asarray(entered / np.where(moved, 1.0, at.times))

    def _is_walked(self, at: Here) -> NDArray[np.bool_]:
        """Return where the loop around goes on along a row."""
        return _moved(self._nest.axes, self._last)[at.around]

    @property
    def _last(self) -> frozenset[str]:
        return frozenset(axis for axis, _ in self._access.dims[-1]) if self._access.dims else frozenset()

    def _entered(self, outside: frozenset[str]) -> Numbers:
        """Return the number of entries of each level [levels, n], by loops that repeat what happens
        ``outside`` of others."""
        known = self._nest.entered
        if outside not in known:
            found = np.ones((len(self._nest.loops) + 1, len(self._nest)))
            repeats = np.where(_moved(self._nest.axes, outside)[:-1, None], 1.0, self._nest.stacked)
            np.cumprod(repeats, axis=0, out=found[1:])
            known[outside] = found
        return known[outside]

    @cached_property
    def apart(self) -> Numbers:
        """The rows [loops, n] that are visited between neighbouring pieces of one which is not read from end to end.

        There is one number for each loop along the row: it takes up each piece where the run before has left it. Parts
        of lines are found in a cache the next time, and what is touched once a reduction waits in buffers while the
        arithmetic goes on. Stores past the caches fetch nothing.
        """
        nest, access = self._nest, self._access
        if len(access.dims) < 2 or access.outside:
            return np.zeros((1, len(nest)))
        along = np.flatnonzero(_moved(nest.axes, self._last))
        length, rows = (reach(nest, access, dimension).inside(along) for dimension in (-1, -2))
        in_lines = length * access.item_bytes >= CACHE_LINE
        apart = (nest.stacked[along] > 1) & in_lines & (length < access.shape[-1]) & (rows > 1)
        apart = apart if access.streamed is None else apart & ~access.streamed
        return _unless_panel(np.where(apart, rows, 0.0), 0.0, access)

    @cached_property
    def in_one_set(self) -> Numbers:
        """Rows [n] that are visited alternately and start in the same set of the first cache.

        The innermost loop around the body that moves the access within a page comes back to a row after as many others,
        in pages of their own, as are visited inside of the loop. Panels have no rows. Stores past the caches are
        counted too: transposing 1024x768 by columns of 768 lines alternately takes a Zen 4 1.4 times as long as by
        rows of 16, with them (212 and 152 us) as without (171 and 127 us).
        """
        nest, access = self._nest, self._access
        distance, far = self.row, dict[int, int]()
        for dimension in range(len(access.dims) - 2, -1, -1):
            if distance >= PAGE_BYTES:
                far[dimension] = distance
            distance *= access.shape[dimension]
        near = frozenset(axis for d, terms in enumerate(access.dims) if d not in far for axis, _ in terms)
        inwards = np.flatnonzero(_moved(nest.axes, near)[:-1] & ~nest.written_out)[::-1]
        if not far or access.outside or not len(inwards):
            return np.ones(len(nest))
        moving = nest.stacked[inwards] > 1
        level = inwards[moving.argmax(axis=0)] + 1
        reaches = [reach(nest, access, d) for d in far]
        rows = math.prod((r.elements[r.rows[level], np.arange(len(nest))] for r in reaches), start=np.ones(1))
        together = math.gcd(WAY_BYTES, *far.values()) / WAY_BYTES
        return _unless_panel(np.where(moving.any(axis=0), rows * together, 1.0), 1.0, access)


def _unless_panel(numbers: Numbers, instead: float, access: TensorAccess) -> Numbers:
    """Return ``instead`` for panels, else the numbers [..., n]."""
    return numbers if access.panel is None else np.where(access.panel, instead, numbers)


def reach(nest: LoopNest, access: TensorAccess, dimension: int) -> Reach:
    """Return the reach in one dimension at every level."""
    terms, gaps = access.dims[dimension], access.gaps[dimension] if access.gaps else ()
    unmoved = access.unmoved & {axis for axis, _ in terms}
    key = terms, access.shape[dimension], gaps, unmoved
    if key not in nest.reaches:
        rows, levels = _rows(nest.axes, frozenset(axis for axis, _ in terms))
        elements: Numbers = np.ones((len(levels), len(nest)))
        for axis, coefficient in terms:
            if axis in nest.spans:
                spans = nest.spans[axis]
                still = spans[nest.beside[axis]] if axis in unmoved else 1.0
                steps = np.maximum(spans - still, 0.0)
                elements += abs(coefficient) * steps[_rows(nest.axes, frozenset({axis}))[0][levels]]
        if any(coefficient % 1 for _, coefficient in terms):
            elements = np.floor(elements)
        # Of reads that are far apart the elements between them are not touched.
        elements = elements + sum(np.minimum(elements, gap) for gap in gaps)
        nest.reaches[key] = Reach(np.minimum(elements, float(access.shape[dimension])), rows)
    return nest.reaches[key]


@lru_cache(maxsize=1 << 12)
def _rows(loops: tuple[str, ...], axes: frozenset[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row of each level, and a level of each row: loops over some axes have one each, after
    that of the body."""
    own = _moved(loops, axes)
    rows = np.cumsum(own[::-1], dtype=np.intp)[::-1]
    return rows, np.asarray([len(loops), *np.flatnonzero(own)[::-1]], dtype=np.intp)


@lru_cache(maxsize=1 << 12)
def _moved(loops: tuple[str, ...], axes: frozenset[str]) -> NDArray[np.bool_]:
    """Return which loops move one of the axes; the last entry is for no loop."""
    return np.asarray([*(axis in axes for axis in loops), False], dtype=np.bool_)


__all__ = ["CACHE_LINE", "PAGE_BYTES", "WAY_BYTES", "Here", "Numbers", "Reach", "TouchedMemory"]
