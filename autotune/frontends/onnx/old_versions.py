"""Nodes of opsets 1 to 6 in the form of later ones: attributes that there are no more, and other defaults.

An attribute that is neither translated here nor known to the operator is refused where the node is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import ModelImportError
from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.schema import schema_of
from autotune.graph import ops

OLD = 7
"""The first opset whose nodes are as they are now, or are brought there by the rules of their operators."""

BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor")
"""Operators whose second operand was aligned by attributes."""


def modernise(node: OnnxNode) -> None:
    """Edit the attributes of a node of an opset before :data:`OLD`.

    Raises:
        ModelImportError: the node is for training, or operands do not have the shapes that it says.
    """
    node.attrs.pop("consumed_inputs", None)  # which operands may be overwritten: a hint, no meaning
    _write_defaults(node)
    rule = _RULES.get(node.op)
    if rule is not None:
        rule(node)


def _write_defaults(node: OnnxNode) -> None:
    """Write the defaults of the opset, for attributes that the graph's operator has too."""
    from onnx import AttributeProto

    known = ops.get(node.op).attributes if ops.supported(node.op) else {}
    for name, attribute in schema_of(node.op, node.scope.opset).attributes.items():
        default = attribute.default_value
        if name in node.attrs or name not in known:
            continue
        values: Mapping[Any, Any] = {AttributeProto.INT: default.i, AttributeProto.FLOAT: default.f}
        if default.type in values:
            node.attrs[name] = values[default.type]


def compose_broadcast(node: OnnxNode, emit: Emitter) -> None:
    """Compose an operator of two operands, the second of which has the first's shape, or is aligned by ``axis``."""
    x, y = node.input_type(0), node.input_type(1)
    axis, allowed = node.attrs.pop("axis", None), node.attrs.pop("broadcast", 0)
    second = node.inputs[1]
    if node.op == "PRelu":
        channels = y.rank == 1 and y.size > 1 and x.rank > 1
        aligned = (y.size, *[1] * (x.rank - 2)) if channels else y.shape
    elif not allowed:
        if x.shape != y.shape:
            raise _misfit(node, f"operands of shapes {x.shape} and {y.shape} need broadcast=1")
        aligned = y.shape
    else:
        start = x.rank - y.rank if axis is None else axis % max(x.rank, 1)
        after = x.rank - start - y.rank
        if start < 0 or after < 0:
            raise _misfit(node, f"shape {y.shape} at axis {axis} does not fit {x.shape}")
        aligned = (*y.shape, *[1] * after)
    if aligned != y.shape:
        second = emit("Reshape", [second], {"shape": aligned}, "aligned")
    emit(node.op, [node.inputs[0], second], node.attrs, "", node.outputs[0])


def _misfit(node: OnnxNode, reason: str) -> ModelImportError:
    return node.fail(f"{reason} (opset {node.scope.opset})")


def _for_inference(node: OnnxNode) -> None:
    if not node.attrs.pop("is_test", 0):
        raise node.fail("is_test=0 is for training\n  export the model for inference")


def _gemm(node: OnnxNode) -> None:
    if not node.attrs.pop("broadcast", 0):
        a, b = node.input_type(0), node.input_type(1)
        rows = a.shape[1 if node.attrs.get("transA") else 0]
        columns = b.shape[0 if node.attrs.get("transB") else 1]
        if node.input_type(2).shape != (rows, columns):
            raise _misfit(node, f"c of shape {node.input_type(2).shape} needs broadcast=1")


def _cast(node: OnnxNode) -> None:
    """Convert the type's name, as before opset 6."""
    import onnx

    to = node.attrs.get("to")
    if isinstance(to, str):
        if to not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - an enum's wrapper is no mapping
            raise node.fail(f"to = {to!r} is no type")
        node.attrs["to"] = onnx.TensorProto.DataType.Value(to)


def _concat(node: OnnxNode) -> None:
    node.attrs.setdefault("axis", 1)


def _pad(node: OnnxNode) -> None:
    if "paddings" in node.attrs:
        node.attrs["pads"] = node.attrs.pop("paddings")


def _tile(node: OnnxNode) -> None:
    """Repeat along one axis, as before opset 6."""
    if len(node.inputs) != 3:
        return
    found = []
    for index, name in ((1, "tiles"), (2, "axis")):
        array = node.scope.constant_of(node.inputs[index])
        if array is None:
            raise node.unknown(f"input {name!r}", node.inputs[index])
        found.append(int(array.reshape(-1)[0]))
    rank = node.input_type(0).rank
    node.attrs["repeats"] = tuple(found[0] if a == found[1] % rank else 1 for a in range(rank))
    del node.inputs[1:]


_RULES: Mapping[str, Callable[[OnnxNode], None]] = {
    "BatchNormalization": _for_inference,
    "Cast": _cast,
    "Concat": _concat,
    "Dropout": _for_inference,
    "Gemm": _gemm,
    "Pad": _pad,
    "Tile": _tile,
}

__all__ = ["BROADCASTING", "OLD", "compose_broadcast", "modernise"]
