"""Attention by its separate operators: two products with a softmax between them, each a region of its own.

The scores go through memory four times, but every region is scheduled freely: that wins where they fit the
caches anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, number
from autotune.passes.base import REORDERED_ATTENTION, Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class SeparateAttention(Algorithm):
    """Convert every Attention to MatMul, scale, mask, Softmax, MatMul."""

    name: ClassVar[str] = "separate_attention"
    label = "separate attention"
    error = REORDERED_ATTENTION

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _convert)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Attention":
        return False
    q, k, v, *masks = (rewriter.current(value) for value in node.inputs)
    (output,) = node.outputs
    rank, dtype = rewriter.type_of(q).rank, rewriter.type_of(q).dtype
    perm = (*range(rank - 2), rank - 1, rank - 2)
    keys = rewriter.emit("Transpose", [k], {"perm": perm}, name=f"{output}.keys")
    scores = rewriter.emit("MatMul", [q, keys], name=f"{output}.scores")

    def constant(name: str, value: float) -> str:
        return rewriter.constant(f"{output}.{name}", np.asarray(value, dtype))

    scale = constant("scale", number(node, "scale"))
    scores = rewriter.emit("Mul", [scores, scale], name=f"{output}.scaled")
    for mask in masks:
        if rewriter.type_of(mask).dtype == "bool":
            inputs = [mask, scores, constant("fill", number(node, "fill"))]
            scores = rewriter.emit("Where", inputs, name=f"{output}.masked")
        else:
            scores = rewriter.emit("Add", [scores, mask], name=f"{output}.masked")
    if integer(node, "causal"):
        queries, count = rewriter.type_of(scores).shape[-2:]
        kept = np.tri(queries, count, k=integer(node, "first"), dtype=np.bool_)
        inputs = [rewriter.constant(f"{output}.kept", kept), scores, constant("never", -np.inf)]
        scores = rewriter.emit("Where", inputs, name=f"{output}.causal")
    weights = rewriter.emit("Softmax", [scores], {"axis": rank - 1}, name=f"{output}.weights")
    if integer(node, "zero_empty"):
        top = rewriter.emit("ReduceMax", [scores], {"axes": (rank - 1,)}, name=f"{output}.top")
        empty = rewriter.emit("Equal", [top, constant("nothing", -np.inf)], name=f"{output}.empty")
        weights = rewriter.emit("Where", [empty, constant("zero", 0.0), weights], name=f"{output}.guarded")
    rewriter.become(output, "MatMul", [weights, v])
    return True


__all__ = ["SeparateAttention"]
