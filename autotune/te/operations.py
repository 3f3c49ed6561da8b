"""Building tensor expressions: the functions of ``te`` that a user calls. Names follow TVM 0.18's ``te``."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from autotune.te.dtypes import dtype_named, integer_limits, is_float
from autotune.te.expr import (
    Const,
    Expr,
    ExprLike,
    IterVar,
    Reduce,
    Reducer,
    as_expr,
    binary,
    compare,
    const,
    select,
)
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from autotune.te.traversal import nodes


def _shape(shape: Any) -> tuple[int, ...]:
    dims = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    result = []
    for d in dims:
        value = d.value if isinstance(d, Const) else d
        if hasattr(value, "item"):
            value = value.item()
        if not isinstance(value, int) or value < 0:
            raise TypeError(f"a shape has non-negative integers, got {d!r} in {dims!r}")
        result.append(value)
    return tuple(result)


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor; float32 when no dtype is given.

    >>> placeholder((4, 8), name="A")
    Tensor(A, shape=(4, 8), dtype=float32)
    """
    return PlaceholderOp(name, _shape(shape), "float32" if dtype is None else dtype_named(dtype)).output(0)


def _axis_names(fcompute: Callable[..., Any], rank: int, more: Sequence[str] = ()) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    # A default binds a value of a loop around: ``lambda i, t=t: t[i] + 1``.
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.default is p.empty]
    variadic = builtins.any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(names) > rank or (len(names) < rank and not variadic):
        raise TypeError(f"fcompute takes {len(names)} indices for a tensor of {rank} dimensions")
    names += list(more)[: rank - len(names)]
    return names + [f"i{n}" for n in range(len(names), rank)]


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """A tensor whose element at ``(i, j, ...)`` is ``fcompute(i, j, ...)``.

    A tuple from ``fcompute`` gives a tuple of tensors. The loop variables take the names of the parameters.
    ``varargs_names`` names the indices that ``fcompute`` takes as ``*indices``; ``tag`` and ``attrs`` are accepted
    for TVM's sake and have no effect. Returns a Tensor, or a list of them for a tuple. Raises TypeError when a
    reduction is not at the top.
    """
    dims = _shape(shape)
    names = _axis_names(fcompute, len(dims), varargs_names or ())
    axis = tuple(IterVar(n, d, "data") for n, d in zip(names, dims, strict=True))
    result = fcompute(*axis)
    several = isinstance(result, list | tuple)
    body = tuple(as_expr(e) for e in (result if several else (result,)))
    _check_body(name, body)
    op = ComputeOp(name, axis, body)
    return [op.output(i) for i in range(len(body))] if several else op.output(0)


def _check_body(name: str, body: tuple[Expr, ...]) -> None:
    """A reduction is allowed at the top of a body only, the same one in all components."""
    for expr in body:
        parts = expr.sources if isinstance(expr, Reduce) else (expr,)
        if builtins.any(isinstance(node, Reduce) for part in parts for node in nodes(part)):
            raise TypeError(
                f"{name}: a reduction must be the whole expression of a stage; "
                "compute it in a stage of its own and read that"
            )
    reductions = [e for e in body if isinstance(e, Reduce)]
    if reductions and (
        len(reductions) != len(body) or builtins.any(r.sources != body[0].sources for r in reductions)  # type: ignore[attr-defined]
    ):
        raise TypeError(f"{name}: all components of a tuple must come from one reduction")


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """A reduction axis over ``[dom[0], dom[1])``.

    Raises ValueError for an empty domain's negative extent, and for ``thread_tag``: bind loops in the schedule.
    """
    if thread_tag:
        raise ValueError(f"reduce_axis {name}: thread_tag={thread_tag!r} belongs in the schedule: use bind")
    low, high = (d.value if isinstance(d, Const) else int(d) for d in dom)
    if high < low:
        raise ValueError(f"reduce_axis {name}: empty domain ({low}, {high})")
    return IterVar(name, int(high - low), "reduce", start=int(low))


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """A thread index such as ``blockIdx.x``, ``threadIdx.x`` or ``vthread`` to bind a loop to."""
    if isinstance(dom, str) and not tag:
        dom, tag = None, dom
    extent = -1 if dom is None else int(dom[1] if isinstance(dom, list | tuple) else dom)
    return IterVar(name or tag, extent, "thread", tag=tag)


def _reduce(reducer: Reducer, values: tuple[Expr, ...], axis: Any) -> tuple[Expr, ...]:
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if not axes or not builtins.all(isinstance(a, IterVar) and a.kind == "reduce" for a in axes):
        two = f"; of two values, use te.{reducer.name}imum" if reducer.name in ("max", "min") else ""
        raise TypeError(f"te.{reducer.name}: axis must be te.reduce_axis(...), got {axis!r}{two}")
    return tuple(Reduce(reducer, values, axes, i) for i in range(len(values)))


