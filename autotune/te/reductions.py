"""Reducers and what they make of values: sums, products, extremes, and reducers of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.te.dtypes import integer_limits, is_float
from autotune.te.expr import (
    Expr,
    ExprLike,
    IterVar,
    Reduce,
    Reducer,
    Select,
    as_expr,
    binary,
    cast,
    compare,
    const,
    select,
)
from autotune.te.reducer_laws import check_reducer
from autotune.te.traversal import nodes


class BoundedAxis(IterVar):
    """A reduction axis with bounds that depend on other loops: of its values those count that are ``inside``."""

    __slots__ = ("inside",)
    inside: Expr


class StartedReduce(Reduce):
    """A reduction that starts from a value in place of the neutral one; ``te.compute`` takes it apart."""

    __slots__ = ("start",)

    def __init__(self, reduction: Reduce, start: Expr) -> None:
        super().__init__(reduction.reducer, reduction.sources, reduction.axis, reduction.index)
        self.start = start


def without_start(expr: Expr) -> Expr:
    """Return the reduction from the neutral value; any other expression as it is."""
    if not isinstance(expr, StartedReduce):
        return expr
    return Reduce(expr.reducer, expr.sources, expr.axis, expr.index)


def _axes(reducer: Reducer, axis: Any) -> tuple[IterVar, ...]:
    """Return the reduction axes; raises TypeError for anything else."""
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if not axes or not all(isinstance(a, IterVar) and a.kind == "reduce" for a in axes):
        raise TypeError(f"te.{reducer.name}: axis must be te.reduce_axis(...), got {axis!r}")
    return axes


def _reduced(
    reducer: Reducer, values: tuple[Expr, ...], axis: Any, where: ExprLike | None, init: Any
) -> tuple[Expr, ...]:
    """Return the components of a reduction of the points where a condition holds."""
    axes = _axes(reducer, axis)
    neutral = reducer.identity(tuple(v.dtype for v in values))
    for condition in (where, *(a.inside for a in reversed(axes) if isinstance(a, BoundedAxis))):
        if condition is not None:
            values = tuple(select(condition, v, n) for v, n in zip(values, neutral, strict=True))
    if init is None:
        return tuple(Reduce(reducer, values, axes, i) for i in range(len(values)))
    return (_started(reducer, values, axes, init),)


def update_condition(reduction: Reduce) -> Expr | None:
    """Return the condition under which an update changes anything, as ``where`` has it; None if any does.

    >>> from autotune import te
    >>> x, rj = te.placeholder((4,), name="x"), te.reduce_axis((0, 4), name="rj")
    >>> total = te.compute((1,), lambda i: te.sum(x(rj), axis=rj, where=x(rj) > 2.0))
    >>> update_condition(total.op.body[0]).op
    '>'
    """
    neutral = reduction.reducer.identity(tuple(each.dtype for each in reduction.sources))
    found = None
    for source, value in zip(reduction.sources, neutral, strict=True):
        if not isinstance(source, Select) or str(source.b) != str(value):
            return None
        if found is not None and str(source.cond) != str(found):
            return None
        found = source.cond
    return found


def _started(reducer: Reducer, values: tuple[Expr, ...], axes: tuple[IterVar, ...], init: Any) -> Expr:
    if len(values) > 1:
        raise TypeError(
            f"te.{reducer.name}: init is for reductions of one value; combine several in a stage of their own"
        )
    start = cast(as_expr(init, values[0].dtype), values[0].dtype)
    for node in nodes(start):
        if isinstance(node, IterVar) and node.kind == "reduce":
            raise TypeError(f"te.{reducer.name}: init is set once, before the loop {node.name} that it reads")
    return StartedReduce(Reduce(reducer, values, axes, 0), start)


def _is_value(axis: Any) -> bool:
    """Return whether what stands in the place of an axis is a second value to combine."""
    if isinstance(axis, IterVar):
        return axis.kind != "reduce"
    return isinstance(axis, Expr)


def _simple(name: str, op: str, start: Callable[[str], ExprLike]) -> Reducer:
    return Reducer(
        name,
        lambda acc, new: (binary(op, acc[0], new[0]),),
        lambda dtypes: (as_expr(start(dtypes[0]), dtypes[0]),),
    )


def min_value(dtype: str) -> Expr:
    """Return the smallest value of a type; minus infinity for floating point."""
    return const(float("-inf") if is_float(dtype) else integer_limits(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """Return the largest value of a type; infinity for floating point."""
    return const(float("inf") if is_float(dtype) else integer_limits(dtype)[1], dtype)


SUM = _simple("sum", "+", lambda _: 0)
PROD = _simple("prod", "*", lambda _: 1)
MAX = _simple("max", "max", min_value)
MIN = _simple("min", "min", max_value)
MAX_NUMBER = Reducer(
    "max_number",
    lambda acc, new: (binary("max_number" if is_float(new[0].dtype) else "max", acc[0], new[0]),),
    lambda dtypes: (min_value(dtypes[0]),),
)


SHIPPED = {reducer.name: reducer for reducer in (SUM, PROD, MAX, MIN, MAX_NUMBER)}
"""Reducers of ``te`` by name."""


def shipped_name(reducer: Reducer) -> str:
    """Return the name of a reducer of ``te``; empty for one of a user's own, whatever it is called."""
    return reducer.name if SHIPPED.get(reducer.name) is reducer else ""


