"""ReduceMean, ReduceSum, ReduceMax, ReduceMin, ReduceProd (x).

Attributes: axes (absent: all; empty: none), keepdims (default 1). te: one stage, reduce axis rk (or
rk0, rk1, ... if there are several); ReduceMean sums in "<out>.sum" and then divides.

ArgMax, ArgMin (x): axis (default 0), keepdims (default 1) -> int64; of equal elements the first,
and a NaN before all numbers. te: "<out>.arg" is the largest of integers that order first as the
elements do and then as their places do, last ones first (reduce rk); the output is the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    FLOATS,
    Expr,
    accumulated_in,
    at,
    complete_axis,
    int_attr,
    ints_attr,
    positive_axes,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.wide import define_in_float32
from autotune.te.dtypes import is_float


def reduce_axes(extents: Sequence[int]) -> list[te.IterVar]:
    """Reduce axes named rk, or rk0, rk1, ... if there are several."""
    if len(extents) == 1:
        return [te.reduce_axis((0, extents[0]), name="rk")]
    return [te.reduce_axis((0, d), name=f"rk{i}") for i, d in enumerate(extents)]


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    rank = at(types, 0).rank
    axes = attrs.get("axes", tuple(range(rank)))
    if not isinstance(axes, tuple):
        raise GraphError(f"axes = {axes!r} is not a tuple of ints")
    attrs["axes"] = positive_axes(axes, rank)


def _out_shape(shape: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    axes = ints_attr(attrs, "axes")
    if int_attr(attrs, "keepdims"):
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _source(index: Sequence[Expr], axes: tuple[int, ...], rks: Sequence[Expr], rank: int) -> list[Expr]:
    """Return the index at which a reduction reads x; `index` has the reduced dimensions or not."""
    kept = list(index) if len(index) < rank else [i for d, i in enumerate(index) if d not in axes]
    return [rks[axes.index(d)] if d in axes else kept.pop(0) for d in range(rank)]


def _lowest(dtype: np.dtype[Any]) -> float:
    return -math.inf if dtype.name in FLOATS else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> float:
    return math.inf if dtype.name in FLOATS else int(np.iinfo(dtype).max)


_OF_NOTHING: Mapping[str, Callable[[np.dtype[Any]], float]] = {"ReduceMax": _lowest, "ReduceMin": _highest}
"""Results where there is nothing to reduce; NumPy refuses."""


def _reduction(
    name: str, fold: Callable[..., Any], te_fold: Callable[..., Expr], mean: bool = False, **facts: Any
) -> OpDef:
    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        x = at(types, 0)
        if x.dtype == "bool" or (mean and x.dtype not in FLOATS):
            raise GraphError(f"{name} does not take {x.dtype}")
        shape = _out_shape(x.shape, attrs)
        if mean and not x.size and 0 not in shape:
            raise GraphError(f"{name} of no elements: x has shape {x.shape}")
        return [TensorType(shape, x.dtype)]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = at(arrays, 0)
        keepdims = bool(int_attr(attrs, "keepdims"))
        if not x.size and name in _OF_NOTHING:
            return [np.full(_out_shape(x.shape, attrs), _OF_NOTHING[name](x.dtype), x.dtype)]
        value = fold(x, axis=ints_attr(attrs, "axes"), keepdims=keepdims)
        return [np.asarray(value).astype(x.dtype)]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x, axes = at(tensors, 0), ints_attr(attrs, "axes")
        shape = _out_shape(x.shape, attrs)
        if not axes:
            return [stage(shape, lambda *i: x(*i), names[0])]
        rks = reduce_axes([x.shape[a] for a in axes])

        def element(*index: Expr) -> Expr:
            return te_fold(x(*_source(index, axes, rks, x.ndim)), axis=rks)

        if not mean:
            return [stage(shape, element, names[0])]
        total = stage(shape, element, f"{names[0]}.sum")
        scale = 1.0 / math.prod(x.shape[a] for a in axes)
        return [stage(shape, lambda *i: total(*i) * scale, names[0])]

    attributes = {"axes": Attribute("ints"), "keepdims": Attribute("int", 1)}
    return define_in_float32(
        name,
        "reduction",
        (1, 1),
        infer,
        reference,
        compute,
        attributes,
        _complete,
        prologue=("elementwise",),
        permutable="axes",
        **facts,
    )


_PLACES = 2**32
_WIDE = ("int64", "float64")


def _key(value: te.Expr, least: bool) -> te.Expr:
    """Return an integer that orders as the value does, NaN last; the other way round if the least is looked for."""
    if not is_float(value.dtype):
        return -1 - te.cast(value, "int64") if least else value  # unlike -value it never overflows
    value = te.cast(value, accumulated_in(value.dtype))
    return te.order_key(-value if least else value)


def _arg(name: str, fold: Callable[..., Any]) -> OpDef:
    def shape_of(shape: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
        return _out_shape(shape, {"axes": (int_attr(attrs, "axis"),), "keepdims": attrs["keepdims"]})

    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        x = at(types, 0)
        if x.dtype == "bool" or (not x.size and 0 not in shape_of(x.shape, attrs)):
            raise GraphError(f"{name} does not take {x}")
        return [TensorType(shape_of(x.shape, attrs), "int64")]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, keepdims = at(arrays, 0), bool(int_attr(attrs, "keepdims"))
        return [np.asarray(fold(x, axis=int_attr(attrs, "axis"), keepdims=keepdims), np.int64)]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x, axis = at(tensors, 0), int_attr(attrs, "axis")
        shape = shape_of(x.shape, attrs)
        rk = te.reduce_axis((0, x.shape[axis]), name="rk")

        def key(index: Sequence[Expr]) -> Expr:
            return _key(x(*_source(index, (axis,), (rk,), x.ndim)), name == "ArgMin")

        if x.dtype in _WIDE:  # index and key do not fit into one integer

            def pair(*index: Expr) -> Any:
                return te.argmax((rk, key(index)), axis=rk)

            found: list[te.Tensor] = te.compute(shape, pair, name=f"{names[0]}.arg")
            return [stage(shape, lambda *i: found[0](*i), names[0])]

        def both(*index: Expr) -> Expr:
            return te.max(te.cast(key(index), "int64") * _PLACES + (_PLACES - 1 - rk), axis=rk)

        best = stage(shape, both, f"{names[0]}.arg")
        return [stage(shape, lambda *i: _PLACES - 1 - best(*i) % _PLACES, names[0])]

    attributes = {"axis": Attribute("int", 0), "keepdims": Attribute("int", 1)}
    return define(
        name,
        "reduction",
        (1, 1),
        infer,
        reference,
        compute,
        attributes,
        complete_axis,
        prologue=("elementwise",),
    )


_arg("ArgMax", np.argmax)
_arg("ArgMin", np.argmin)
_reduction("ReduceSum", np.sum, te.sum)
_reduction("ReduceMax", np.max, te.max)
_reduction("ReduceMin", np.min, te.min)
_reduction("ReduceProd", np.prod, te.prod, positive_inputs=(0,))
_reduction("ReduceMean", np.mean, te.sum, mean=True)
