"""Products of a matrix and a vector as sums along rows.

A register tile of a product has columns in its lanes. With one column a lane is all that is used of a register, and
each row of the matrix is read an element at a time. In a sum of products along each row, the terms lie in the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.passes.algorithms.pixel_rows import EXACT
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class RowSums(Algorithm):
    """Convert MatMul whose right operand has one column to Mul and ReduceSum."""

    name: ClassVar[str] = "row_sums"
    label = "row sums"
    error = 0.0  # the same sums

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _convert)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "MatMul":
        return False
    a, b = (rewriter.current(v) for v in node.inputs)
    left, right = rewriter.type_of(a), rewriter.type_of(b)
    if right.shape[-1:] != (1,) or min(left.rank, right.rank) < 2 or left.dtype not in EXACT:
        return False
    (output,) = node.outputs
    vector = rewriter.reshape(b, *right.shape[:-2], 1, right.shape[-2])
    terms = rewriter.emit("Mul", [a, vector], name=f"{output}.terms")
    axis = rewriter.type_of(terms).rank - 1
    rewriter.become(output, "ReduceSum", [terms], {"axes": (axis,), "keepdims": 1})
    return True


__all__ = ["RowSums"]
