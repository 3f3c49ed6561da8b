"""Inputs that instructions fetch ahead of their use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.schedule.arithmetic import Value, both, where
from autotune.target import ITEM_BYTES
from search_spaces.nest.axes import Terms
from search_spaces.nest.kernel import TensorRead
from search_spaces.nest.loops import CACHE_LINE


@dataclass(frozen=True)
class Fetched:
    """A fetch ``distance`` iterations ahead of a loop which moves the axes ``moved``.

    ``extents`` are what the loops inside of it go through of each axis, ``bodies`` how often the body runs in it.
    """

    source: TensorRead
    distance: Value
    moved: Sequence[str]
    extents: Mapping[str, Value]
    bodies: Value

    @cached_property
    def nbytes(self) -> Value:
        """Bytes of each line from a fetch to its use."""
        advance = 1 if self._is_along_rows else self._advance
        return self.distance * advance * self._along * ITEM_BYTES[self.source.tensor.dtype]

    @cached_property
    def abreast(self) -> Value:
        """Lines that are read side by side, if any is fetched."""
        found: Value = 1
        for name, extent in self.extents.items() if self._is_along_rows else ():
            if name in self.source.moved and name not in self.source.dims[-1]:
                found = found * extent
        return where(self.distance > 0, found, 0)

    @cached_property
    def awaited(self) -> Value:
        """Lines to wait for at a time: pieces of rows are as many as the loop comes to in an iteration."""
        if self._is_along_rows:
            return 0
        pieces = both(self.distance > 0, self._along < self.source.tensor.shape[-1])
        return where(pieces, self._advance * self._lines(self._along), 0)

    @cached_property
    def _is_along_rows(self) -> bool:
        """Return whether the loop goes on along rows, not from one to the next."""
        return bool(self.source.dims) and any(name in self.source.dims[-1] for name in self.moved)

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
