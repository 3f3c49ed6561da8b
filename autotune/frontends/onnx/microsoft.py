"""Operators of domain com.microsoft: those of quantisers, by those of ONNX that they are between Q and DQ, and those of
exporters of language models (:mod:`language`, :mod:`attention`).

An operand of a quantised one is three inputs: integers, scale and zero point. QLinearAdd, QLinearMul (a, b, c's steps);
QLinearConcat (y's steps, operands); QLinearAveragePool, QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearSigmoid,
QLinearSoftmax (x, y's steps); QGemm (a, b, bias in steps of the product, y's steps or none for float32).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.errors import ModelImportError
from autotune.frontends.onnx.attention import ATTENTION
from autotune.frontends.onnx.foreign import ForeignNode
from autotune.frontends.onnx.functions import Definition
from autotune.frontends.onnx.language import LANGUAGE
from autotune.frontends.onnx.schema import Scope
from autotune.graph.ir import Array

_DOMAIN = "com.microsoft."
_OPSET = 17
_SOFTMAX = 13
"""Since then a softmax is along one axis."""
_TWO = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_ONE = {
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSigmoid": "Sigmoid",
    "QLinearSoftmax": "Softmax",
}
_RULES = {**LANGUAGE, **ATTENTION}
_NAMELESS = ("SimplifiedLayerNormalization",)
"""Operators that are written without a domain too."""
DEFINED = (*(_DOMAIN + name for name in (*_TWO, *_ONE, "QLinearConcat", "QGemm", *_RULES)), *_NAMELESS)
"""Operators that have a definition here."""


def microsoft_definition(
    proto: Any, prefix: str, scope: Scope, define: Callable[[str, Array], None]
) -> Definition:
    """Return the nodes that define a node of :data:`DEFINED`; names of values inside begin with ``prefix``.

    Raises:
        ModelImportError: the node is not as its operator is defined, or uses a part of it that is not supported.
    """
    rule = _RULES.get(proto.op_type)
    if rule is None:
        return _quantised(proto, prefix)
    return rule.define(ForeignNode(proto, prefix, scope, define))


def _quantised(proto: Any, prefix: str) -> Definition:
    """Return the nodes that define a node of a quantiser.

    Raises:
        ModelImportError: images are channels last, or a softmax is that of before opset 13.
    """
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    if attributes.pop("channels_last", 0) or attributes.pop("opset", _SOFTMAX) < _SOFTMAX:
        raise ModelImportError(
            f"node {proto.name or proto.output[0]!r} ({proto.op_type}): channels_last = 1 and opset below {_SOFTMAX} "
            "are not supported\n  quantise the model again in QDQ format"
        )
    nodes: list[Any] = []
    inputs, output, op = list(proto.input), proto.output[0], str(proto.op_type)

    def emit(op: str, operands: list[str], result: str = "", **attrs: Any) -> str:
        result = result or f"{prefix}{len(nodes)}"
        nodes.append(helper.make_node(op, operands, [result], name=result, **attrs))
        return result

    def real(first: int, axis: int = 1) -> str:
        return emit("DequantizeLinear", inputs[first : first + 3], axis=axis)

    if op == "QGemm":
        columns = 0 if attributes.get("transB", 0) else 1
        operands = [real(0), real(3, columns)]
        if inputs[6]:
            steps = emit("Mul", [inputs[1], inputs[4]])
            operands.append(emit("DequantizeLinear", [inputs[6], steps], axis=0))
        steps_of_y = [name for name in inputs[7:9] if name]
        value = emit("Gemm", operands, "" if steps_of_y else output, **attributes)
    elif op == "QLinearConcat":
        operands = [real(first) for first in range(2, len(inputs), 3)]
        value, steps_of_y = emit("Concat", operands, **attributes), inputs[:2]
    elif op in _TWO:
        value, steps_of_y = emit(_TWO[op], [real(0), real(3)]), inputs[6:8]
    else:
        value, steps_of_y = emit(_ONE[op], [real(0)], **attributes), inputs[3:5]
    if steps_of_y:
        emit("QuantizeLinear", [value, *steps_of_y], output)
    return Definition(tuple(nodes), _OPSET)


__all__ = ["DEFINED", "microsoft_definition"]
