"""Intrinsics that fit: the innermost loops of a stage, declared as a pattern of their own."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

from autotune import te
from autotune.schedule import Stage
from autotune.schedule.relations import Split
from autotune.te.expr import Expr, IterVar, Read, Reduce
from autotune.te.printer import expr_text
from autotune.te.tensor import ComputeOp, Tensor
from autotune.te.traversal import children, nodes, rebuild

REDUCERS = {"sum": te.sum, "prod": te.prod, "max": te.max, "min": te.min}


class DoesNotFit(Exception):
    """The loops are no pattern over placeholders."""


def random_intrinsic(rng: random.Random, stage: Stage, loops: Sequence[IterVar]) -> te.TensorIntrin:
    """An intrinsic that computes what ``loops``, the innermost of a stage, do; raises DoesNotFit.

    Its name is made of what it computes, so that traces of other programs do not find it by accident.
    """
    pattern = _pattern(stage, loops)
    names = [iv.name for iv in (*pattern.op.axis, *pattern.op.reduce_axis)]
    kinds = {name: rng.choice(("serial", "unrolled")) for name in names}
    if pattern.op.axis and rng.random() < 0.5:
        kinds[pattern.op.axis[-1].name] = "vectorized"
    extents = [iv.extent for iv in (*pattern.op.axis, *pattern.op.reduce_axis)]
    text = f"{expr_text(pattern.op.body[0])} {extents} {kinds} {pattern.dtype}"
    return te.decl_tensor_intrin(pattern.op, kinds=kinds, name=f"pattern_{zlib.crc32(text.encode()):08x}")


def _pattern(stage: Stage, loops: Sequence[IterVar]) -> Tensor:
    op = stage.op
    if not isinstance(op, ComputeOp) or len(op.body) != 1 or op.epilogue is not None:
        raise DoesNotFit
    data = {_axis_of(stage, iv): iv.extent for iv in loops if iv.kind == "data"}
    reduce = {
        _axis_of(stage, iv): te.reduce_axis((0, iv.extent), name=f"r{number}")
        for number, iv in enumerate(loops)
        if iv.kind == "reduce"
    }
    body, reduction = op.body[0], op.reduction
    if (reduction is None) != (not reduce) or any(axis.start for axis in reduce):
        raise DoesNotFit
    if isinstance(body, Reduce) and body.reducer.name not in REDUCERS:
        raise DoesNotFit

    def value(*indices: IterVar) -> Expr:
        replaced: dict[IterVar, IterVar] = {**dict(zip(data, indices, strict=True)), **reduce}
        operands: dict[Tensor, Tensor] = {}
        inside = _replaced(body.sources[0] if isinstance(body, Reduce) else body, replaced, operands)
        if isinstance(body, Reduce):
            return REDUCERS[body.reducer.name](inside, axis=list(reduce.values()))
        return inside

    return te.compute(tuple(data.values()), value, name="pattern")


def _axis_of(stage: Stage, loop: IterVar) -> IterVar:
    """The axis of which a loop is the innermost part."""
    assert isinstance(stage.op, ComputeOp)
    if loop in stage.op.axis + stage.op.reduce_axis:
        return loop
    for relation in stage.relations:
        if isinstance(relation, Split) and relation.inner is loop:
            return _axis_of(stage, relation.parent)
    raise DoesNotFit


def _replaced(expr: Expr, axes: dict[IterVar, IterVar], operands: dict[Tensor, Tensor]) -> Expr:
    """The expression over placeholders that have the dimensions which the axes move along."""
    if isinstance(expr, Read):
        if any(isinstance(node, Read) for index in expr.indices for node in nodes(index)):
            raise DoesNotFit  # a gather
        moved = [index for index in expr.indices if any(node in axes for node in nodes(index))]
        if any(index not in axes for index in moved) or not moved:
            raise DoesNotFit
        new = [axes[index] for index in moved if isinstance(index, IterVar)]
        shape = tuple(iv.extent for iv in new)
        if expr.tensor not in operands:
            name = f"x{len(operands)}"
            operands[expr.tensor] = te.placeholder(shape, dtype=expr.tensor.dtype, name=name)
        if operands[expr.tensor].shape != shape:
            raise DoesNotFit
        return operands[expr.tensor](*new)
    if isinstance(expr, IterVar):
        raise DoesNotFit
    return rebuild(expr, tuple(_replaced(part, axes, operands) for part in children(expr)))
