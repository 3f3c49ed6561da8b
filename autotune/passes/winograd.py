"""3x3 convolutions by Winograd's algorithm where that is estimated to be faster.

Conv becomes two transforms of its input, a batched MatMul with weights transformed at compile time,
and two transforms of the result, of which the last takes in what follows. F(4, 3) needs a quarter of the
multiplications, F(2, 3) four ninths; both move more data, and their weights are larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.graph.ops import winograd
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class Winograd(GraphPass):
    """Convert channels-last 3x3 convolutions of stride 1 with constant weights.

    A convolution is converted with the tile of ``tiles`` that the estimate likes best, if it then
    takes at most ``threshold`` of the direct one. The estimate adds arithmetic and traffic, the
    latter in operations that take as long as a byte: from memory (weights) and from the caches
    (what is between the steps). Empty ``tiles`` turn the pass off.
    """

    name: ClassVar[str] = "winograd"
    tiles: tuple[int, ...] = (2, 4)
    threshold: float = 0.8
    operations_per_weight_byte: float = 14.0
    operations_per_value_byte: float = 3.0

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if not _is_eligible(rewriter, node):
            return False
        shape = _Shape.of(rewriter, node)
        costs = {tile: self._cost(shape, tile) for tile in self.tiles}
        best = min(costs, key=lambda tile: costs[tile], default=0)
        if not best or costs[best] > self.threshold * self._direct_cost(shape):
            return False
        _emit(rewriter, node, best)
        return True

    def _direct_cost(self, shape: _Shape) -> float:
        weights = 9 * shape.inner * shape.outer
        operations = 2 * weights * shape.batch * shape.rows * shape.columns
        traffic = shape.batch * shape.rows * shape.columns * (shape.inner + shape.outer)
        return max(operations, 4 * weights * self.operations_per_weight_byte) + (
            4 * traffic * self.operations_per_value_byte
        )

    def _cost(self, shape: _Shape, tile: int) -> float:
        window = tile + 2
        tiles = shape.batch * math.ceil(shape.rows / tile) * math.ceil(shape.columns / tile)
        weights = window * window * shape.inner * shape.outer
        products = max(2 * tiles * weights, 4 * weights * self.operations_per_weight_byte)
        # Elements after each transform: along rows only, then along both axes.
        rows = tiles * window * tile * (shape.inner + shape.outer)
        both = tiles * window * window * (shape.inner + shape.outer)
        transforms = 2 * window * (rows + both)
        traffic = 2 * 4 * (rows + both)
        return products + transforms + traffic * self.operations_per_value_byte


@dataclass(frozen=True)
class _Shape:
    """Sizes of a convolution; rows and columns are those of its result."""

    batch: int
    rows: int
    columns: int
    inner: int
    outer: int

    @classmethod
    def of(cls, rewriter: Rewriter, node: Node) -> _Shape:
        batch, rows, columns, outer = rewriter.graph.type_of(node.outputs[0]).shape
        return cls(batch, rows, columns, rewriter.graph.type_of(node.inputs[0]).shape[-1], outer)


def _is_eligible(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Conv" or not is_channels_last(node) or integer(node, "group", 1) != 1:
        return False
    weight = rewriter.constant_of(rewriter.current(node.inputs[1]))
    if weight is None or weight.shape[:2] != (3, 3) or weight.ndim != 4 or len(node.inputs) > 2:
        return False
    steps = ints(node, "strides") + ints(node, "dilations")
    return str(weight.dtype) == "float32" and set(steps) <= {1} and ABSENT not in node.inputs


def _emit(rewriter: Rewriter, node: Node, tile: int) -> None:
    x, w = (rewriter.current(v) for v in node.inputs)
    (output,) = node.outputs
    u = rewriter.constant(f"{w}.winograd", winograd.transformed_weights(rewriter.constants[w], tile))
    b = rewriter.constant("winograd.b", winograd.input_matrix(tile))
    a = rewriter.constant("winograd.a", winograd.output_matrix(tile))

    def step(op: str, operand: str, matrix: str, name: str, **attrs: Attr) -> str:
        return rewriter.emit(op, [operand, matrix], {"tile": tile, **attrs}, name=f"{output}.{name}")

    def reshape(value: str, *shape: int) -> str:
        return rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.reshaped")

    rows = step("WinogradInputRows", x, b, "rows", pads=ints(node, "pads") or (0, 0, 0, 0))
    v = step("WinogradInputColumns", rows, b, "columns")
    window, _, *tiles, inner = rewriter.type_of(v).shape
    flat = reshape(v, window * window, math.prod(tiles), inner)
    products = rewriter.emit("MatMul", [flat, u], name=f"{output}.products")
    outer = rewriter.type_of(products).shape[-1]
    m = reshape(products, window, window, *tiles, outer)
    s = step("WinogradOutputColumns", m, a, "columns_summed")
    batch, tile_rows, tile_columns = tiles
    s = reshape(s, window, batch, tile_rows, tile_columns * tile, outer)
    attrs: dict[str, Attr] = {"tile": tile, "size": rewriter.graph.type_of(output).shape[1:3]}
    rewriter.become(output, "WinogradOutputRows", [s, a], attrs)


__all__ = ["Winograd"]
