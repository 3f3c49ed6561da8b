"""Inputs that instructions fetch ahead of their use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.target import ITEM_BYTES
from search_spaces.ahead import hidden_by
from search_spaces.nest.arithmetic import Value
from search_spaces.nest.bodies import Step
from search_spaces.nest.kernel import Source
from search_spaces.nest.loops import CACHE_LINE


@dataclass(frozen=True)
class Fetched:
    """What is fetched ``distance`` iterations of a loop ahead which moves the axes ``moved``.

    ``extents`` are what the loops inside of it go through of each axis.
    """

    source: Source
    distance: Value
    moved: Sequence[str]
    extents: Mapping[str, Value]

    @property
    def share(self) -> Value:
        """The share of the way from memory that is hidden; of lines read side by side, less of each is enough."""
        along = self.source.dims[-1] if self.source.dims else {}
        in_line: Value = 1
        lines: Value = 1
        for name, extent in self.extents.items():
            if name in along:
                in_line = in_line * extent
            elif name in self.source.moved:
                lines = lines * extent
        in_row = any(name in along for name in self.moved)
        nbytes = self.distance * in_line * (1 if in_row else lines) * ITEM_BYTES[self.source.tensor.dtype]
        return hidden_by(nbytes, lines if in_row else 1)

    def lines(self, step: Step) -> Value:
        """Cache lines of one execution of the body."""
        times = {**step.repeats}
        for name, width in step.vector.items():
            times[name] = times.get(name, 1) * width
        along = self.source.dims[-1] if self.source.dims else {}
        in_line: Value = ITEM_BYTES[self.source.tensor.dtype]
        others: Value = 1
        for name, count in times.items():
            if name in along:
                in_line = in_line * count
            elif name in self.source.moved:
                others = others * count
        return others * np.ceil(in_line / CACHE_LINE)


__all__ = ["Fetched"]
