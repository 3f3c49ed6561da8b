"""Convolutions of bfloat16 numbers whose result channels are no whole tiles, as two: of whole tiles, and of the rest.

    ShortConv(x, w) of 1000 channels -> Concat(ShortConv(x, w of 992), ShortConv(x, w of 8))

A matrix unit makes blocks of columns of one size, and 1000 classes have no such blocks. Joining costs nothing
(:mod:`autotune.passes.layout.views`); what follows is applied to both parts (:mod:`autotune.passes.apply_to_parts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite

_BLOCK, _LEAST = 32, 128
"""Columns of a block of two tiles, and of a convolution of which the rest is a small part."""


@dataclass(frozen=True)
class WholeColumns(GraphPass):
    """Take the columns beyond whole tiles apart from the others."""

    name: ClassVar[str] = "whole_columns"

    def apply(self, graph: Graph) -> Graph:
        if not any(node.op == "ShortConv" for node in graph.nodes):
            return graph
        return rewrite(graph, _divided)


def _divided(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "ShortConv" or not is_channels_last(node) or integer(node, "group") != 1:
        return False
    x, w = map(rewriter.current, node.inputs)
    weights, result = rewriter.constant_of(w), rewriter.graph.types[node.outputs[0]].shape
    if (
        weights is None
        or result[-1] < _LEAST
        or result[-1] % (_BLOCK // 2) == 0
        or math.prod(result[:-1]) == 1
    ):
        return False
    parts = np.split(weights, [result[-1] // _BLOCK * _BLOCK], axis=-1)
    names = [rewriter.constant(f"{w}.columns", np.ascontiguousarray(part)) for part in parts]
    made = [
        rewriter.emit("ShortConv", [x, name], node.attrs, name=f"{node.outputs[0]}.columns") for name in names
    ]
    rewriter.become(node.outputs[0], "Concat", made, {"axis": len(result) - 1})
    return True


__all__ = ["WholeColumns"]
