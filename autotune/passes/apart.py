"""Edges between anchors as options: a region with a chain of them may be a dispatch an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph import ops
from autotune.graph.ir import Graph
from autotune.passes.base import Algorithm


@dataclass(frozen=True)
class Apart(Algorithm):
    """Compute each anchor of a chain in a dispatch of its own, and store what lies between."""

    name: ClassVar[str] = "apart"

    @property
    def label(self) -> str:
        """``apart``."""
        return "apart"

    @property
    def error(self) -> float:
        """None: the same operations in the same order."""
        return 0.0

    def apply(self, graph: Graph) -> Graph:
        anchors = [node for node in graph.nodes if ops.get(node.op).role == "anchor"]
        return graph.replace() if len(anchors) > 1 else graph


__all__ = ["Apart"]
