"""Long sums with few results in parts that are computed side by side (split-K).

The independent work of a product or a sum is its results. Where these are fewer than the sums that a core adds up at a
time, each addition waits for the one before, and where they are one tile, workers have nothing to share. Parts of the
sum are independent as well: they become the batch of a batched product, which register tiles span and workers share,
and another dispatch adds them up, with what follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph, Node
from autotune.passes.algorithms.pixel_rows import EXACT
from autotune.passes.algorithms.sums_of_blocks import (
    SUMS,
    Blocking,
    finish_sum,
    product_of_blocks,
    stand_for,
    summed_axes,
)
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite

MOST_RESULTS = 64
"""More results are independent work enough: 8x16 of 8192 terms took as long in parts, with two workers too."""
LEAST_TERMS = 512
"""With fewer, a second dispatch takes what the parts gain."""
_MOST_PARTS = 16


@dataclass(frozen=True)
class SplitSums(Algorithm):
    """Convert MatMul, and sums that keep the last axis, of many terms and few results into about ``parts`` parts."""

    name: ClassVar[str] = "split_sums"
    label = "split-K"
    parts: int = 8
    error = 0.0  # sums of fewer terms each

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != "MatMul" and node.op not in SUMS:
            return False
        if math.prod(rewriter.graph.type_of(node.outputs[0]).shape) > MOST_RESULTS:
            return False
        if rewriter.type_of(rewriter.current(node.inputs[0])).dtype not in EXACT:
            return False
        return (self._product if node.op == "MatMul" else self._sum)(rewriter, node)

    def _product(self, rewriter: Rewriter, node: Node) -> bool:
        a, b = (rewriter.current(v) for v in node.inputs)
        left, right = rewriter.type_of(a), rewriter.type_of(b)
        blocks = self._blocks(left.shape[-1])
        if blocks is None or min(left.rank, right.rank) < 2:
            return False
        (output,) = node.outputs
        stand_for(rewriter, output, product_of_blocks(rewriter, a, b, blocks, output))
        return True

    def _sum(self, rewriter: Rewriter, node: Node) -> bool:
        x = rewriter.current(node.inputs[0])
        shape, axes = rewriter.type_of(x).shape, summed_axes(rewriter.graph, node)
        if not axes or axes[-1] == len(shape) - 1 or axes != tuple(range(axes[0], axes[-1] + 1)):
            return False  # rows are cut by a knob of theirs
        length = math.prod(shape[axis] for axis in axes)
        blocks = self._blocks(length)
        if blocks is None:
            return False
        finish_sum(rewriter, node, _total(rewriter, node, x, axes, blocks), length)
        return True

    def _blocks(self, length: int) -> Blocking | None:
        """Return the equal parts, as near to the wanted number as divides the length."""
        if length < LEAST_TERMS:
            return None
        counts = sorted(range(2, _MOST_PARTS + 1), key=lambda count: abs(count - self.parts))
        return next((Blocking(count, length // count) for count in counts if length % count == 0), None)


def _total(rewriter: Rewriter, node: Node, x: str, axes: Sequence[int], blocks: Blocking) -> str:
    """Return the sum along neighbouring axes; what follows it reads it as it is, and stays in its dispatch."""
    (output,) = node.outputs
    shape, result = rewriter.type_of(x).shape, rewriter.graph.type_of(output).shape
    first, keep = axes[0], len(result) == len(shape)
    pieces = rewriter.reshape(x, *shape[:first], blocks.count, blocks.length, *shape[axes[-1] + 1 :])
    sums = rewriter.emit("ReduceSum", [pieces], {"axes": (first + 1,), "keepdims": 0}, name=f"{output}.sums")
    placed = rewriter.reshape(sums, *result[:first], blocks.count, *result[first + keep :])
    attrs: dict[str, Attr] = {"axes": (first,), "keepdims": int(keep)}
    return rewriter.emit("ReduceSum", [placed], attrs, name=f"{output}.total")


__all__ = ["LEAST_TERMS", "MOST_RESULTS", "SplitSums"]
