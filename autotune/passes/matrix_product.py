"""1x1 convolutions as matrix products: pixels times input channels, by input channels times output channels.

The rows of the register tile then go on across the rows of the image, and what only products have applies:
blocks of the reduction and library kernels. A strided one first picks its pixels, a copy of at most a quarter
of the input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite

_FLAT = "flat"
_EXACT = ("float32", "float64")
"""Types in which the declared error holds: results of the shorter ones are rounded by more."""


@dataclass(frozen=True)
class MatrixProduct(Algorithm):
    """Convert channels-last 1x1 convolutions without padding, and what follows them, to rows of pixels."""

    name: ClassVar[str] = "matrix_product"

    @property
    def label(self) -> str:
        """``matrix product``."""
        return "matrix product"

    @property
    def error(self) -> float:
        """The same sums in another order: several times what was measured for up to 2048 channels."""
        return 3e-6

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _convert)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    if _is_eligible(rewriter, node):
        _product(rewriter, node)
        return True
    return _follows(rewriter, node)


def _is_eligible(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Conv" or not is_channels_last(node) or integer(node, "group", 1) != 1:
        return False
    if len(node.inputs) > 2 or ABSENT in node.inputs or any(ints(node, "pads")):
        return False
    weight = rewriter.type_of(rewriter.current(node.inputs[1]))
    return set(weight.shape[:-2]) == {1} and weight.dtype in _EXACT


def _product(rewriter: Rewriter, node: Node) -> None:
    x, w = (rewriter.current(v) for v in node.inputs)
    (output,) = node.outputs
    strides = ints(node, "strides")
    if set(strides) - {1}:
        size = rewriter.type_of(x).shape[1:-1]
        axes, zeros = tuple(range(1, len(size) + 1)), (0,) * len(size)
        x = rewriter.emit(
            "Slice",
            [x],
            {"axes": axes, "starts": zeros, "ends": size, "steps": strides},
            name=f"{output}.picked",
        )
        x = rewriter.emit("Identity", [x], name=f"{output}.dense")
    inner, outer = rewriter.type_of(w).shape[-2:]
    rows = math.prod(rewriter.type_of(x).shape[:-1])
    left = _reshape(rewriter, x, rows, inner)
    right = _reshape(rewriter, w, inner, outer)
    product = rewriter.emit("MatMul", [left, right], name=f"{output}.{_FLAT}")
    rewriter.become(output, "Reshape", [product], {"shape": rewriter.graph.type_of(output).shape})


def _follows(rewriter: Rewriter, node: Node) -> bool:
    """Compute an elementwise operation on rows of pixels where an operand is such rows, reshaped."""
    if ops.get(node.op).kind != "elementwise" or len(node.outputs) != 1 or ABSENT in node.inputs:
        return False
    (output,) = node.outputs
    shape = rewriter.graph.type_of(output).shape
    operands = [rewriter.current(v) for v in node.inputs]
    if not any(_rows_of(rewriter, v) for v in operands):
        return False
    flat = []
    for value in operands:
        own = rewriter.type_of(value).shape
        if own == shape:
            rows = _rows_of(rewriter, value)
            flat.append(rows or _reshape(rewriter, value, math.prod(shape[:-1]), shape[-1]))
        elif math.prod(own[:-1]) == 1:
            flat.append(value if len(own) < 2 else _reshape(rewriter, value, own[-1]))
        else:
            return False
    result = rewriter.emit(node.op, flat, node.attrs, name=f"{output}.{_FLAT}")
    rewriter.become(output, "Reshape", [result], {"shape": shape})
    return True


def _rows_of(rewriter: Rewriter, value: str) -> str | None:
    """The rows of pixels that a value is a reshape of."""
    producer = rewriter.producer(value)
    if producer is None or producer.op != "Reshape" or rewriter.type_of(producer.inputs[0]).rank != 2:
        return None
    return producer.inputs[0]


def _reshape(rewriter: Rewriter, value: str, *shape: int) -> str:
    return rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.rows")


__all__ = ["MatrixProduct"]
