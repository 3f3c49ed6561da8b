"""Values that ONNX nodes and attributes spell out: constants, shapes, attribute values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.frontends.onnx.budget import check_evaluated
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import Array, Attr

SPECIAL = ("Constant", "ConstantOfShape", "EyeLike", "MelWeightMatrix", "Range", "Shape", "Size")
"""Operators that are evaluated at import and never become nodes."""


def fold_special(node: OnnxNode) -> Array | None:
    """Return the value of a node that depends on types or attributes only, or None for other nodes."""
    if node.op == "Constant":
        return _constant_value(node)
    if node.op == "ConstantOfShape":
        return _constant_of_shape(node)
    if node.op == "EyeLike":
        return _eye_like(node)
    if node.op == "MelWeightMatrix":
        return _mel_weights(node)
    if node.op == "Range":
        return _range(node)
    if node.op == "Shape":
        extents = node.input_type(0).shape
        return np.array(extents[slice(node.attrs.get("start", 0), node.attrs.get("end"))], np.int64)
    if node.op == "Size":
        return np.array(node.input_type(0).size, np.int64)
    return None


def _constant_of_shape(node: OnnxNode) -> Array:
    shape = tuple(_constant_inputs(node)[0].reshape(-1).tolist())
    fill = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    if fill.size != 1:
        raise node.fail(f"attribute 'value' has {fill.size} elements; it takes one")
    if any(extent < 0 for extent in shape):
        raise node.fail(f"negative dimension in shape {shape}")
    check_evaluated(node, shape, fill.itemsize)
    return np.full(shape, fill[0])


def _eye_like(node: OnnxNode) -> Array:
    from autotune.frontends.onnx.read import element_dtype

    x, given = node.input_type(0), node.attrs.get("dtype", 0)
    if x.rank != 2:
        raise node.fail(f"it takes a matrix, got {x}")
    dtype = np.dtype(element_dtype(given, f"node {node.name!r} (EyeLike)") if given else x.dtype)
    check_evaluated(node, x.shape, dtype.itemsize)
    return np.eye(x.shape[0], x.shape[1], int(node.attrs.get("k", 0)), dtype)


def _range(node: OnnxNode) -> Array:
    """Return a range as ONNX defines it: max(ceil((limit - start) / delta), 0) elements start + i * delta."""
    bounds = _constant_inputs(node)
    if any(array.size != 1 for array in bounds):
        raise node.fail(f"start, limit and delta are scalars, got {', '.join(str(b.shape) for b in bounds)}")
    start, limit, delta = (array.reshape(()).item() for array in bounds)
    if not delta or not all(map(math.isfinite, (start, limit, delta))):
        raise node.fail(f"start {start}, limit {limit}, delta {delta}: delta is not 0, and all are finite")
    dtype = bounds[0].dtype
    count = -((start - limit) // delta) if dtype.kind in "iu" else _ceil((limit - start) / delta)
    check_evaluated(node, (count,), dtype.itemsize)
    return np.asarray(start + np.arange(max(int(count), 0)) * delta).astype(dtype)


def _mel_weights(node: OnnxNode) -> Array:
    from autotune.frontends.onnx.read import element_dtype
    from autotune.frontends.onnx.spectral import mel_weights

    bins, length, rate, low, high = (array.reshape(-1)[0].item() for array in _constant_inputs(node))
    to = np.dtype(
        element_dtype(node.attrs.get("output_datatype", 1), f"node {node.name!r} (MelWeightMatrix)")
    )
    if min(bins, length, rate) < 1 or not 0 <= low < high <= rate:
        raise node.fail(f"{bins} bins of {length} samples at {rate} a second, from {low} to {high} Hz")
    check_evaluated(node, (length // 2 + 1, bins), 8)
    return mel_weights(bins, length, rate, low, high).astype(to)


def _ceil(steps: float) -> float:
    return math.ceil(steps) if math.isfinite(steps) else steps


def _constant_inputs(node: OnnxNode) -> list[Array]:
    arrays = []
    for value in node.inputs:
        array = node.scope.known(value)
        if array is None:
            raise node.unknown(f"input {value!r}", value)
        arrays.append(array)
    return arrays


def _constant_value(node: OnnxNode) -> Array:
    dtypes = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if "value" in node.attrs:
        return np.asarray(node.attrs["value"])
    for key, dtype in dtypes.items():
        if key in node.attrs:
            return np.array(node.attrs[key], dtype)
    found = ", ".join(node.attrs) or "no value"
    raise node.fail(f"a Constant with {found} is not supported; supported: value, {', '.join(dtypes)}")


def attribute_value(proto: Any, read_tensor: Callable[[Any], Array]) -> Attr | tuple[str, ...] | Array | None:
    """Return Python value of an ``AttributeProto``; None for kinds without one (graphs, strings, ...)."""
    from onnx import AttributeProto

    if proto.type == AttributeProto.FLOAT:
        return float(proto.f)
    if proto.type == AttributeProto.INT:
        return int(proto.i)
    if proto.type == AttributeProto.STRING:
        return str(proto.s.decode("utf-8", "replace"))
    if proto.type == AttributeProto.INTS:
        return tuple(int(i) for i in proto.ints)
    if proto.type == AttributeProto.FLOATS:
        return np.array(proto.floats, np.float32)
    if proto.type == AttributeProto.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in proto.strings)
    if proto.type == AttributeProto.TENSOR:
        return read_tensor(proto.t)
    return None


__all__ = ["SPECIAL", "attribute_value", "fold_special"]
