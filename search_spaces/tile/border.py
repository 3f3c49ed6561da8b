"""Padding that a register tile computes as it reads it, with code of their own for the tiles at the border.

What is padded is not copied then. ``peel`` gives the first and the last tiles of a row and of a column code of their
own, in which most conditions are decided; in that of the others none is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.schedule.knob import Columns
from autotune.schedule.knob_value import ceil_div, minimum
from autotune.te.expr import Binary, Compare, Const, Expr, IterVar, Select
from autotune.te.tensor import ComputeOp
from search_spaces.constraint import Constraint
from search_spaces.tile.knobs import WHOLE, column
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target

STORED, INLINE = "root", "inline"
_LEAST_BLOCK = 8
"""Tiles of a smaller block are at its own border for a good part."""
_MAX_BODY, _FEW = 72, 4
"""Steps of a tile that is written out nine times, inside, at four sides and in four corners; results that are few."""


def clean(shape: TileShape) -> dict[str, tuple[int, int]]:
    """Return the rows ``begin`` to ``end`` of each spatial axis whose windows do not reach the padding
    that they read."""
    found: dict[str, tuple[int, int]] = {}
    for read in shape.reads:
        op = read.tensor.op
        parts = inside(op) if op.name in shape.staged and isinstance(op, ComputeOp) else {}
        for dimension, (low, high) in parts.items():
            terms = dict(read.dims[dimension])
            for axis in (axis for axis in shape.spatial if terms.get(axis, 0) > 0):
                stride = terms.pop(axis)
                reach = sum(step * (shape.extents[other] - 1) for other, step in terms.items())
                begin, end = -(-low // stride), (high - 1 - reach) // stride + 1
                before = found.get(axis, (0, shape.extents[axis]))
                found[axis] = max(begin, before[0]), min(end, before[1])
    return found


def whole_rows(shape: TileShape, target: Target) -> bool:
    """Return whether there is enough for all workers to do in blocks that have all rows."""
    images = math.prod(shape.extents[axis] for axis in shape.batch)
    pieces = images * math.ceil(shape.extents[shape.vector] / shape.lanes)
    return target.threads == 1 or pieces >= 2 * target.threads


def inline_rule(shape: TileShape, target: Target) -> Constraint:
    """Return the rule for padding that is not stored: tiles are short and whole; blocks have all rows
    unless workers need more.

    A block of few rows cannot know at which border it is: all conditions of its own first and last tiles are tested.
    """
    outer = ("outer_rows",) if len(shape.spatial) == 2 else ()
    window, shared = shape.reduction, math.inf if whole_rows(shape, target) else _LEAST_BLOCK

    def holds(c: Columns) -> object:
        tile = column(c, "rows", 1) * column(c, "outer_rows", 1) * column(c, "vectors", 1)
        decided = np.asarray(c["unroll_window"], dtype=np.bool_) & (c["tail"] == "overlap")
        block = column(c, "row_block", WHOLE)
        decided &= (block == WHOLE) | (block >= shared)
        return (c["stage"] != INLINE) | (decided & ((tile <= _FEW) | (tile * window <= _MAX_BODY)))

    reads = ("stage", "rows", *outer, "vectors", "row_block", "tail", "unroll_window")
    return Constraint(
        "inline", reads, holds, "the code for tiles at the border would be too long or too slow"
    )


def peel_border(
    stage: Stage, shape: TileShape, tiles: Mapping[str, IterVar], rows: Mapping[str, Any]
) -> None:
    """Give those of the loops over ``tiles`` of so many ``rows`` code of their own that reach padding."""
    for axis, (begin, end) in clean(shape).items():
        loop, size, extent = tiles[axis], rows[axis], shape.extents[axis]
        after = 0 if end == extent else ceil_div(extent, size) - end // size
        first = int(minimum(ceil_div(begin, size), loop.extent))
        last = int(minimum(after, loop.extent - first))
        if first + last:
            stage.peel(loop, first, last)


def inside(op: ComputeOp) -> dict[int, tuple[int, int]]:
    """Return the indices ``low`` to ``high`` of the dimensions of a padded tensor that are not padding."""
    numbers: dict[Expr, int] = {axis: dimension for dimension, axis in enumerate(op.axis)}
    found: dict[int, tuple[int, int]] = {}
    for expr in op.body:
        for part in _conjuncts(expr.cond) if isinstance(expr, Select) else ():
            if isinstance(part, Compare) and isinstance(part.b, Const) and part.a in numbers:
                dimension, bound = numbers[part.a], int(part.b.value)
                low, high = found.get(dimension, (0, op.shape[dimension]))
                if part.op == ">=":
                    low = max(low, bound)
                elif part.op == "<":
                    high = min(high, bound)
                found[dimension] = low, high
    return found


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    if isinstance(cond, Binary) and cond.op == "and":
        yield from _conjuncts(cond.a)
        yield from _conjuncts(cond.b)
    else:
        yield cond


__all__ = ["INLINE", "STORED", "clean", "inline_rule", "inside", "peel_border", "whole_rows"]
