"""Attention by blocks of keys with a running maximum (FlashAttention: Dao et al., NeurIPS 2022).

What is kept of a block of rows no longer grows with the number of keys, for one more rescaling a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer
from autotune.passes.base import REORDERED_ATTENTION, Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class AttentionBlocks(Algorithm):
    """Take the keys of every Attention in blocks of ``block``, where there are more."""

    name: ClassVar[str] = "attention_blocks"
    block: int = 512
    error = REORDERED_ATTENTION

    @property
    def label(self) -> str:
        """``attention in blocks of 512`` and so on."""
        return f"attention in blocks of {self.block}"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != "Attention" or integer(node, "block"):
            return False
        inputs = [rewriter.current(value) for value in node.inputs]
        if rewriter.type_of(inputs[1]).shape[-2] <= self.block:
            return False
        rewriter.become(node.outputs[0], "Attention", inputs, {**node.attrs, "block": self.block})
        return True


__all__ = ["AttentionBlocks"]
