"""Fusion edges as options: what is fused before an anchor may be a dispatch of its own.

A fused producer is computed again by each block of a convolution or reduction that reads it; apart, its result is
written and read once more. Which is less follows from shapes and schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph
from autotune.graph.region import anchors
from autotune.passes.base import Algorithm
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import Partition, PartitionOptions, partition


@dataclass(frozen=True)
class ProducersApart(Algorithm):
    """Store the values that operations before an anchor make for it."""

    name: ClassVar[str] = "producers_apart"
    label = "producers apart"
    speculative = True  # fusion is the rule where nothing is tuned
    promising = 1.0  # one more dispatch is measured only where it is estimated to pay
    error = 0.0  # the same operations in the same order

    def apply(self, graph: Graph) -> Graph:
        return graph.replace() if _edges(graph) else graph

    def divide(self, graph: Graph) -> Partition:
        """Return dispatches with the values at the edges between them."""
        return partition(graph, PartitionOptions(FusionOptions(stored=_edges(graph))))


def _edges(graph: Graph) -> frozenset[str]:
    """Return the values of a region that its anchors read."""
    made = {v for node in graph.nodes for v in node.present_outputs}
    return frozenset(v for anchor in anchors(graph.nodes) for v in anchor.present_inputs if v in made)


__all__ = ["ProducersApart"]
