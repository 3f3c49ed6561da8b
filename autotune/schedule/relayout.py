"""Loops as axes: the axes of a stage in terms of its loops, and the loops in terms of the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.schedule.relations import Relation, Split
from autotune.te.expr import Compare, Expr, IterVar, Reduce, const, select
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import substitute


def axes_of_loops(
    relations: Sequence[Relation], loops: Mapping[IterVar, Expr]
) -> tuple[dict[Expr, Expr], list[Expr]]:
    """Return values of all loop variables for those of the innermost ones, and conditions that a point
    lies in the domain."""
    values: dict[Expr, Expr] = dict(loops.items())
    conditions: list[Expr] = []
    for relation in reversed(relations):
        if isinstance(relation, Split):
            parent, width = relation.parent, relation.inner.extent
            value = values[relation.outer] * width + values[relation.inner]
            if relation.outer.extent * width != parent.extent:
                conditions.append(Compare("<", value, const(parent.extent)))
            values[parent] = value + parent.start
        else:
            outer, inner = relation.outer, relation.inner
            values[outer] = values[relation.fused] // inner.extent + outer.start
            values[inner] = values[relation.fused] % inner.extent + inner.start
    return values, conditions


def loops_of_axes(relations: Sequence[Relation], axes: Sequence[IterVar]) -> dict[IterVar, Expr]:
    """Return values of all loop variables for those of the data axes."""
    values: dict[IterVar, Expr] = {axis: axis for axis in axes}
    for relation in relations:
        if isinstance(relation, Split) and relation.parent in values:
            parent, width = values[relation.parent], relation.inner.extent
            values[relation.outer], values[relation.inner] = parent // width, parent % width
        elif not isinstance(relation, Split) and relation.outer in values:
            outer, inner = values[relation.outer], values[relation.inner]
            values[relation.fused] = outer * relation.inner.extent + inner
    return values


def cache_in_loop_order(
    op: ComputeOp, relations: Sequence[Relation], leaves: Sequence[IterVar], name: str
) -> tuple[ComputeOp, ComputeOp]:
    """Return ``(cache, copy)``: the operation with a dimension for each of its data loops, and the copy out of it."""
    new = {iv: IterVar(iv.name + (".c" if iv.kind == "data" else ""), iv.extent, iv.kind) for iv in leaves}
    values, conditions = axes_of_loops(relations, {old: iv + old.start for old, iv in new.items()})
    reduction = op.reduction
    if reduction is None:
        zeros = [const(0, e.dtype) for e in op.body]
        body = _guarded(op.body, zeros, values, conditions)
    else:
        neutral = reduction.reducer.identity(tuple(s.dtype for s in reduction.sources))
        sources = _guarded(reduction.sources, neutral, values, conditions)
        inner = tuple(new[iv] for iv in leaves if iv.kind == "reduce")
        body = tuple(Reduce(reduction.reducer, sources, inner, i) for i in range(len(sources)))
    data = [iv for iv in leaves if iv.kind == "data"]
    cache = ComputeOp(name, tuple(new[iv] for iv in data), body)
    places = loops_of_axes(relations, op.axis)
    copies = (cache.output(i)(*(places[iv] for iv in data)) for i in range(len(op.body)))
    return cache, ComputeOp(op.name, op.axis, tuple(copies))


def _guarded(
    exprs: Sequence[Expr], others: Sequence[Expr], values: Mapping[Expr, Expr], conditions: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Return expressions over other variables, or others where a condition does not hold."""
    found = []
    for expr, other in zip(exprs, others, strict=True):
        value = substitute(expr, dict(values))
        for condition in conditions:
            value = select(condition, value, other)
        found.append(value)
    return tuple(found)


__all__ = ["axes_of_loops", "cache_in_loop_order", "loops_of_axes"]
