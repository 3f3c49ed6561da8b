"""The space of a region of tensor expressions, by what its reads look like: no operator names the family.

The families are those of models. A reduction along contiguous rows is a row space, and so is everything that stays with
its rows (softmax, normalisations); one that reads its operands several times is register-tiled, as a product, a
convolution, a depthwise convolution or a pool; whatever is left is one nest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.te.tensor import ComputeOp, post_order
from search_spaces.analysis import ReadForm, read_forms, structure
from search_spaces.families import contraction, convolution, elementwise, pooling
from search_spaces.families.depthwise import windowed
from search_spaces.rows.rows import row_space
from search_spaces.rows.shape import line_axis, row_shape
from search_spaces.tile.shape import TileShape, tile_shape

if TYPE_CHECKING:
    from autotune.graph.program import ProgramWorkload
    from autotune.target import Target
    from search_spaces.space import Space

_REUSE = 4
"""So many uses of each element of the largest operand make tiles worth more than rows."""
_LONG = 64
"""Steps of a line that are worth adding up its lanes, where tiles would do as well."""


def keeps_rows(op: ComputeOp) -> bool:
    """Return whether a reduction is best done line by line: it runs along lines, and tiles would not
    reuse what it reads."""
    forms, line = read_forms(op), line_axis(op)
    if line is None:
        return False
    points = math.prod(axis.extent for axis in (*op.axis, *op.reduce_axis))
    product = sum(line.name in form.axes for form in forms) > 1
    return points < _REUSE * max(map(_elements, forms)) and (not product or line.extent >= _LONG)


def _elements(form: ReadForm) -> int:
    return math.prod(form.tensor.shape)


def program_space(
    workload: ProgramWorkload, anchor: str | None, target: Target, near: frozenset[str] = frozenset()
) -> Space:
    """Return the schedules of a region with one stored stage; ``anchor`` names the reduction that tiles go around.

    ``near`` are the inputs that are computed by the same program.
    """
    ops = {op.name: op for op in post_order(list(workload.expressions.outputs))}
    op = None if anchor is None else ops[anchor]
    assert op is None or isinstance(op, ComputeOp)
    if op is None or keeps_rows(op):
        rows = row_shape(workload)
        if rows is not None:
            family = "reduction" if len(rows.reductions) == 1 else "normalization"
            return row_space(family, workload, target, rows)
    shape = (
        None
        if op is None or not op.axis
        else tile_shape(structure(workload.expressions, op), target, _vector(op))
    )
    if shape is None:
        return elementwise.space(workload, target, near=near)
    return _tiled(workload, target, _with_main(shape))


def _tiled(workload: ProgramWorkload, target: Target, shape: TileShape) -> Space:
    if len(shape.reads) < 2:
        if not _slides(shape):
            return windowed("reduction", workload, target, replace(shape, staged=()))
        return pooling.space(workload, target, shape)
    if all(shape.vector in read.axes for read in shape.reads):
        return windowed("depthwise", workload, target, shape)
    if _slides(shape):
        return convolution.space(workload, target, shape)
    return contraction.space(workload, target, shape)


def _vector(op: ComputeOp) -> str:
    """Return the last axis of more than one element."""
    return next((axis.name for axis in reversed(op.axis) if axis.extent > 1), op.axis[-1].name)


def _slides(shape: TileShape) -> bool:
    """Return whether a window of the reduction moves over some operand."""
    return any(len(terms) > 1 for read in shape.reads for terms in read.dims)


def _with_main(shape: TileShape) -> TileShape:
    """Return the shape with the longest reduction outside of windows as its innermost: programs state
    them in any order."""
    if shape.dot is not None or not shape.window:
        return shape
    windows = {axis for read in shape.reads for terms in read.dims if len(terms) > 1 for axis, _ in terms}
    names = [axis.name for axis in shape.structure.anchor.reduce_axis]
    outside = [axis for axis in names if axis not in windows] or names
    main = max(reversed(outside), key=lambda axis: shape.extents[axis])
    if shape.extents[main] == 1:
        return shape
    return replace(shape, main=main, window=tuple(axis for axis in names if axis != main))


__all__ = ["keeps_rows", "program_space"]
