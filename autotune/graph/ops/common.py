"""Helpers of all operator families: axes, broadcasting, attribute access, te indexing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from autotune import te
from autotune.errors import GraphError, InternalError
from autotune.graph.ir import Attr, Attrs, TensorType
from autotune.graph.ops.definition import Types
from autotune.te.dtypes import HALVES

Expr: TypeAlias = Any  # a te expression or a Python number
Index: TypeAlias = Sequence[Expr]
T = TypeVar("T")

FLOATS = ("float32", "float64", "float16", "bfloat16")
STORED = ("float16", "bfloat16", "int8")
"""Types that weights of wider products may be stored in, the most exact one first."""
_WIDE = ("float32", "float64")


def at(items: Sequence[T | None], i: int) -> T:
    """Return a required input's type, array or tensor."""
    found = items[i]
    if found is None:
        raise InternalError(f"input {i} is absent")
    return found


def optional(items: Sequence[Any], i: int) -> Any:
    """Return the i-th item, or None if it is absent or the list ends before it."""
    return items[i] if i < len(items) else None


def int_attr(attrs: Attrs, key: str) -> int:
    return _typed(attrs, key, int, "an int")


def float_attr(attrs: Attrs, key: str) -> float:
    return float(_typed(attrs, key, (int, float), "a number"))


def str_attr(attrs: Attrs, key: str) -> str:
    return _typed(attrs, key, str, "a string")


def ints_attr(attrs: Attrs, key: str) -> tuple[int, ...]:
    return _typed(attrs, key, tuple, "a tuple of ints")


def _typed(attrs: Attrs, key: str, kind: type[T] | tuple[type[T], ...], what: str) -> T:
    value = attrs[key]
    if not isinstance(value, kind):
        raise GraphError(f"attribute {key} = {value!r} is not {what}")
    return value


def positive_axis(axis: int, rank: int) -> int:
    """Return the axis counted from the front. Raises GraphError if it is out of range."""
    if not -rank <= axis < rank:
        raise GraphError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def complete_axis(types: Types, attrs: dict[str, Attr]) -> None:
    """Count the attribute ``axis`` from the front of the first input."""
    attrs["axis"] = positive_axis(int_attr(attrs, "axis"), at(types, 0).rank)


def channel_axis(rank: int, attrs: Attrs) -> int:
    """Return the axis of the channels, by the attribute ``layout``."""
    return rank - 1 if attrs["layout"] == "NHWC" else 1