def _filtered(reducer: Reducer, expr: ExprLike, axis: Any, where: ExprLike | None, init: Any) -> Expr:
    """A reduction of the points where a condition holds; TVM's ``init`` has no place here."""
    if init is not None:
        raise TypeError(
            f"te.{reducer.name}: init is not supported; combine with the start in a stage of its own"
        )
    value = as_expr(expr)
    if where is not None:
        value = select(where, value, reducer.identity((value.dtype,))[0])
    return _reduce(reducer, (value,), axis)[0]


def _simple(name: str, op: str, start: Callable[[str], ExprLike]) -> Reducer:
    return Reducer(
        name,
        lambda acc, new: (binary(op, acc[0], new[0]),),
        lambda dtypes: (as_expr(start(dtypes[0]), dtypes[0]),),
    )


SUM = _simple("sum", "+", lambda _: 0)
PROD = _simple("prod", "*", lambda _: 1)
MAX = _simple("max", "max", lambda dtype: min_value(dtype))
MIN = _simple("min", "min", lambda dtype: max_value(dtype))
MAX_NUMBER = Reducer(
    "max_number",
    lambda acc, new: (binary("max_number" if is_float(new[0].dtype) else "max", acc[0], new[0]),),
    lambda dtypes: (min_value(dtypes[0]),),
)


def sum(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Sum over reduction axes; 0 over an empty domain."""
    return _filtered(SUM, expr, axis, where, init)


def prod(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Product over reduction axes; 1 over an empty domain."""
    return _filtered(PROD, expr, axis, where, init)


def max(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Maximum over reduction axes; the smallest value of the type over an empty domain."""
    return _filtered(MAX, expr, axis, where, init)


def max_number(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Maximum over reduction axes that passes over NaN (``maximumNumber`` of IEEE 754-2019).

    The smallest value of the type over an empty domain, and where every element is NaN. It takes one vector
    instruction where ``max`` takes three; for readers that see the NaN themselves, such as a softmax.
    """
    return _filtered(MAX_NUMBER, expr, axis, where, init)


def min(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Minimum over reduction axes; the largest value of the type over an empty domain."""
    return _filtered(MIN, expr, axis, where, init)


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer of one's own, over single values or tuples (TVM's ``te.comm_reducer``).

    ``fcombine(accumulator, value)`` must be associative and commutative; ``fidentity(dtype, ...)`` is neutral.
    """

    def combine(acc: tuple[Expr, ...], new: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if len(acc) == 1:
            return (as_expr(fcombine(acc[0], new[0])),)
        return tuple(as_expr(e) for e in fcombine(acc, new))

    def identity(dtypes: tuple[str, ...]) -> tuple[Expr, ...]:
        value = fidentity(*dtypes)
        values = value if isinstance(value, list | tuple) else (value,)
        return tuple(as_expr(v, d) for v, d in zip(values, dtypes, strict=True))

    reducer = Reducer(name, combine, identity)

    def reduce(expr: Any, axis: Any) -> Any:
        several = isinstance(expr, list | tuple)
        values = tuple(as_expr(e) for e in (expr if several else (expr,)))
        result = _reduce(reducer, values, axis)
        return result if several else result[0]

    return reduce


def _arg(name: str, op: str, start: Callable[[str], ExprLike]) -> Callable[..., Any]:
    """Index and value of the extreme; ties go to the smaller index whatever the order of evaluation."""

    def combine(acc: Any, new: Any) -> tuple[Expr, Expr]:
        better = any(
            compare(op, new[1], acc[1]),
            all(compare("==", new[1], acc[1]), compare("<", new[0], acc[0])),
        )
        return select(better, new[0], acc[0]), select(better, new[1], acc[1])

    return comm_reducer(
        combine,
        lambda index, value: (const(integer_limits(index)[1], index), as_expr(start(value), value)),
        name,
    )


argmax = _arg("argmax", ">", lambda dtype: min_value(dtype))
argmin = _arg("argmin", "<", lambda dtype: max_value(dtype))


def min_value(dtype: str) -> Expr:
    """Smallest value of a type; minus infinity for floating point."""
    return const(float("-inf") if is_float(dtype) else integer_limits(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """Largest value of a type; infinity for floating point."""
    return const(float("inf") if is_float(dtype) else integer_limits(dtype)[1], dtype)


def if_then_else(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """``a`` where the condition holds, else ``b``; reads of the other side are not made."""
    return select(cond, a, b)


def all(*conditions: ExprLike) -> Expr:
    """Logical and of the conditions."""
    result = as_expr(True)
    for c in conditions:
        result = binary("and", result, c)
    return result


def any(*conditions: ExprLike) -> Expr:
    """Logical or of the conditions."""
    result = as_expr(False)
    for c in conditions:
        result = binary("or", result, c)
    return result


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller of two values."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two values."""
    return binary("max", a, b)
