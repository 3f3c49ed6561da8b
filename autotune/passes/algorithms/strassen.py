"""Products by constant matrices with seven eighths of the multiplications (Strassen).

A MatMul becomes sums of the quarters of its left operand, a batch of seven products with sums of the quarters of the
weights, made at compile time, and sums of these products, which take in what follows. A 1x1 convolution is such a
product of the pixels of each row of an image. The sums move data: a product must be large to gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import strassen
from autotune.passes.algorithms.pixel_rows import is_one_product
from autotune.passes.attributes import ints
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite

LEAST_ROWS = 32
MANY_ROWS = 64
"""With fewer it is the place of the weights that decides, which an estimate does not know."""
LEAST_DEPTH = 192
"""Half the harmonic mean of the sums' terms and the result's columns, multiplications for each element that is moved:
with 170 (28x28 pixels, 512 to 256 channels) moving the sums took what the products gained, with 205 not."""


@dataclass(frozen=True)
class Strassen(Algorithm):
    """Convert large float32 products by constant matrices whose rows, columns and sums are even.

    They have many rows, or as ``few`` as still may gain.
    """

    name: ClassVar[str] = "strassen"
    few: bool = False
    label = "strassen"
    error = 1.2e-5
    """About four times what was measured for 256 to 9216 terms; see docs/kernels/matmul.md."""
    growth = float(strassen.GROWTH)

    @property
    def speculative(self) -> bool:
        """Few rows share what comes of the weights, which are seven quarters of the bytes."""
        return self.few

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if not _is_eligible(rewriter, node) or self.few != (_rows(rewriter, node) < MANY_ROWS):
            return False
        _emit(rewriter, node)
        return True


def _rows(rewriter: Rewriter, node: Node) -> int:
    return math.prod(rewriter.graph.type_of(node.outputs[0]).shape[:-1])


def _emit(rewriter: Rewriter, node: Node) -> None:
    x, w = (rewriter.current(v) for v in node.inputs)
    (output,) = node.outputs
    left = rewriter.emit("StrassenInput", [x], name=f"{output}.left")
    products, *rows, inner = rewriter.type_of(left).shape
    flat = rewriter.reshape(left, products, math.prod(rows), inner)
    made = rewriter.emit("MatMul", [flat, _weights(rewriter, w)], name=f"{output}.products")
    columns = rewriter.type_of(made).shape[-1]
    rewriter.become(output, "StrassenOutput", [rewriter.reshape(made, products, *rows, columns)])


def _is_eligible(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "MatMul" and not (is_one_product(rewriter, node) and _is_pointwise(node)):
        return False
    x, w = (rewriter.current(v) for v in node.inputs)
    left, right = rewriter.type_of(x), rewriter.type_of(w)
    if rewriter.constant_of(w) is None or {left.dtype, right.dtype} != {"float32"}:
        return False
    if left.rank < 2 or right.rank != (2 if node.op == "MatMul" else left.rank):
        return False
    depth, columns = right.shape[-2:]
    if any(size % 2 for size in (left.shape[-2], depth, columns)):
        return False
    return is_large(_rows(rewriter, node), depth, columns)


def is_large(rows: int, depth: int, columns: int) -> bool:
    """Return whether a product of so many rows, terms and columns may gain; then its rows are mixed."""
    return rows >= LEAST_ROWS and depth * columns >= LEAST_DEPTH * (depth + columns)


def _is_pointwise(node: Node) -> bool:
    moves = (*ints(node, "kernel_shape"), *ints(node, "strides"))
    return set(moves) == {1} and not any(ints(node, "pads"))


def _weights(rewriter: Rewriter, weights: str) -> str:
    """Return the right operands [7, k/2, n/2] of weights [..., k, n]; sums of two are rounded once in float32 too."""
    inner, outer = (size // 2 for size in rewriter.type_of(weights).shape[-2:])
    halves = rewriter.reshape(weights, 2, inner, 2, outer)
    quarters = rewriter.emit("Transpose", [halves], {"perm": (0, 2, 1, 3)}, name=f"{weights}.quarters")
    matrix = rewriter.constant("strassen.right", strassen.right_matrix())
    flat = rewriter.reshape(quarters, 4, inner * outer)
    sums = rewriter.emit("MatMul", [matrix, flat], name=f"{weights}.sums")
    return rewriter.reshape(sums, strassen.PRODUCTS, inner, outer)


__all__ = ["Strassen", "is_large"]
