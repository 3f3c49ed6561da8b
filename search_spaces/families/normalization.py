"""Normalisations: mean and variance of a row, then the row, in one pass through the row loop.

Knobs: vectors, row_block, method, parallel, stream. Instance and group normalisation of channels-last images, whose
statistics run down columns, have those of :mod:`search_spaces.families.channel_statistics`; LRN gets plain loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.families import elementwise
from search_spaces.families.channel_statistics import channel_space, channel_sums
from search_spaces.rows.rows import row_space
from search_spaces.rows.shape import row_shape
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target

FAMILY = "normalization"


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a normalisation."""
    rows = row_shape(workload)
    if rows is None:
        sums = channel_sums(workload)
        if sums:
            return channel_space(FAMILY, workload, target, sums)
        return elementwise.space(workload, target, FAMILY)
    return row_space(FAMILY, workload, target, rows)


__all__ = ["FAMILY", "space"]
