"""Products of bfloat16 operands with sums in float32, what products of that precision are made of.

ShortMatMul(a, b): as MatMul, a and b of bfloat16; the result is the float32 sums, not rounded.
te: as MatMul, each element widened before it is multiplied.

ShortConv(x, w): as Conv without bias, likewise; ShortGroupedConv(x, w): as GroupedConv.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import at
from autotune.graph.ops.contraction import matmul_flops, matmul_shape, matmul_stage
from autotune.graph.ops.convolution import (
    CONV_ATTRIBUTES,
    CONV_WEIGHTS,
    complete_conv,
    conv_array,
    conv_workload,
    geometry,
    sum_stage,
)
from autotune.graph.ops.convolution_grouped import (
    GROUPED_ATTRIBUTES,
    complete_grouped,
    grouped_array,
    grouped_flops,
    grouped_shape,
    grouped_stage,
)
from autotune.graph.ops.definition import Arrays, Tensors, Types
from autotune.graph.ops.integer import conv_flops
from autotune.graph.ops.registry import define

SHORT, SUMS = "bfloat16", "float32"
"""Types of operands, and of results."""


def _check(name: str, types: Types) -> None:
    for t in (at(types, 0), at(types, 1)):
        if t.dtype != SHORT:
            raise GraphError(f"{name} takes {SHORT}, got {t.dtype}")


def _matmul_infer(types: Types, _: Attrs) -> list[TensorType]:
    _check("ShortMatMul", types)
    return [TensorType(matmul_shape(at(types, 0).shape, at(types, 1).shape), SUMS)]


def _matmul_reference(arrays: Arrays, _: Attrs) -> list[Array]:
    a, b = (at(arrays, i).astype(SUMS) for i in range(2))
    return [np.asarray(np.matmul(a, b))]


def _matmul_compute(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    return [matmul_stage(at(tensors, 0), at(tensors, 1), names[0], SUMS)]


def _conv_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check("ShortConv", types)
    return [TensorType(geometry(types, attrs).out_shape, SUMS)]


def _conv_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [conv_array(at(arrays, 0).astype(SUMS), at(arrays, 1).astype(SUMS), attrs)]


def _conv_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, w = at(tensors, 0), at(tensors, 1)
    geo = geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    x = geo.window.pad_tensor(x, geo.channels_last, 0.0, f"{names[0]}.pad")
    return [sum_stage(geo, x, w, names[0], SUMS)]


def _grouped_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check("ShortGroupedConv", types)
    return [TensorType(grouped_shape(types, attrs), SUMS)]


def _grouped_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [grouped_array(arrays, attrs, SUMS)]


def _grouped_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    return [grouped_stage(tensors, attrs, SUMS, names[0], names[0])]


define(
    "ShortMatMul",
    "contraction",
    (2, 2),
    _matmul_infer,
    _matmul_reference,
    _matmul_compute,
    flops_rule=matmul_flops,
    prologue=("patches",),
    in_onnx=False,
    sum_length=lambda types, attrs: at(types, 0).shape[-1],
)
define(
    "ShortConv",
    "convolution",
    (2, 2),
    _conv_infer,
    _conv_reference,
    _conv_compute,
    CONV_ATTRIBUTES,
    complete=complete_conv,
    flops_rule=conv_flops,
    workload_rule=conv_workload,
    prologue=("rearrangement", "blend", "elementwise"),
    weights=CONV_WEIGHTS,
    in_onnx=False,
)
define(
    "ShortGroupedConv",
    "convolution",
    (2, 2),
    _grouped_infer,
    _grouped_reference,
    _grouped_compute,
    GROUPED_ATTRIBUTES,
    complete=complete_grouped,
    flops_rule=grouped_flops,
    prologue=("rearrangement", "blend", "elementwise"),
    in_onnx=False,
)
