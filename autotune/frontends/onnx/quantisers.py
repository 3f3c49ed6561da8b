"""Operators of com.microsoft that quantisers write, by those of ONNX that they are between Q and DQ.

An operand is three inputs: integers, scale and zero point. The result has a scale and a zero point, too, or is float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from autotune.frontends.onnx.foreign import ForeignNode, Rule

_SOFTMAX = 13
"""Since then a softmax is along one axis."""


def _real(node: ForeignNode, first: int, axis: int = 1) -> str:
    """Return the operand of three inputs as numbers; scales may be those of an axis."""
    return node("DequantizeLinear", *(node.input(first + n) for n in range(3)), axis=axis)


def _quantised(node: ForeignNode, value: str, scale: int) -> None:
    node("QuantizeLinear", value, node.input(scale), node.input(scale + 1), result=node.output(0))


def _two(op: str, node: ForeignNode) -> None:
    _quantised(node, node(op, _real(node, 0), _real(node, 3)), 6)


def _one(op: str, node: ForeignNode) -> None:
    attrs = {name: value for name, value in node.given.items() if name != "opset"}
    if node.given.get("opset", _SOFTMAX) < _SOFTMAX:
        raise node.fail(f"opset below {_SOFTMAX} is not supported\n  quantise the model again in QDQ format")
    _quantised(node, node(op, _real(node, 0), **attrs), 3)


def _pool(op: str, node: ForeignNode) -> None:
    attrs = {name: value for name, value in node.given.items() if name != "channels_last"}
    x, rank = _real(node, 0), node.type(0).rank
    if not node.attrs["channels_last"]:
        _quantised(node, node(op, x, **attrs), 3)
        return
    pooled = node(op, node("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)]), **attrs)
    _quantised(node, node("Transpose", pooled, perm=[0, *range(2, rank), 1]), 3)


def _reduce_mean(node: ForeignNode) -> None:
    axes = node.constant(node.attrs["axes"])
    _quantised(node, node("ReduceMean", _real(node, 0), axes, keepdims=node.attrs["keepdims"]), 3)


def _where(node: ForeignNode) -> None:
    _quantised(node, node("Where", node.input(0), _real(node, 1), _real(node, 4)), 7)


def _concat(node: ForeignNode) -> None:
    operands = [_real(node, first) for first in range(2, len(node.proto.input), 3)]
    _quantised(node, node("Concat", *operands, axis=node.attrs["axis"]), 0)


def _gemm(node: ForeignNode) -> None:
    """Compute a product with a bias in steps of the product, as float32 where no steps of the result are given."""
    operands = [_real(node, 0), _real(node, 3, 0 if node.attrs["transB"] else 1)]
    if node.input(6):
        steps = node("Mul", node.input(1), node.input(4))
        operands.append(node("DequantizeLinear", node.input(6), steps, axis=0))
    value = node("Gemm", *operands, result="" if node.input(7) else node.output(0), **node.attrs)
    if node.input(7):
        _quantised(node, value, 7)


_CHANNELS_LAST = {"channels_last": 0}
_WINDOW = {
    "kernel_shape": tuple,
    "auto_pad": "NOTSET",
    **dict.fromkeys(("pads", "strides"), ()),
    **dict.fromkeys(("ceil_mode", "count_include_pad"), 0),
}

QUANTISED: Mapping[str, Rule] = {
    "QGemm": Rule(_gemm, (0, 1, 2, 3, 4, 5), 9, {"alpha": 1.0, "transA": 0, "transB": 0}),
    "QLinearAdd": Rule(partial(_two, "Add"), (0, 1, 3, 4, 6), 8),
    "QLinearAveragePool": Rule(partial(_pool, "AveragePool"), (0, 1, 3), 5, {**_WINDOW, **_CHANNELS_LAST}),
    "QLinearConcat": Rule(_concat, (0, 1, 2, 3, 4), None, {"axis": int}),
    "QLinearGlobalAveragePool": Rule(partial(_pool, "GlobalAveragePool"), (0, 1, 3), 5, _CHANNELS_LAST),
    "QLinearLeakyRelu": Rule(partial(_one, "LeakyRelu"), (0, 1, 3), 5, {"alpha": 0.01}),
    "QLinearMul": Rule(partial(_two, "Mul"), (0, 1, 3, 4, 6), 8),
    "QLinearReduceMean": Rule(_reduce_mean, (0, 1, 3), 5, {"axes": tuple, "keepdims": int}),
    "QLinearSigmoid": Rule(partial(_one, "Sigmoid"), (0, 1, 3), 5),
    "QLinearSoftmax": Rule(partial(_one, "Softmax"), (0, 1, 3), 5, {"axis": -1, "opset": int}),
    "QLinearWhere": Rule(_where, (0, 1, 2, 4, 5, 7), 9),
}
"""The definition of each operator."""

__all__ = ["QUANTISED"]
