"""Values that ONNX nodes and attributes spell out: constants, shapes, attribute values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.frontends.onnx_nodes import OnnxNode
from autotune.graph.ir import Array, Attr

SPECIAL = ("Constant", "ConstantOfShape", "Range", "Shape", "Size")
"""Operators that are evaluated at import and never become nodes."""


def fold_special(node: OnnxNode) -> Array | None:
    """The value of a node that depends on types or attributes only, or None for other nodes."""
    if node.op == "Constant":
        return _constant_value(node)
    if node.op == "ConstantOfShape":
        (shape,) = _constant_inputs(node)
        fill = node.attrs.get("value", np.zeros(1, np.float32))
        return np.full(tuple(shape.tolist()), np.asarray(fill).reshape(-1)[0])
    if node.op == "Range":
        bounds = _constant_inputs(node)
        start, limit, delta = (float(array.reshape(())) for array in bounds)
        return np.arange(start, limit, delta).astype(bounds[0].dtype)
    if node.op == "Shape":
        extents = node.input_type(0).shape
        return np.array(extents[slice(node.attrs.get("start", 0), node.attrs.get("end"))], np.int64)
    if node.op == "Size":
        return np.array(node.input_type(0).size, np.int64)
    return None


def _constant_inputs(node: OnnxNode) -> list[Array]:
    arrays = []
    for value in node.inputs:
        array = node.scope.constant_of(value)
        if array is None:
            raise node.fail(
                f"input {value!r} is not a constant\n  it must be known when the model is compiled"
            )
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


def attribute_value(proto: Any, read_tensor: Callable[[Any], Array]) -> Attr | Array | None:
    """Python value of an ``AttributeProto``; None for kinds without one (graphs, strings, ...)."""
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
    if proto.type == AttributeProto.TENSOR:
        return read_tensor(proto.t)
    return None


__all__ = ["SPECIAL", "attribute_value", "fold_special"]
