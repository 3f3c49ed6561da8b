"""ONNX operators that become several here, where ONNX's own definition is less precise or overflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from autotune.frontends.onnx_nodes import OnnxNode
from autotune.graph.ir import Attr
from autotune.graph.ops.common import accumulated_in
from autotune.te.dtypes import is_float

COMPOSED = ("ReduceLogSumExp",)


class Emit(Protocol):
    """Adds a node; returns its output, named ``output`` or by the suffix."""

    def __call__(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr], suffix: str, output: str = ""
    ) -> str: ...


def compose(node: OnnxNode, emit: Emit) -> None:
    """log(sum(e^x)) as log(sum(e^(x - top))) + top with a finite top: e^x overflows at 89 in float32."""
    found, (output,) = node.input_type(0), node.outputs
    wide = accumulated_in(found.dtype) if is_float(found.dtype) else "float64"
    x = emit("Cast", node.inputs, {"to": wide}, "wide")
    axes = {key: value for key, value in node.attrs.items() if key == "axes"}
    most = float(np.finfo(wide).max)
    shifted, tops = x, []
    if found.size:  # nothing has no largest element
        top = emit("ReduceMax", [x], {**axes, "keepdims": 1}, "top")
        tops = [emit("Clip", [top], {"min": -most, "max": most}, "finite")]
        shifted = emit("Sub", [x, *tops], {}, "shifted")
    exps = emit("Exp", [shifted], {}, "exps")
    value = emit("Log", [emit("ReduceSum", [exps], {**axes, "keepdims": 1}, "sums")], {}, "log")
    if tops:
        value = emit("Add", [value, *tops], {}, "total")
    if not node.attrs.get("keepdims", 1):
        value = emit("Squeeze", [value], axes, "squeezed")
    emit("Cast", [value], {"to": found.dtype}, "", output)


__all__ = ["COMPOSED", "compose"]
