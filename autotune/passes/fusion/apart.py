"""Edges between anchors as options: a region with a chain of them may be several dispatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph
from autotune.graph.region import anchors
from autotune.passes.base import Algorithm
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import Partition, PartitionOptions, partition


@dataclass(frozen=True)
class Apart(Algorithm):
    """Compute the anchors of a chain in dispatches of their own, and store what lies between.

    The chain is cut after the anchors with the numbers ``after``, counted from 1; after each without any.
    """

    name: ClassVar[str] = "apart"
    after: tuple[int, ...] = ()
    error = 0.0  # the same operations in the same order

    @property
    def label(self) -> str:
        """``apart``, or ``apart after 1`` where the others stay together."""
        return f"apart after {', '.join(map(str, self.after))}" if self.after else "apart"

    @property
    def speculative(self) -> bool:
        """Nothing is computed together before it was compared."""
        return bool(self.after)

    def apply(self, graph: Graph) -> Graph:
        edges = len(anchors(graph.nodes)) - 1
        cut = set(self.after) < set(range(1, edges + 1)) if self.after else edges > 0
        return graph.replace() if cut else graph

    def divide(self, graph: Graph) -> Partition:
        """Return the parts of the chain."""
        if not self.after:
            return partition(graph)
        chain = anchors(graph.nodes)
        stored = frozenset(chain[number].inputs[0] for number in self.after)
        return partition(graph, PartitionOptions(FusionOptions(stored=stored, chained=0)))


__all__ = ["Apart"]