def positive_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes counted from the front, sorted. Raises GraphError if one comes twice."""
    found = sorted(positive_axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise GraphError(f"axes {tuple(axes)} name an axis twice")
    return tuple(found)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return NumPy's multidirectional broadcast. Raises GraphError if the shapes do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, start=rank - len(shape)):
            if d != 1 and out[i] not in (1, d):
                listed = " and ".join(str(tuple(s)) for s in shapes)
                raise GraphError(f"shapes {listed} do not broadcast")
            if d != 1:
                out[i] = d
    return tuple(out)


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return whether a shape broadcasts to the target without changing it."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(d in (1, t) for d, t in zip(shape, target[lead:], strict=True))


def require_float(what: str, types: Types) -> None:
    """Raise GraphError unless all types present are of one floating dtype."""
    dtypes = {t.dtype for t in types if t is not None}
    if len(dtypes) > 1 or not dtypes <= set(FLOATS):
        raise GraphError(f"{what} needs one floating dtype, got {', '.join(sorted(dtypes))}")


def require_same_dtype(what: str, types: Types) -> str:
    """Return the common dtype. Raises GraphError if there are several."""
    dtypes = list(dict.fromkeys(t.dtype for t in types if t is not None))
    if len(dtypes) != 1:
        raise GraphError(f"{what}: operands are {' and '.join(dtypes)}; cast them to one dtype")
    return dtypes[0]


def require_columns(what: str, attrs: Attrs, count: int) -> None:
    """Raise GraphError unless the attribute ``columns``, where there is one, has ``count`` of them in parts."""
    if "columns" not in attrs:
        return
    columns = ints_attr(attrs, "columns")
    if min(columns, default=0) < 1 or sum(columns) != count:
        raise GraphError(f"{what}: columns = {columns} are not the {count} of its second operand in parts")


def as_read(types: Types) -> Types:
    """Return the types of a product's operands as they are multiplied: weights (the second) may be
    stored in a shorter type.

    float32 weights are stored in one of :data:`STORED`, each of whose numbers is one of float32, and widened as they
    are read.
    """
    first, second = types[0], types[1]
    if first is None or second is None or second.dtype not in STORED or first.dtype not in _WIDE:
        return types
    return (first, TensorType(second.shape, first.dtype, second.strides), *types[2:])


def accumulated_in(dtype: str) -> str:
    """Return the dtype in which sums are taken: float16 and bfloat16 are for storage, their sums are float32."""
    return "float32" if dtype in HALVES else dtype


def narrowed(tensor: te.Tensor, dtype: str, name: str) -> te.Tensor:
    """Return a stage that brings sums to the dtype that they are stored in."""
    return stage(tensor.shape, lambda *i: te.cast(tensor(*i), dtype), name)


def read_broadcast(tensor: te.Tensor, index: Index) -> Expr:
    """Read a tensor that is broadcast to the index space: dimensions of extent 1 read 0."""
    lead = len(index) - len(tensor.shape)
    return tensor(*(0 if d == 1 else index[lead + i] for i, d in enumerate(tensor.shape)))


def linear(index: Index, shape: Sequence[int]) -> Expr:
    """Return the row-major position of an index; terms of extent 1 are left out."""
    position: Expr = 0
    for i, d in zip(index, shape, strict=True):
        if d != 1:
            position = i if isinstance(position, int) and position == 0 else position * d + i
    return position


def delinear(position: Expr, shape: Sequence[int]) -> list[Expr]:
    """Return the index of a row-major position; the outermost needs no %."""
    index: list[Expr] = []
    outermost = True
    for k, d in enumerate(shape):
        if d == 1:
            index.append(0)
            continue
        inner = math.prod(shape[k + 1 :])
        part = position if inner == 1 else position // inner
        index.append(part if outermost else part % d)
        outermost = False
    return index


def pad_stage(
    tensor: te.Tensor,
    before: Sequence[int],
    after: Sequence[int],
    value: Expr,
    name: str,
    element: Callable[[Expr], Expr] = lambda e: e,
) -> te.Tensor:
    """Return a stage that surrounds a tensor by a value; negative amounts crop.

    `element` is applied to what is read, not to the padding.
    """
    shape = tuple(d + b + a for d, b, a in zip(tensor.shape, before, after, strict=True))

    filler = te.const(value, tensor.dtype) if isinstance(value, (int, float)) else value

    def cell(*index: Expr) -> Expr:
        source = [i - b if b else i for i, b in zip(index, before, strict=True)]
        inside = []
        for i, d, b, a in zip(index, tensor.shape, before, after, strict=True):
            if b > 0:
                inside.append(i >= b)
            if a > 0:
                inside.append(i < d + b)
        found = element(tensor(*source))
        if not inside:
            return found
        return te.if_then_else(te.all(*inside), found, filler)

    return stage(shape, cell, name)


def named_axes(names: Sequence[str], body: Callable[..., Expr]) -> Callable[..., Expr]:
    """Return `body`, as a function whose parameters (and so te's loop variables) have these names."""

    def call(*index: Expr) -> Expr:
        return body(*index)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]  # any function may have one
    return call


def spatial_names(rank: int) -> list[str]:
    """Return names of the spatial axes, the last one "w": ["w"], ["h", "w"] or ["d", "h", "w"]."""
    return ["d", "h", "w"][-rank:] if rank <= 3 else [f"x{i}" for i in range(rank)]


def stage(shape: Sequence[int], body: Callable[..., Expr], name: str) -> te.Tensor:
    """Return `te.compute` of one tensor."""
    tensor: te.Tensor = te.compute(tuple(shape), body, name=name)
    return tensor
