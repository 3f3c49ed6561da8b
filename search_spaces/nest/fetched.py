"""Inputs that instructions fetch ahead of their use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.target import ITEM_BYTES
from search_spaces.ahead import hidden_by
from search_spaces.nest.arithmetic import Value, least, where
from search_spaces.nest.axes import Terms
from search_spaces.nest.kernel import Source
from search_spaces.nest.loops import CACHE_LINE

_BUFFERS = 10.0
"""Lines that a core waits for at a time. Cascade Lake, an average pool of 3x3 on 143 MiB: tiles of two pixels of four
lines take 0.85 of the time without fetching ahead, tiles of three 0.91, of five 0.92."""


@dataclass(frozen=True)
class Fetched:
    """What is fetched ``distance`` iterations of a loop ahead which moves the axes ``moved``.

    ``extents`` are what the loops inside of it go through of each axis, ``bodies`` how often the body runs in it.
    """

    source: Source
    distance: Value
    moved: Sequence[str]
    extents: Mapping[str, Value]
    bodies: Value

    @cached_property
    def share(self) -> Value:
        """The share of the way from memory that is hidden; of lines read side by side, less of each is enough."""
        item, last = ITEM_BYTES[self.source.tensor.dtype], self.source.dims[-1] if self.source.dims else {}
        if any(name in last for name in self.moved):
            side_by_side: Value = 1
            for name, extent in self.extents.items():
                if name in self.source.moved and name not in last:
                    side_by_side = side_by_side * extent
            return hidden_by(self.distance * self._along * item, side_by_side)
        # Pieces of rows are as many lines to wait for as the loop comes to in an iteration.
        lines = self._advance * self._lines(self._along)
        most = where(self._along < self.source.tensor.shape[-1], least(_BUFFERS / lines, 1.0), 1.0)
        return hidden_by(self.distance * self._advance * self._along * item, 1) * most

    @cached_property
    def instructions(self) -> Value:
        """Those that fetch, for one execution of the body: one for each cache line."""
        found = self._lines(self._along)
        for terms in self.source.dims[:-1]:
            found = found * self._span(terms)
        return where(self.distance > 0, found / self.bodies, 0.0)

    @cached_property
    def _along(self) -> Value:
        """Elements of a row that an iteration reads."""
        return self._span(self.source.dims[-1]) if self.source.dims else 1

    @cached_property
    def _advance(self) -> Value:
        """Rows that are new in the next iteration."""
        found: Value = 1
        for terms in self.source.dims[:-1]:
            for name in self.moved:
                found = found * abs(terms.get(name, 1)) * (self.extents.get(name, 1) if name in terms else 1)
        return found

    def _span(self, terms: Terms) -> Value:
        found: Value = 1
        for name, factor in terms.items():
            found = found + abs(factor) * (self.extents.get(name, 1) - 1)
        return found

    def _lines(self, elements: Value) -> Value:
        return np.ceil(elements * ITEM_BYTES[self.source.tensor.dtype] / CACHE_LINE)


__all__ = ["Fetched"]
