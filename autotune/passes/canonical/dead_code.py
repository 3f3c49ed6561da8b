"""Drop nodes, constants and unused optional outputs that no graph output needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph
from autotune.passes.base import GraphPass


@dataclass(frozen=True)
class DeadCode(GraphPass):
    """Keep only what the outputs need; graph inputs stay even if nothing reads them."""

    name: ClassVar[str] = "dead_code"

    def apply(self, graph: Graph) -> Graph:
        pruned = graph.pruned()
        same = len(pruned.nodes) == len(graph.nodes) and len(pruned.types) == len(graph.types)
        return graph if same else pruned


__all__ = ["DeadCode"]
