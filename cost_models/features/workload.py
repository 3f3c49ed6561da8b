"""The computation and its operands: the same for all candidates of a workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING

from autotune.target import ITEM_BYTES
from autotune.te.tensor import ComputeOp, post_order
from search_spaces.analysis import ReadForm, operations, read_forms

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload

NAMES = (
    "stages",
    "reductions",
    "log_points",
    "log_reduced",
    "operations",
    "item_bytes",
    "reads",
    "reused_reads",
    "window_dims",
    "looked_up",
)


@lru_cache(maxsize=256)
def described(workload: AnyWorkload) -> tuple[float, ...]:
    """Return the features :data:`NAMES`: numbers of stages and of reductions, then of the stage with most arithmetic.

    The bytes of an item are the mean of what it reads: they tell the precisions of a product apart, whose sums are as
    long in all of them. Of its reads, those are reused that do not move along one of its axes; in dimensions of a
    window they move along several at once, as those of convolutions and pools do.
    """
    stages = [op for op in post_order(list(workload.expressions.outputs)) if isinstance(op, ComputeOp)]
    main = max(stages, key=lambda op: _points(op) * (1 + operations(op)))
    forms = read_forms(main)
    moving = {axis.name for axis in main.axis if axis.extent > 1}
    return (
        len(stages),
        sum(bool(op.reduce_axis) for op in stages),
        math.log2(max(_points(main), 1)),
        math.log2(max(math.prod(axis.extent for axis in main.reduce_axis), 1)),
        operations(main),
        _item_bytes(main, forms),
        len(forms),
        sum(not moving <= form.axes for form in forms),
        max((sum(len(terms) > 1 for terms in form.dims) for form in forms), default=0),
        any(form.looked_up for form in forms),
    )


def _item_bytes(op: ComputeOp, forms: Sequence[ReadForm]) -> float:
    return fmean(ITEM_BYTES[dtype] for dtype in [form.tensor.dtype for form in forms] or op.dtypes[:1])


def _points(op: ComputeOp) -> int:
    return math.prod(axis.extent for axis in (*op.axis, *op.reduce_axis))


__all__ = ["NAMES", "described"]
