"""Whether the innermost loops of a stage are what a tensor intrinsic computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.relations import Fuse
from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IterVar,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    children,
    nodes,
)
from autotune.te.printer import expr_text
from autotune.te.tensor import ComputeOp, Tensor

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage


def difference(stage: Stage, iv: IterVar) -> str:
    """How the loops of ``stage`` from ``iv`` inwards differ from the pattern declared for them; empty if not."""
    pattern = stage.tensorized[iv].op
    op = stage.op
    assert isinstance(op, ComputeOp)
    loops = stage.leaf_iter_vars[stage.leaf_iter_vars.index(iv) :]
    wanted = pattern.axis + pattern.reduce_axis
    if len(loops) != len(wanted):
        return (
            f"the pattern has {len(wanted)} loops ({_loops(wanted)}), "
            f"the stage has {len(loops)} from {iv.name} on ({_loops(loops)})"
        )
    partners = paired(stage, iv)
    for loop in loops:
        if loop not in partners or _axis_of(stage, loop) is None:
            left = [w for w in wanted if w not in partners.values()]
            return (
                f"loop {loop.name} ({loop.kind}, extent {loop.extent}) has no counterpart among the pattern's "
                f"({_loops(left or wanted)})"
            )
    axes = {_axis_of(stage, loop): axis for loop, axis in partners.items()}
    return _body_difference(op, pattern, {a: b for a, b in axes.items() if a is not None})


def paired(stage: Stage, iv: IterVar) -> dict[IterVar, IterVar]:
    """The loop of the pattern for each loop from ``iv`` on; those of one kind and extent pair in order."""
    pattern = stage.tensorized[iv].op
    free = list(pattern.axis + pattern.reduce_axis)
    result: dict[IterVar, IterVar] = {}
    for loop in stage.leaf_iter_vars[stage.leaf_iter_vars.index(iv) :]:
        match = next((w for w in free if w.extent == loop.extent and w.kind == loop.kind), None)
        if match is not None:
            free.remove(match)
            result[loop] = match
    return result


def _loops(loops: tuple[IterVar, ...] | list[IterVar]) -> str:
    return ", ".join(f"{iv.name}: {iv.kind} {iv.extent}" for iv in loops) or "none"


def _axis_of(stage: Stage, loop: IterVar) -> IterVar | None:
    """The axis that a loop is the innermost part of; None for a fused loop or one whose split leaves a rest."""
    if any(isinstance(r, Fuse) for r in stage.relations):
        made = {r.fused for r in stage.relations if isinstance(r, Fuse)}
        if loop in made:
            return None
    for relation in reversed(stage.relations):
        if isinstance(relation, Fuse):
            continue
        if loop is relation.inner:
            if relation.outer.extent * loop.extent != relation.parent.extent:
                return None
            return _axis_of(stage, relation.parent)
        if loop is relation.outer:
            return None
    return loop


def _body_difference(op: ComputeOp, pattern: ComputeOp, axes: dict[IterVar, IterVar]) -> str:
    mine, theirs = op.body[0], pattern.body[0]
    operands: dict[Tensor, Tensor] = {}

    def differ(a: Expr, b: Expr) -> str:
        if type(a) is not type(b) or a.dtype != b.dtype or _label(a) != _label(b):
            return f"the stage computes {expr_text(a)} ({a.dtype}), the pattern {expr_text(b)} ({b.dtype})"
        if isinstance(a, Read) and isinstance(b, Read):
            known = operands.setdefault(b.tensor, a.tensor)
            if known != a.tensor:
                return f"{b.tensor.name} of the pattern stands for {known.name} and for {a.tensor.name}"
            return _read_difference(a, b)
        for x, y in zip(children(a), children(b), strict=True):
            found = differ(x, y)
            if found:
                return found
        return ""

    def _read_difference(a: Read, b: Read) -> str:
        """Each loop of the pattern must move the same dimension, counted from the last one."""
        for ours, pattern_loop in axes.items():
            left = [a.tensor.ndim - d for d, i in enumerate(a.indices) if ours in nodes(i)]
            right = [b.tensor.ndim - d for d, i in enumerate(b.indices) if pattern_loop in nodes(i)]
            if left != right:
                return (
                    f"the stage reads {expr_text(a)} where the pattern reads {expr_text(b)}: "
                    f"{pattern_loop.name} moves another dimension"
                )
        return ""

    return differ(mine, theirs)


def _label(node: Expr) -> object:
    if isinstance(node, Binary | Compare):
        return node.op
    if isinstance(node, Call):
        return node.name
    if isinstance(node, Reduce):
        return node.reducer.name
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Read | Select | Not | Cast | Var):
        return ""
    return type(node)


__all__ = ["difference", "paired"]
