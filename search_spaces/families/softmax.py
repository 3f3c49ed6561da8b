"""Softmax and log-softmax: maximum, exponentials and sum of a row in one pass through the row loop.

Knobs: vectors, row_block, method, store (keep the exponentials of a row, or recompute them), parallel, stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.families import elementwise
from search_spaces.rows.rows import row_space
from search_spaces.rows.shape import row_shape
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target

FAMILY = "softmax"


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a softmax; plain loops where its axis is not the last."""
    rows = row_shape(workload)
    if rows is None:
        return elementwise.space(workload, target, FAMILY)
    return row_space(FAMILY, workload, target, rows)


__all__ = ["FAMILY", "space"]
