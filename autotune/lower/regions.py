"""Bound inference: the box of a producer that a consumer's loops need.

As in Halide and TVM, but on demand: a region is inferred when the code of its attach point is generated, from
the extents known there, so that peeled remainders get regions of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.schedule.stage import Stage
from autotune.te.expr import Binary, Const, Expr, IterVar, Read
from autotune.te.tensor import ComputeOp

Box = tuple[Lin, int]
"""Start and extent of an interval."""

Region = list[Box]
"""One box a dimension."""


def interval(simplifier: Simplifier, form: Lin, boxes: Mapping[Expr, Box]) -> Box | None:
    """Return the interval that a form covers while its variables run over their boxes; None when unknown."""
    low, extent = constant_form(form.constant), 1
    for atom, c in form.terms.items():
        box = boxes.get(atom)
        if box is None:
            box = _opaque(simplifier, atom, boxes)
            if box is None:
                return None
        start, size = box
        low = low + (start if c > 0 else start + (size - 1)).scaled(c)
        extent += abs(c) * (size - 1)
    return low, extent


def _opaque(simplifier: Simplifier, atom: Expr, boxes: Mapping[Expr, Box]) -> Box | None:
    if isinstance(atom, IterVar):
        return Lin({atom: 1}, 0), 1
    if not isinstance(atom, Binary) or not isinstance(atom.b, Const) or atom.op not in ("//", "%"):
        return None
    divisor = int(atom.b.value)
    inner = interval(simplifier, simplifier.form(atom.a), boxes)
    if inner is None or divisor < 1:
        return None
    low, extent = inner
    first = simplifier.divide("//", low, divisor)
    steps = simplifier.divide("//", low + (extent - 1), divisor) - first
    if atom.op == "//":
        size = steps.constant + 1 if steps.is_constant else (extent + divisor - 2) // divisor + 1
        return first, size
    if steps.is_constant and steps.constant == 0:
        return simplifier.divide("%", low, divisor), extent
    return constant_form(0), divisor


def union(a: Box, b: Box) -> Box | None:
    """Return the smallest interval around both; None when their starts do not compare."""
    gap = b[0] - a[0]
    if not gap.is_constant:
        return None
    low = a[0] if gap.constant >= 0 else b[0]
    return low, max(a[1], gap.constant + b[1]) - min(gap.constant, 0)


def required(
    simplifier: Simplifier,
    shape: Sequence[int],
    uses: Sequence[tuple[Read, Mapping[Expr, Box]]],
) -> Region:
    """Return the region of a tensor of ``shape`` that the given reads cover, each with the boxes of its variables."""
    region: list[Box | None] = [None] * len(shape)
    whole = [False] * len(shape)
    for read, boxes in uses:
        for d, index in enumerate(read.indices):
            box = interval(simplifier, simplifier.form(index), boxes)
            old = region[d]
            merged = box if old is None or box is None else union(old, box)
            whole[d] = whole[d] or merged is None
            region[d] = merged
    result: Region = []
    for d, size in enumerate(shape):
        box = region[d]
        if whole[d] or box is None or box[1] >= size:
            box = (constant_form(0), size)
        result.append(box)
    return result


def whole_boxes(stage: Stage, region: Region) -> dict[Expr, Box]:
    """Return the boxes of a stage's axes where all of ``region`` is computed."""
    assert isinstance(stage.op, ComputeOp)
    boxes: dict[Expr, Box] = dict(zip(stage.op.axis, region, strict=True))
    for axis in stage.op.reduce_axis:
        boxes[axis] = (constant_form(axis.start), axis.extent)
    return boxes
