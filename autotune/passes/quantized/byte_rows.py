"""Rows that weights of four bits multiply become integers of three bytes, where a target has dot products of bytes.

    BlockMatMul(x, words, scale, zero) -> BlockDot(planes, factors, sums, words, scale, zero)
    with factors = BlockFactors(x), planes = BlockPlanes(x, factors), sums = PlaneSums(x, factors)

A weight then costs 1/8 of a mask and a shift and three of a byte's products, in place of a mask, a conversion and a
product. Products of one input share its planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.graph.ops.block_planes import BITS, MOST_BLOCK
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class ByteRows(GraphPass):
    """Make BlockMatMul of float32 and four bits BlockDot, if the target has the instructions (``dots``)."""

    dots: bool = False
    name: ClassVar[str] = "byte_rows"

    def apply(self, graph: Graph) -> Graph:
        if not self.dots or not any(node.op == "BlockMatMul" for node in graph.nodes):
            return graph
        return rewrite(graph, _in_bytes)


def _in_bytes(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "BlockMatMul" or integer(node, "bits") != BITS:
        return False
    x, words, scale, *zero = map(rewriter.current, node.inputs)
    block = rewriter.type_of(x).shape[1] // rewriter.type_of(scale).shape[0]
    if rewriter.type_of(x).dtype != "float32" or block > MOST_BLOCK:
        return False
    factors = rewriter.emit("BlockFactors", [x], {"block": block}, name=f"{node.outputs[0]}.factors")
    planes = rewriter.emit("BlockPlanes", [x, factors], name=f"{node.outputs[0]}.planes")
    sums = rewriter.emit("PlaneSums", [x, factors], name=f"{node.outputs[0]}.sums")
    attrs = {"zero_point": integer(node, "zero_point")}
    operands = [planes, factors, sums, words, scale, *zero]
    made = rewriter.emit("BlockDot", operands, attrs, name=f"{node.outputs[0]}.dot")
    rewriter.replace(node.outputs[0], made)
    return True


__all__ = ["ByteRows"]
