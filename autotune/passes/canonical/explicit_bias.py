"""Make convolutions and matrix products pure: their bias becomes an Add after them.

The product is then the anchor of a dispatch region and the bias one of its epilogue operations, so
that one rule fuses both. Gemm becomes MatMul where its right operand is a constant, and a convolution of one tap and
one channel a group an elementwise product, which what is before it or after it takes in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class ExplicitBias(GraphPass):
    """Conv(x, w, b) -> Add(Conv(x, w), b'), Add(Mul(x, w'), b') of one tap and one channel a group;
    Gemm(a, b, c) -> Add(Mul(MatMul(a, b'), alpha), c').

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
    bias = node.inputs[position] if len(node.inputs) > position else ABSENT
    elementwise = _is_elementwise(rewriter, node)
    if bias == ABSENT and not elementwise:
        return False
    operands, op, attrs = [rewriter.current(v) for v in node.inputs[:position]], node.op, node.attrs
    (output,) = node.outputs
    spatial = 0 if is_channels_last(node) else rewriter.type_of(operands[0]).rank - 2
    if elementwise:
        op, attrs = "Mul", {}
        operands[1] = _column(rewriter, operands[1], spatial, f"{output}.scale_column")
    if bias == ABSENT:
        rewriter.become(output, op, operands, attrs)
        return True
    product = rewriter.emit(op, operands, attrs, name=f"{output}.conv")
    column = _column(rewriter, rewriter.current(bias), spatial, f"{output}.bias_column")
    rewriter.become(output, "Add", (product, column))
    return True


def _is_elementwise(rewriter: Rewriter, node: Node) -> bool:
    """Return whether a convolution multiplies each channel by a number."""
    if node.op != "Conv":
        return False
    x, weights = (rewriter.type_of(rewriter.current(v)) for v in node.inputs[:2])
    channels = x.shape[-1 if is_channels_last(node) else 1]
    single = weights.size == channels == integer(node, "group") and weights.dtype == x.dtype
    return single and set(ints(node, "strides")) == {1} and not any(ints(node, "pads"))


def _column(rewriter: Rewriter, vector: str, spatial: int, name: str) -> str:
    """Return the numbers of channels as [c, 1, 1, ...], so that they broadcast over the spatial axes behind them."""
    shape = (rewriter.type_of(vector).size, *(1,) * spatial)
    if shape == rewriter.type_of(vector).shape:
        return vector
    array = rewriter.constant_of(vector)
    if array is not None:
        return rewriter.constant(name, array.reshape(shape))
    return rewriter.emit("Reshape", (vector,), {"shape": shape}, name=name)


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
