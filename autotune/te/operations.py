"""Building tensor expressions: the functions of ``te`` that a user calls. Names follow TVM 0.18's ``te``."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from autotune.te.dtypes import dtype_named
from autotune.te.expr import (
    Call,
    Const,
    Expr,
    ExprLike,
    IterVar,
    Read,
    Reduce,
    Var,
    as_expr,
    binary,
    compare,
    select,
)
from autotune.te.intervals import interval
from autotune.te.reductions import BoundedAxis, StartedReduce, without_start
from autotune.te.sizes import SizeVar, is_size, size_of, variables
from autotune.te.tags import tagged
from autotune.te.tensor import ComputeOp, Epilogue, PlaceholderOp, Tensor
from autotune.te.traversal import nodes

_LONGEST = 1 << 31
"""A reduction axis with more values than that has a bound of which nothing is known but its type."""


def shape_of(shape: Any) -> tuple[Any, ...]:
    """Return extents as they are given: numbers, and expressions of ``te.var``; raises TypeError for anything else."""
    dims = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    return tuple(_extent(d, dims) for d in dims)


def _extent(d: Any, dims: tuple[Any, ...]) -> Any:
    value = d.value if isinstance(d, Const) else d
    if is_size(value):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"a shape has non-negative integers, got {d!r} in {dims!r}")
    return int(value)


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """Return an input tensor; float32 when no dtype is given.

    >>> placeholder((4, 8), name="A")
    Tensor(A, shape=(4, 8), dtype=float32)
    """
    dims = shape_of(shape)
    sizes = dims if variables(dims) else None
    numbers = tuple(map(size_of, dims)) if sizes else dims
    return PlaceholderOp(name, numbers, "float32" if dtype is None else dtype_named(dtype), sizes).output(0)


def loop_over(name: str, extent: Any, start: int = 0, kind: str = "data") -> IterVar:
    """Return a loop variable over an extent, which may be an expression of ``te.var``."""
    if isinstance(extent, Expr):
        return IterVar(name, size_of(extent), kind, start, open_extent=extent)
    return IterVar(name, extent, kind, start)


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
    """Return a tensor whose element at ``(i, j, ...)`` is ``fcompute(i, j, ...)``.

    A tuple from ``fcompute`` gives a tuple of tensors. The loop variables take the names of the parameters.
    ``varargs_names`` names the indices that ``fcompute`` takes as ``*indices``; ``tag`` and ``attrs`` are notes that
    stay with the operation and change nothing. Returns a Tensor, or a list of them for a tuple. Raises TypeError when
    a reduction is not at the top.
    """
    dims = shape_of(shape)
    names = _axis_names(fcompute, len(dims), varargs_names or ())
    axis = tuple(loop_over(n, d) for n, d in zip(names, dims, strict=True))
    result = fcompute(*axis)
    several = isinstance(result, list | tuple)
    body = tuple(as_expr(e) for e in (result if several else (result,)))
    is_open = _check_body(name, body)
    op = ComputeOp(name, axis, tuple(map(without_start, body)), _start_of(name, body))
    op.is_open = is_open or builtins.any(iv.open_extent is not None for iv in (*axis, *op.reduce_axis))
    op.tag, op.attrs = tagged(name, tag), MappingProxyType(dict(attrs or {}))
    return [op.output(i) for i in range(len(body))] if several else op.output(0)


def _start_of(name: str, body: tuple[Expr, ...]) -> Epilogue | None:
    """Return the epilogue that combines a finished reduction with its initial value; None without one."""
    first = body[0]
    if not isinstance(first, StartedReduce):
        return None
    accumulator = Var(f"{name}.value", first.dtype)
    return Epilogue(accumulator, first.reducer.combine((first.start,), (accumulator,))[0])


def _check_body(name: str, body: tuple[Expr, ...]) -> bool:
    """Return whether a body has a ``te.var``; a reduction is at its top only, the same one in all components."""
    is_open = False
    for expr in body:
        for node in (n for part in _parts(expr) for n in nodes(part)):
            is_open = is_open or isinstance(node, SizeVar)
            if isinstance(node, Reduce):
                raise TypeError(
                    f"{name}: a reduction must be the whole expression of a stage; "
                    "compute it in a stage of its own and read that"
                )
    reductions = [e for e in body if isinstance(e, Reduce)]
    if reductions and (
        len(reductions) != len(body) or builtins.any(r.sources != body[0].sources for r in reductions)  # type: ignore[attr-defined]
    ):
        raise TypeError(f"{name}: all components of a tuple must come from one reduction")
    return is_open


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of a reduction and its initial values; any other expression itself."""
    if isinstance(expr, StartedReduce):
        return (*expr.sources, expr.start)
    return expr.sources if isinstance(expr, Reduce) else (expr,)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """Return a reduction axis over ``[dom[0], dom[1])``.

    A bound may depend on other loops: then the loop runs over all values that lie within the bounds for some of their
    iterations, and the others of an iteration are left out. Raises ValueError for an empty domain's negative extent,
    and for ``thread_tag``: bind loops in the schedule; TypeError for a bound that data decide.

    >>> from autotune import te
    >>> A = placeholder((4, 4), name="A")
    >>> def below(i):
    ...     k = reduce_axis((0, i + 1), name="k")
    ...     return te.sum(A[i, k], axis=k)
    >>> compute((4,), below, name="lower_triangle").op.body
    (sum(if_then_else(k < i + 1, A[i, k], 0f), axis=(k in [0, 4))),)
    """
    if thread_tag:
        raise ValueError(f"reduce_axis {name}: thread_tag={thread_tag!r} belongs in the schedule: use bind")
    low, high = (d.value if isinstance(d, Const) else d for d in dom)
    if is_size(high) and not isinstance(low, Expr):
        return loop_over(name, high - int(low), int(low), "reduce")
    if isinstance(low, Expr) or isinstance(high, Expr):
        return _bounded_axis(name, as_expr(low), as_expr(high))
    low, high = int(low), int(high)
    if high < low:
        raise ValueError(f"reduce_axis {name}: empty domain ({low}, {high})")
    return loop_over(name, high - low, low, "reduce")


