"""New operations for the dataflow primitives: copies, caches, partial reductions, other layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.schedule.index_map import IndexMap
from autotune.schedule.relations import Relation, Split
from autotune.schedule.relayout import axes_of_loops
from autotune.te.accesses import checked
from autotune.te.expr import Compare, Expr, IterVar, Read, Reduce, Var, binary, const, select
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp, Epilogue, Operation, PlaceholderOp, Tensor
from autotune.te.traversal import substitute, transform


def renamed(op: Operation, name: str) -> Operation:
    """Return the same operation, over the same axes, under another name."""
    if isinstance(op, SequentialOp):
        return op.renamed(name)
    if isinstance(op, ComputeOp):
        return ComputeOp(name, op.axis, op.body, op.epilogue)
    return PlaceholderOp(name, op.shape, op.dtypes[0])


def renamed_axes(axes: Sequence[IterVar], suffix: str) -> tuple[IterVar, ...]:
    """Return the fresh variables over the same domains."""
    return tuple(IterVar(a.name + suffix, a.extent, a.kind, a.start) for a in axes)


def _substituted(body: Sequence[Expr], old: Sequence[IterVar], new: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return bodies over other axes; the components of a tuple reduction keep sharing their sources."""
    values: dict[Expr, Expr] = dict(zip(old, new, strict=True))
    first = body[0]
    if isinstance(first, Reduce):
        sources = tuple(substitute(s, values) for s in first.sources)
        return tuple(Reduce(first.reducer, sources, first.axis, i) for i in range(len(body)))
    return tuple(substitute(e, values) for e in body)


def copy_of(tensor: Tensor, name: str) -> ComputeOp:
    """Return the operation that copies a tensor element by element."""
    axes = tuple(IterVar(f"ax{n}", d, "data") for n, d in enumerate(tensor.shape))
    return ComputeOp(name, axes, (tensor(*axes),))


def cache_write(op: ComputeOp, name: str) -> tuple[ComputeOp, ComputeOp]:
    """Return ``(cache, copy)``: the operation under a new name, and the copy that takes its old place."""
    axes = renamed_axes(op.axis, ".c")
    epilogue = op.epilogue
    if epilogue is not None:
        values: dict[Expr, Expr] = dict(zip(op.axis, axes, strict=True))
        epilogue = Epilogue(epilogue.accumulator, substitute(epilogue.body, values))
    cache = ComputeOp(name, axes, _substituted(op.body, op.axis, axes), epilogue)
    copies = tuple(cache.output(i)(*op.axis) for i in range(len(op.body)))
    return cache, ComputeOp(op.name, op.axis, copies)


def settled(op: Operation) -> Operation:
    """Return the same operation, its indices inside of the tensors as they are now; raises LoweringError
    where one leaves."""
    if not isinstance(op, ComputeOp) or isinstance(op, SequentialOp):
        return op
    known = checked(op)
    if known.body is op.body and (op.epilogue is None or known.epilogue is op.epilogue.body):
        return op
    last = (
        None if op.epilogue is None else Epilogue(op.epilogue.accumulator, known.epilogue or op.epilogue.body)
    )
    return ComputeOp(op.name, op.axis, known.body, last)


def with_reads(
    op: ComputeOp,
    matches: Callable[[Tensor], bool],
    replacement: Callable[[tuple[Expr, ...]], Expr],
) -> ComputeOp:
    """Return the same operation (and axes) reading something else where it read a matching tensor."""

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, Read) and matches(node.tensor):
            return replacement(node.indices)
        return None

    first = op.body[0]
    if isinstance(first, Reduce):
        memo: dict[int, Expr] = {}
        sources = tuple(transform(s, replace, memo) for s in first.sources)
        body: tuple[Expr, ...] = tuple(
            Reduce(first.reducer, sources, first.axis, i) for i in range(len(op.body))
        )
    else:
        memo = {}
        body = tuple(transform(e, replace, memo) for e in op.body)
    epilogue = op.epilogue
    if epilogue is not None:
        epilogue = Epilogue(epilogue.accumulator, transform(epilogue.body, replace))
    return ComputeOp(op.name, op.axis, body, epilogue)


