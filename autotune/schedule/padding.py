"""An operation over a padded domain: the rewrite behind ``pad_to_multiple``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.rewrite import with_axes, with_reads
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, IterVar, Read, Select, binary, const, select
from autotune.te.reductions import SUM
from autotune.te.tensor import ComputeOp, Tensor
from autotune.te.traversal import nodes, reads

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage


@dataclass(frozen=True)
class Padded:
    """The operation over the padded domain, and the padded copies of tensors that it reads."""

    op: ComputeOp
    copies: tuple[tuple[Tensor, ComputeOp], ...]


def padded(stage: Stage, axis: IterVar, extent: int, unique_name: Callable[[str], str]) -> Padded:
    """Return ``stage`` with ``axis`` extended to ``extent``; raises ScheduleError where that needs other values."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    more = extent - axis.extent
    shapes: dict[Tensor, list[int]] = {}
    for read in [r for e in op.body for r in reads(e)]:
        for dim, index in enumerate(read.indices):
            step = _coefficient(index, axis)
            if step is None or step < 0:
                raise stage.refuse(
                    "pad_to_multiple", f"{read!r} does not move forward with {axis.name}", axis
                )
            if step:
                shape = shapes.setdefault(read.tensor, list(read.tensor.shape))
                shape[dim] = max(shape[dim], read.tensor.shape[dim] + step * more)
    if axis.kind == "reduce":
        _check_neutral(stage, op, axis, set(shapes))
    copies = {tensor: _padded_copy(tensor, shape, unique_name) for tensor, shape in shapes.items()}
    renamed = IterVar(axis.name, extent, axis.kind, axis.start)
    name = op.name if axis.kind == "reduce" else unique_name(f"{op.name}.pad")
    new = with_axes(op, {axis: renamed}, name)
    for tensor, copy in copies.items():
        new = with_reads(new, lambda t, mine=tensor: t == mine, lambda i, mine=copy: mine.output(0)(*i))  # type: ignore[misc]
    return Padded(new, tuple(copies.items()))


def crop(op: ComputeOp, wide: ComputeOp) -> ComputeOp:
    """Return the operation that copies the part of a padded one that is asked for."""
    axes = tuple(
        IterVar(axis.name, axis.extent, axis.kind, axis.start) for axis in op.axis
    )  # the wide one has its own
    return ComputeOp(op.name, axes, tuple(wide.output(i)(*axes) for i in range(len(op.body))))


def _padded_copy(tensor: Tensor, shape: list[int], unique_name: Callable[[str], str]) -> ComputeOp:
    axes = tuple(IterVar(f"ax{n}", d, "data") for n, d in enumerate(shape))
    inside: Expr = const(True)
    for axis, size in zip(axes, tensor.shape, strict=True):
        if axis.extent != size:
            inside = binary("and", inside, Compare("<", axis, const(size)))
    value = select(inside, tensor(*axes), const(0, tensor.dtype))
    return ComputeOp(unique_name(f"{tensor.name}.pad"), axes, (value,))


def _check_neutral(stage: Stage, op: ComputeOp, axis: IterVar, padded_tensors: set[Tensor]) -> None:
    reduction = op.reduction
    assert reduction is not None
    if reduction.reducer is not SUM or not _vanishes(reduction.sources[0], axis, padded_tensors):
        raise stage.refuse(
            "pad_to_multiple",
            f"zeros behind {axis.name} would change {op.name}: only a sum of products of what is read along "
            f"{axis.name} can be padded; use split with tail='peel' or 'guard'",
            axis,
        )


def _vanishes(node: Expr, axis: IterVar, padded_tensors: set[Tensor]) -> bool:
    """Return whether an expression is zero past the end of ``axis``, where some reads are of padding."""
    if isinstance(node, Read):
        return node.tensor in padded_tensors and any(
            _coefficient(index, axis) and (_least_past(index, axis) or 0) >= size
            for index, size in zip(node.indices, node.tensor.shape, strict=True)
        )
    if isinstance(node, Const):
        return node.value == 0
    if isinstance(node, Cast):
        return _vanishes(node.a, axis, padded_tensors)
    if isinstance(node, Select):
        return _vanishes(node.a, axis, padded_tensors) and _vanishes(node.b, axis, padded_tensors)
    if isinstance(node, Binary):
        a, b = _vanishes(node.a, axis, padded_tensors), _vanishes(node.b, axis, padded_tensors)
        return (a or b) if node.op == "*" else a and b and node.op in ("+", "-", "min", "max")
    return False


def _least_past(index: Expr, axis: IterVar) -> int | None:
    """Return the smallest value of an index past the end of ``axis``; None when that is not easy to say."""
    if isinstance(index, Const):
        return int(index.value)
    if isinstance(index, IterVar):
        return axis.start + axis.extent if index is axis else index.start
    if not isinstance(index, Binary):
        return None
    a, b = _least_past(index.a, axis), _least_past(index.b, axis)
    if a is None or b is None:
        return None
    if index.op == "+":
        return a + b
    if index.op == "-" and isinstance(index.b, Const):
        return a - b
    if index.op == "*" and isinstance(index.b, Const) and b >= 0:
        return a * b
    if index.op == "*" and isinstance(index.a, Const) and a >= 0:
        return a * b
    return None


def _coefficient(index: Expr, axis: IterVar) -> int | None:
    """Return the distance that an index moves when the axis does; None when that is not constant."""
    if index is axis:
        return 1
    if all(node is not axis for node in nodes(index)):
        return 0
    if isinstance(index, Binary):
        a, b = _coefficient(index.a, axis), _coefficient(index.b, axis)
        if a is None or b is None:
            return None
        if index.op in ("+", "-"):
            return a + b if index.op == "+" else a - b
        if index.op == "*" and isinstance(index.b, Const):
            return a * int(index.b.value)
        if index.op == "*" and isinstance(index.a, Const):
            return b * int(index.a.value)
    return None


__all__ = ["Padded", "crop", "padded"]