def _bounded_axis(name: str, low: Expr, high: Expr) -> BoundedAxis:
    """Return a reduction axis between bounds that depend on loops."""
    boxes: dict[Expr, tuple[int, int]] = {}
    for node in (node for bound in (low, high) for node in nodes(bound)):
        if isinstance(node, IterVar) and node.open_extent is None:
            boxes[node] = node.start, node.start + builtins.max(node.extent, 1) - 1
        elif isinstance(node, Var | Read | Call):
            raise _unlimited(name, node)
    first, end = interval(low, boxes)[0], interval(high, boxes)[1]
    if end - first > _LONGEST:
        raise _unlimited(name, high)
    axis = BoundedAxis(name, builtins.max(end - first, 0), "reduce", first)
    axis.inside = compare("<", axis, high)
    if not isinstance(low, Const):
        axis.inside = binary("and", compare(">=", axis, low), axis.inside)
    return axis


def _unlimited(name: str, bound: Expr) -> TypeError:
    return TypeError(
        f"reduce_axis {name}: no limits are known of the bound {bound}; reduce over the largest domain, and say where= "
        f"of its points to take"
    )


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """Return a thread index such as ``blockIdx.x``, ``threadIdx.x`` or ``vthread`` to bind a loop to."""
    if isinstance(dom, str) and not tag:
        dom, tag = None, dom
    extent = -1 if dom is None else int(dom[1] if isinstance(dom, list | tuple) else dom)
    return IterVar(name or tag, extent, "thread", tag=tag)


def if_then_else(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """Return ``a`` where the condition holds, else ``b``; reads of the other side are not made."""
    return select(cond, a, b)


def all(*conditions: ExprLike) -> Expr:
    """Return the logical and of the conditions."""
    result = as_expr(True)
    for c in conditions:
        result = binary("and", result, c)
    return result


def any(*conditions: ExprLike) -> Expr:
    """Return the logical or of the conditions."""
    result = as_expr(False)
    for c in conditions:
        result = binary("or", result, c)
    return result


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """Return the smaller of two values."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """Return the larger of two values."""
    return binary("max", a, b)
