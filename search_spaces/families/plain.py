"""The plain schedule of one stage: outer loops fused and parallel, the last axis in vectors.

It is legal for every stage, and what the recipes use for stages that are not worth a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.te.tensor import ComputeOp

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar

_PARALLEL_ELEMENTS = 1 << 14
_PARALLEL_TILES = 48


def schedule_plain(
    stage: Stage, lanes: int, *, inline: bool, parallel: Any = True, across: bool = False
) -> None:
    """Schedule ``stage`` at the root (or where it is attached), or inline it where it may be.

    A reduction keeps its reduce loops inside all data loops but the vector one. Whether it runs ``parallel`` where that
    is worth it may be a knob value. Vectors go ``across`` lines that are shorter than they are, if wanted.
    """
    op = stage.op
    if not isinstance(op, ComputeOp):
        return
    if inline and op.reduction is None and not stage.is_output:
        stage.compute_inline()
        return
    if not op.axis or 0 in op.shape:
        return
    *outer, last = op.axis
    if across and outer and last.extent < lanes:
        last = stage.fuse(outer.pop(), last)
    width = min(lanes, last.extent)
    many = parallel is not False and worth_sharing(op)
    if width > 1:
        vectors, inner = stage.split(last, factor=width)
        stage.reorder(*outer, vectors, *op.reduce_axis, inner)
        stage.vectorize(inner)
        if not outer and vectors.extent > 1:
            outer = [vectors]
    if many and outer:
        shared = _shared(outer)
        stage.parallel(stage.fuse(*shared) if len(shared) > 1 else shared[0], when=parallel)


def _shared(loops: Sequence[IterVar]) -> Sequence[IterVar]:
    """Return the outermost loops, as few as have enough iterations to share.

    A loop that stays by itself can be cut where padding ends, and needs no division to find its place.
    """
    for count in range(1, len(loops)):
        if math.prod(loop.extent for loop in loops[:count]) >= _PARALLEL_TILES:
            return loops[:count]
    return loops


def worth_sharing(op: ComputeOp) -> bool:
    """Return whether an operation is so much work that waking the other workers pays."""
    return math.prod(axis.extent for axis in (*op.axis, *op.reduce_axis)) >= _PARALLEL_ELEMENTS


__all__ = ["schedule_plain", "worth_sharing"]