def sum(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Return the sum over reduction axes; 0 over an empty domain.

    ``where`` leaves out points, ``init`` is a number or an element to start from. Of two expressions it is their sum.
    """
    if _is_value(axis):
        return binary("+", expr, axis)
    return _reduced(SUM, (as_expr(expr),), axis, where, init)[0]


def prod(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Return the product over reduction axes, as in :func:`sum`; 1 over an empty domain."""
    if _is_value(axis):
        return binary("*", expr, axis)
    return _reduced(PROD, (as_expr(expr),), axis, where, init)[0]


def max(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Return the maximum over reduction axes, as in :func:`sum`; the smallest value of the type over an empty domain.

    Of two values, a number among them, it is the larger one.
    """
    if _is_value(axis) or _is_number(axis):
        return binary("max", expr, axis)
    return _reduced(MAX, (as_expr(expr),), axis, where, init)[0]


def min(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Return the minimum over reduction axes, as in :func:`sum`; the largest value of the type over an empty domain.

    Of two values, a number among them, it is the smaller one.
    """
    if _is_value(axis) or _is_number(axis):
        return binary("min", expr, axis)
    return _reduced(MIN, (as_expr(expr),), axis, where, init)[0]


def _is_number(axis: Any) -> bool:
    return isinstance(axis, int | float) and not isinstance(axis, bool)


def max_number(expr: ExprLike, axis: Any, where: ExprLike | None = None, init: Any = None) -> Expr:
    """Return the maximum over reduction axes that passes over NaN (``maximumNumber`` of IEEE 754-2019).

    The smallest value of the type over an empty domain, and where every element is NaN. It takes one vector
    instruction where ``max`` takes three; for readers that see the NaN themselves, such as a softmax.
    """
    return _reduced(MAX_NUMBER, (as_expr(expr),), axis, where, init)[0]


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Return a reducer of one's own, over single values or tuples (TVM's ``te.comm_reducer``).

    ``fcombine(accumulator, value)`` must be associative and commutative, ``fidentity(dtype, ...)`` a constant that is
    neutral for it. What it gives takes ``(expr, axis, where=None, init=None)``, or two expressions to combine. Raises
    TypeError there for a reducer that depends on loops or tensors, or whose start value changes what it meets.
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
    lawful: set[tuple[str, ...]] = set()

    def reduce(expr: Any, axis: Any, where: ExprLike | None = None, init: Any = None) -> Any:
        if _is_value(axis):
            return combine((as_expr(expr),), (axis,))[0]
        several = isinstance(expr, list | tuple)
        values = tuple(as_expr(e) for e in (expr if several else (expr,)))
        dtypes = tuple(v.dtype for v in values)
        if dtypes not in lawful:
            check_reducer(reducer, dtypes)
            lawful.add(dtypes)
        result = _reduced(reducer, values, axis, where, init)
        return result if several else result[0]

    return reduce


def _arg(name: str, op: str, start: Callable[[str], ExprLike]) -> Callable[..., Any]:
    """Return the index and value of the extreme; ties go to the smaller index whatever the order of evaluation."""

    def combine(acc: Any, new: Any) -> tuple[Expr, Expr]:
        tied = binary("and", compare("==", new[1], acc[1]), compare("<", new[0], acc[0]))
        better = binary("or", compare(op, new[1], acc[1]), tied)
        return select(better, new[0], acc[0]), select(better, new[1], acc[1])

    return comm_reducer(
        combine,
        lambda index, value: (const(integer_limits(index)[1], index), as_expr(start(value), value)),
        name,
    )


argmax = _arg("argmax", ">", min_value)
argmin = _arg("argmin", "<", max_value)

__all__ = [
    "MAX",
    "MAX_NUMBER",
    "MIN",
    "PROD",
    "SHIPPED",
    "SUM",
    "BoundedAxis",
    "StartedReduce",
    "argmax",
    "argmin",
    "comm_reducer",
    "max",
    "max_number",
    "max_value",
    "min",
    "min_value",
    "prod",
    "shipped_name",
    "sum",
    "update_condition",
    "without_start",
]
