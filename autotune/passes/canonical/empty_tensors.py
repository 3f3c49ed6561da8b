"""Tensors without elements are known before anything runs: they become constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class EmptyTensors(GraphPass):
    """Replace values of no elements by constants, and leave them out of concatenations.

    What reads only them (a sum over no elements, a product over an axis of length 0) is then folded like
    other constants, so nothing after this pass meets an empty loop but the copy of an empty output.
    """

    name: ClassVar[str] = "empty_tensors"

    def apply(self, graph: Graph) -> Graph:
        if all(found.size for found in graph.types.values()):
            return graph
        return rewrite(graph, _fill_in)


def _fill_in(rewriter: Rewriter, node: Node) -> bool:
    for value in node.present_inputs:
        _make_constant(rewriter, value)
    types = rewriter.graph.types
    if all(types[value].size == 0 for value in node.present_outputs):
        for value in node.present_outputs:
            _make_constant(rewriter, value)
        return True
    parts = [value for value in node.inputs if types[value].size] if node.op == "Concat" else node.inputs
    if len(parts) == len(node.inputs):
        return False
    rewriter.become(node.outputs[0], "Concat", [rewriter.current(value) for value in parts], node.attrs)
    return True


def _make_constant(rewriter: Rewriter, value: str) -> None:
    found = rewriter.graph.type_of(value)
    if found.size == 0 and rewriter.constant_of(rewriter.current(value)) is None:
        rewriter.replace(value, rewriter.constant(f"{value}.empty", np.zeros(found.shape, found.dtype)))


__all__ = ["EmptyTensors"]