def with_axes(op: ComputeOp, new: dict[IterVar, IterVar], name: str) -> ComputeOp:
    """Return the same computation over other axes (same variables where none is given)."""
    values: dict[Expr, Expr] = dict(new.items())
    axes = tuple(new.get(a, a) for a in op.axis)
    first = op.body[0]
    if isinstance(first, Reduce):
        sources = tuple(substitute(s, values) for s in first.sources)
        reduce_axes = tuple(new.get(a, a) for a in first.axis)
        body: tuple[Expr, ...] = tuple(
            Reduce(first.reducer, sources, reduce_axes, i) for i in range(len(op.body))
        )
    else:
        body = tuple(substitute(e, values) for e in op.body)
    return ComputeOp(name, axes, body)


def folded(consumer: ComputeOp, producer: ComputeOp, is_producer: Callable[[Tensor], bool]) -> ComputeOp:
    """Return the producer, storing what the elementwise consumer makes of its value."""
    axes: dict[Expr, Expr] = dict(zip(consumer.axis, producer.axis, strict=True))
    body = substitute(consumer.body[0], axes)
    accumulator: Var | None = None
    if producer.reduction is None:
        value = producer.body[0]
    elif producer.epilogue is None:
        accumulator = Var(f"{producer.name}.value", producer.body[0].dtype)
        value = accumulator
    else:
        accumulator, value = producer.epilogue.accumulator, producer.epilogue.body
    body = transform(body, lambda n: value if isinstance(n, Read) and is_producer(n.tensor) else None)
    if accumulator is None:
        return ComputeOp(producer.name, producer.axis, (body,))
    return ComputeOp(producer.name, producer.axis, producer.body, Epilogue(accumulator, body))


def transformed(op: ComputeOp, mapping: IndexMap) -> ComputeOp:
    """Return the operation with its elements stored at the mapped indices, padding filled with zeros."""
    extents = mapping.new_extents(op.shape)
    axes = tuple(IterVar(f"ax{n}", e, "data") for n, e in enumerate(extents))
    old = mapping.inverse(op.shape, axes)
    body = substitute(op.body[0], dict(zip(op.axis, old, strict=True)))
    size = 1
    for e in extents:
        size *= e
    dense = 1
    for e in op.shape:
        dense *= e
    if size != dense:
        inside: Expr = const(True)
        for index, extent in zip(old, op.shape, strict=True):
            if not isinstance(index, IterVar):
                inside = binary("and", inside, Compare("<", index, const(extent)))
        body = select(inside, body, const(0, body.dtype))
    return ComputeOp(op.name, axes, (body,))


def _parent_kind(relation: Relation) -> str:
    return relation.parent.kind if isinstance(relation, Split) else relation.outer.kind


def rfactor(
    op: ComputeOp,
    relations: Sequence[Relation],
    leaves: Sequence[IterVar],
    axis: IterVar,
    factor_axis: int,
    name: str,
) -> tuple[ComputeOp, ComputeOp]:
    """Return ``(partial, final)`` operations of a reduction factored over the loop ``axis``."""
    reduction = op.reduction
    assert reduction is not None
    data = renamed_axes(op.axis, "")
    kept = {
        iv: IterVar(iv.name, iv.extent, "reduce", iv.start)
        for iv in leaves
        if iv.kind == "reduce" and iv is not axis
    }
    factored = IterVar(axis.name, axis.extent, "data")
    loops: dict[IterVar, Expr] = {axis: factored + axis.start, **kept}
    reducing = [r for r in relations if _parent_kind(r) == "reduce"]
    values, conditions = axes_of_loops(reducing, loops)
    values |= dict(zip(op.axis, data, strict=True))
    identity = reduction.reducer.identity(tuple(s.dtype for s in reduction.sources))
    sources = []
    for source, neutral in zip(reduction.sources, identity, strict=True):
        expr = substitute(source, values)
        for condition in conditions:
            expr = select(condition, expr, neutral)
        sources.append(expr)
    axes = (*data[:factor_axis], factored, *data[factor_axis:])
    reduce_axes = tuple(kept.values())
    if not reduce_axes:  # nothing is left to reduce: the partial stage is elementwise
        partial = ComputeOp(name, axes, tuple(sources))
    else:
        bodies = tuple(Reduce(reduction.reducer, tuple(sources), reduce_axes, i) for i in range(len(sources)))
        partial = ComputeOp(name, axes, bodies)
    last = IterVar(axis.name + ".v", axis.extent, "reduce")
    index = (*op.axis[:factor_axis], last, *op.axis[factor_axis:])
    reads = tuple(partial.output(i)(*index) for i in range(len(sources)))
    finals = tuple(Reduce(reduction.reducer, reads, (last,), i) for i in range(len(sources)))
    return partial, ComputeOp(op.name, op.axis, finals, op.epilogue)
