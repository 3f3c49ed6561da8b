"""Operators on shapes and constants: the frontend folds them away.

Shape(x): start (default 0), end (absent: the rank) -> int64 vector. ConstantOfShape(): attributes
shape, value (default 0), dtype (default "float32"). Range(): attributes start, limit, delta
(numbers) and dtype (default "int64").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import at, float_attr, int_attr, ints_attr, stage, str_attr
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define


def _shape_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    return [TensorType((len(_dims(at(types, 0).shape, attrs)),), "int64")]


def _dims(shape: Sequence[int], attrs: Attrs) -> list[int]:
    end = int_attr(attrs, "end") if "end" in attrs else None
    return list(shape[int_attr(attrs, "start") : end])


def _shape_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [np.asarray(_dims(at(arrays, 0).shape, attrs), np.int64)]


def _fill_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    return [TensorType(ints_attr(attrs, "shape"), str_attr(attrs, "dtype"))]


def _fill_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    dtype = np.dtype(str_attr(attrs, "dtype"))
    return [np.full(ints_attr(attrs, "shape"), attrs["value"]).astype(dtype)]


def _fill_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    value = te.const(float_attr(attrs, "value"), str_attr(attrs, "dtype"))
    return [stage(ints_attr(attrs, "shape"), lambda *_: value, names[0])]


def _range_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    start, limit, delta = (float_attr(attrs, k) for k in ("start", "limit", "delta"))
    if delta == 0 or not all(map(math.isfinite, (start, limit, delta))):
        raise GraphError(
            f"Range: start, limit and delta must be finite and delta not 0, got {start}, {limit}, {delta}"
        )
    length = max(0, math.ceil((limit - start) / delta))
    return [TensorType((length,), str_attr(attrs, "dtype"))]


def _range_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    result = _range_infer((), attrs)[0]
    steps = np.arange(result.shape[0]) * float_attr(attrs, "delta")
    return [(float_attr(attrs, "start") + steps).astype(result.dtype)]


define(
    "Shape",
    "shape",
    (1, 1),
    _shape_infer,
    _shape_reference,
    attributes={"start": Attribute("int", 0), "end": Attribute("int")},
)
define(
    "ConstantOfShape",
    "shape",
    (0, 0),
    _fill_infer,
    _fill_reference,
    _fill_compute,
    {
        "shape": Attribute("ints", required=True),
        "value": Attribute("float", 0.0),
        "dtype": Attribute("str", "float32"),
    },
)
define(
    "Range",
    "shape",
    (0, 0),
    _range_infer,
    _range_reference,
    attributes={
        "start": Attribute("float", required=True),
        "limit": Attribute("float", required=True),
        "delta": Attribute("float", required=True),
        "dtype": Attribute("str", "int64"),
    },
)
