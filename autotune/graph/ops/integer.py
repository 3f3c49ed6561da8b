"""Sums of products of small integers in int32, what quantised operators are made of.

IntegerMatMul(a, b): as MatMul, a and b of int8, uint8 or int16; the result is int32 and wraps.
te: as MatMul, each element widened before it is multiplied.

IntegerConv(x, w[, fill]): as Conv without bias, likewise; what is padded counts as ``fill``, a scalar
of x's type (0 if absent, as it must be where nothing is padded), which is where a quantised 0 lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import at, ints_attr, optional
from autotune.graph.ops.contraction import matmul_flops, matmul_shape, matmul_stage
from autotune.graph.ops.convolution import (
    CONV_ATTRIBUTES,
    CONV_WEIGHTS,
    complete_conv,
    conv_array,
    geometry,
    sum_stage,
)
from autotune.graph.ops.definition import Arrays, Tensors, Types
from autotune.graph.ops.registry import define

SMALL = ("int8", "uint8", "int16")
"""Types of operands."""


def _check(name: str, types: Types) -> None:
    for t in (at(types, 0), at(types, 1)):
        if t.dtype not in SMALL:
            raise GraphError(f"{name} takes {', '.join(SMALL)}, got {t.dtype}")


def _matmul_infer(types: Types, _: Attrs) -> list[TensorType]:
    _check("IntegerMatMul", types)
    return [TensorType(matmul_shape(at(types, 0).shape, at(types, 1).shape), "int32")]


def wrapped(sums: Array) -> Array:
    """Return sums that were computed in float64, exact below 2**53, as int32 that wraps."""
    return sums.astype(np.int64).astype(np.int32)


def _matmul_reference(arrays: Arrays, _: Attrs) -> list[Array]:
    a, b = (at(arrays, i).astype(np.float64) for i in range(2))
    return [wrapped(np.asarray(np.matmul(a, b)))]


def _matmul_compute(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    return [matmul_stage(at(tensors, 0), at(tensors, 1), names[0], "int32")]


def _conv_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check("IntegerConv", types)
    fill = optional(types, 2)
    if fill is not None and fill != TensorType((), at(types, 0).dtype):
        raise GraphError(f"IntegerConv: fill must be a scalar of x's type, got {fill}")
    if fill is not None and not any(ints_attr(attrs, "pads")):
        raise GraphError("IntegerConv: there is a fill, but no padding that would have it: leave it out")
    return [TensorType(geometry(types, attrs).out_shape, "int32")]


def _conv_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, w, fill = at(arrays, 0), at(arrays, 1), optional(arrays, 2)
    around = 0 if fill is None else int(fill)
    return [wrapped(conv_array(x.astype(np.float64), w.astype(np.float64), attrs, around))]


def _conv_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, w, fill = at(tensors, 0), at(tensors, 1), optional(tensors, 2)
    geo = geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    around = te.const(0, x.dtype) if fill is None else fill()
    x = geo.window.pad_tensor(x, geo.channels_last, around, f"{names[0]}.pad")
    return [sum_stage(geo, x, w, names[0], "int32")]


def conv_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return operations of an integer convolution, a multiply-add counted as two."""
    geo = geometry(types, attrs)
    return 2 * results[0].size * geo.group_inputs * math.prod(geo.window.kernel)


define(
    "IntegerMatMul",
    "contraction",
    (2, 2),
    _matmul_infer,
    _matmul_reference,
    _matmul_compute,
    flops_rule=matmul_flops,
    in_onnx=False,
)
define(
    "IntegerConv",
    "convolution",
    (2, 3),
    _conv_infer,
    _conv_reference,
    _conv_compute,
    CONV_ATTRIBUTES,
    complete=complete_conv,
    flops_rule=conv_flops,
    weights=CONV_WEIGHTS,
    in_onnx=False,
)
