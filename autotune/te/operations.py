"""Building tensor expressions: the functions of ``te`` that a user calls. Names follow TVM 0.18's ``te``."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from autotune.te.dtypes import dtype_named
from autotune.te.expr import (
    Const,
    Expr,
    ExprLike,
    IterVar,
    Reduce,
    Var,
    as_expr,
    binary,
    select,
)
from autotune.te.reductions import StartedReduce, without_start
from autotune.te.tensor import ComputeOp, Epilogue, PlaceholderOp, Tensor
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
    ``varargs_names`` names the indices that ``fcompute`` takes as ``*indices``; ``tag`` and ``attrs`` are notes that
    stay with the operation and change nothing. Returns a Tensor, or a list of them for a tuple. Raises TypeError when
    a reduction is not at the top.
    """
    dims = _shape(shape)
    names = _axis_names(fcompute, len(dims), varargs_names or ())
    axis = tuple(IterVar(n, d, "data") for n, d in zip(names, dims, strict=True))
    result = fcompute(*axis)
    several = isinstance(result, list | tuple)
    body = tuple(as_expr(e) for e in (result if several else (result,)))
    _check_body(name, body)
    op = ComputeOp(name, axis, tuple(map(without_start, body)), _start_of(name, body))
    op.tag, op.attrs = tag, MappingProxyType(dict(attrs or {}))
    return [op.output(i) for i in range(len(body))] if several else op.output(0)


def _start_of(name: str, body: tuple[Expr, ...]) -> Epilogue | None:
    """What combines a finished reduction with the value that it was told to start from; None without one."""
    first = body[0]
    if not isinstance(first, StartedReduce):
        return None
    accumulator = Var(f"{name}.value", first.dtype)
    return Epilogue(accumulator, first.reducer.combine((first.start,), (accumulator,))[0])


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
