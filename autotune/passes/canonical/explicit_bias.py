"""Make convolutions and matrix products pure: their bias becomes an Add after them.

The product is then the anchor of a dispatch region and the bias one of its epilogue operations, so
that one rule fuses both. Gemm becomes MatMul where its right operand is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.passes.attributes import is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class ExplicitBias(GraphPass):
    """Conv(x, w, b) -> Add(Conv(x, w), b'); Gemm(a, b, c) -> Add(Mul(MatMul(a, b'), alpha), c').

    ConvTranspose is treated like Conv.
    """

    name: ClassVar[str] = "explicit_bias"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _split)


def _split(rewriter: Rewriter, node: Node) -> bool:
    position = ops.get(node.op).bias_input
    if position is not None:
        return _split_bias(rewriter, node, position)
    return node.op == "Gemm" and _split_gemm(rewriter, node)


def _split_bias(rewriter: Rewriter, node: Node, position: int) -> bool:
    if len(node.inputs) <= position or node.inputs[position] == ABSENT:
        return False
    *operands, bias = (rewriter.current(v) for v in node.inputs[: position + 1])
    (output,) = node.outputs
    product = rewriter.emit(node.op, operands, node.attrs, name=f"{output}.conv")
    if not is_channels_last(node):
        bias = _column(rewriter, bias, rewriter.type_of(product).rank - 2, output)
    rewriter.become(output, "Add", (product, bias))
    return True


def _column(rewriter: Rewriter, bias: str, spatial: int, output: str) -> str:
    """Return the bias [c] as [c, 1, 1, ...], so that it broadcasts over the spatial axes."""
    shape = (*rewriter.type_of(bias).shape, *(1,) * spatial)
    array = rewriter.constant_of(bias)
    if array is not None:
        return rewriter.constant(f"{output}.bias_column", array.reshape(shape))
    return rewriter.emit("Reshape", (bias,), {"shape": shape}, name=f"{output}.bias_column")


def _split_gemm(rewriter: Rewriter, node: Node) -> bool:
    a, b = (rewriter.current(v) for v in node.inputs[:2])
    (output,) = node.outputs
    attrs = node.attrs
    weight = rewriter.constant_of(b)
    if attrs["transA"]:
        a = rewriter.emit("Transpose", (a,), {"perm": (1, 0)}, name=f"{output}.a")
    if weight is not None:
        if attrs["transB"]:
            b = rewriter.constant(f"{b}.transposed", np.ascontiguousarray(weight.T))
        value = rewriter.emit("MatMul", (a, b), name=f"{output}.matmul")
    elif attrs["transB"]:
        value = rewriter.emit("Gemm", (a, b), {"transB": 1}, name=f"{output}.matmul")
    else:
        value = rewriter.emit("MatMul", (a, b), name=f"{output}.matmul")
    value = _scaled(rewriter, value, attrs["alpha"], f"{output}.alpha")
    if len(node.inputs) > 2 and node.inputs[2] != ABSENT and attrs["beta"] != 0:
        c = rewriter.current(node.inputs[2])
        c = _scaled(rewriter, c, attrs["beta"], f"{output}.beta")
        value = rewriter.emit("Add", (value, c), name=f"{output}.bias")
    rewriter.replace(output, value)
    return True


def _scaled(rewriter: Rewriter, value: str, factor: Attr, name: str) -> str:
    if factor == 1:
        return value
    array = rewriter.constant_of(value)
    dtype = np.dtype(rewriter.type_of(value).dtype)
    if array is not None:
        return rewriter.constant(name, (array * dtype.type(factor)).astype(dtype))
    constant = rewriter.constant(name, np.asarray(factor, dtype))
    return rewriter.emit("Mul", (value, constant), name=f"{name}.scaled")


__all__ = ["ExplicitBias"]
