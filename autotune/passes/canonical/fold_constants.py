"""Evaluate nodes of constants, and those for which only shapes matter, with the NumPy reference of their operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.graph.ops.loop import is_evaluable
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class FoldConstants(GraphPass):
    """Replace constant subgraphs, and shapes, by their values.

    A node that would grow its operands (Expand, Tile, ConstantOfShape) is folded only while its
    result has at most ``max_growth_bytes`` more than they have.
    """

    name: ClassVar[str] = "fold_constants"
    max_growth_bytes: int = 1 << 20

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._fold)

    def _fold(self, rewriter: Rewriter, node: Node) -> bool:
        values = [v if v == ABSENT else rewriter.current(v) for v in node.inputs]
        of_shapes = ops.get(node.op).kind == "shape"
        arrays = [_stand_in(rewriter, v) if of_shapes else rewriter.constant_of(v) for v in values]
        if any(a is None and v != ABSENT for a, v in zip(arrays, values, strict=True)):
            return False
        operand_bytes = sum(a.nbytes for a in arrays if a is not None)
        result_bytes = sum(rewriter.graph.type_of(v).nbytes for v in node.present_outputs)
        if result_bytes > operand_bytes + self.max_growth_bytes or not is_evaluable(node.op, node.attrs):
            return False
        results = ops.get(node.op).reference(arrays, node.attrs)
        for output, array in zip(node.outputs, results, strict=True):
            if output != ABSENT:
                name = rewriter.constant(f"{output}.folded", np.asarray(array, order="C"))
                rewriter.replace(output, name)
        return True


def _stand_in(rewriter: Rewriter, value: str) -> Array:
    """Return zeros of a value's shape, which take no room."""
    found = rewriter.types[value]
    return np.broadcast_to(np.zeros((), found.dtype), found.shape)


__all__ = ["FoldConstants"]
