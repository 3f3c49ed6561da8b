"""QuantizeLinear and DequantizeLinear of types and scales that the graph's operators have not, by elementwise ones.

Those take int8 and uint8 with a scale for all elements or for each index of an axis; here are 16 bits, four and two,
float8 and float4, and a scale for each block of an axis.
"""

from __future__ import annotations

import math

from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import ABSENT
from autotune.graph.ops.quantized import BLOCKED
from autotune.te.dtypes import float_limits, integer_limits
from autotune.te.narrow import NARROW_FLOATS

_PLAIN = ("int8", "uint8")
_PLAIN_READ = (*_PLAIN, "int16", "int32")


def quantize(node: OnnxNode, emit: Emitter) -> None:
    """Compute x / scale rounded to even, moved by the zero point and clipped, in the type of the zero
    point or ``to``."""
    x, output = node.input_type(0), node.outputs[0]
    zero = node.input(2)
    to = node.attrs.get("to") or ("uint8" if zero == ABSENT else node.input_type(2).dtype)
    block, saturate = node.attrs.pop("block_size", 0), node.attrs.pop("saturate", 1)
    if to in _PLAIN and not block:
        emit("QuantizeLinear", node.inputs, node.attrs, "", output)
        return
    scale = _spread(node, emit, 1, block)
    real = emit("Cast", node.inputs[:1], {"to": "float32"}, "real")
    value = emit("Div", [real, emit("Cast", [scale], {"to": "float32"}, "scale")], {}, "steps")
    if to in NARROW_FLOATS:
        if saturate:
            limit = float(float_limits(to).max)
            value = emit("Clip", [value], {"min": -limit, "max": limit}, "clipped")
    else:
        value = emit("Round", [value], {}, "rounded")
        if zero != ABSENT:
            moved = emit("Cast", [_spread(node, emit, 2, block)], {"to": "float32"}, "zero")
            value = emit("Add", [value, moved], {}, "moved")
        low, high = integer_limits(to)
        value = emit("Clip", [value], {"min": float(low), "max": float(high)}, "clipped")
    assert emit.type_of(value).shape == x.shape
    emit("Cast", [value], {"to": to}, "", output)


def dequantize(node: OnnxNode, emit: Emitter) -> None:
    """Compute (q - zero point) * scale in float32, then in the scale's type or ``to``."""
    q, zero, output = node.input_type(0), node.input(2), node.outputs[0]
    to = node.attrs.get("to") or node.input_type(1).dtype
    block = node.attrs.pop("block_size", 0)
    node.attrs.pop("saturate", None)
    if q.dtype in _PLAIN_READ and not block and to == node.input_type(1).dtype == "float32":
        emit("DequantizeLinear", node.inputs, node.attrs, "", output)
        return
    if block and q.dtype in BLOCKED and all(node.scope.constant_of(v) is not None for v in node.inputs if v):
        emit("DequantizeLinear", node.inputs, {**node.attrs, "to": to, "block_size": block}, "", output)
        return
    by_way = "float32" if q.dtype in NARROW_FLOATS else "int32"
    value = emit("Cast", node.inputs[:1], {"to": by_way}, "wide")
    if zero != ABSENT:
        moved = emit("Cast", [_spread(node, emit, 2, block)], {"to": by_way}, "zero")
        value = emit("Sub", [value, moved], {}, "centred")
    real = emit("Cast", [value], {"to": "float32"}, "real")
    scale = emit("Cast", [_spread(node, emit, 1, block)], {"to": "float32"}, "scale")
    emit("Cast", [emit("Mul", [real, scale], {}, "product")], {"to": to}, "", output)


def _spread(node: OnnxNode, emit: Emitter, index: int, block: int) -> str:
    """Return scales or zero points in a shape that broadcasts to the first input."""
    x, steps, value = node.input_type(0), node.input_type(index), node.inputs[index]
    if steps.size == 1:
        return emit("Reshape", [value], {"shape": ()}, "one")
    axis = int(node.attrs.get("axis", 1)) % x.rank
    extent = x.shape[axis]
    if not block:
        if steps.size != extent:
            raise node.fail(f"input {index} has {steps.size} elements; axis {axis} has {extent}")
        return emit(
            "Reshape", [value], {"shape": tuple(-1 if a == axis else 1 for a in range(x.rank))}, "along"
        )
    wanted = (*x.shape[:axis], math.ceil(extent / block), *x.shape[axis + 1 :])
    if steps.shape != wanted:
        raise node.fail(
            f"input {index} has shape {steps.shape}, not {wanted}: blocks of {block} on axis {axis}"
        )
    apart = (*wanted[: axis + 1], 1, *wanted[axis + 1 :])
    repeated = (*wanted[: axis + 1], block, *wanted[axis + 1 :])
    long = (*x.shape[:axis], wanted[axis] * block, *x.shape[axis + 1 :])
    whole = emit(
        "Expand", [emit("Reshape", [value], {"shape": apart}, "apart")], {"shape": repeated}, "repeated"
    )
    flat = emit("Reshape", [whole], {"shape": long}, "elements")
    return emit("Slice", [flat], {"starts": (0,), "ends": (extent,), "axes": (axis,)}, "taken")


__all__ = ["dequantize", "quantize"]
