"""Fusion: which nodes share a dispatch. Greedy and legal by construction.

An anchor (contraction, convolution, pool, reduction, softmax, normalization) takes in the elementwise
operations after it; what is left, elementwise and movement operations, is fused in chains. A group
grows from its first node by whole diamonds: operations join only together with every other reader
of the values between them, so each group has one result and no cycle can arise. This is the
immediate post-dominator rule of Relay's fusion (TVM), without its building of the dominator tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.graph import ops
from autotune.graph.ir import Graph, Node
from autotune.passes.views import ViewAnalysis

ANCHOR_KINDS = (
    "contraction",
    "convolution",
    "pool",
    "reduction",
    "softmax",
    "normalization",
)
CHAINED_MOVEMENT = ("Transpose", "ChannelShuffle", "Expand", "DepthToSpace", "SpaceToDepth")
"""Movement operations that join a chain of elementwise ones: one input, each element read once."""


@dataclass(frozen=True)
class FusionLimits:
    """Bounds that keep regions small enough to schedule."""

    max_nodes: int = 24
    max_inputs: int = 12


@dataclass(frozen=True)
class Group:
    """Nodes of one dispatch, in graph order; ``anchor`` is None for elementwise groups."""

    nodes: tuple[Node, ...]
    anchor: Node | None


def fuse(
    graph: Graph, views: ViewAnalysis, limits: FusionLimits | None = None, enabled: bool = True
) -> tuple[Group, ...]:
    """Divide all nodes that are not views into groups, in order of their last nodes.

    With ``enabled`` false every node is a group of its own.
    """
    return _Fusion(graph, views, limits or FusionLimits(), enabled).run()


class _Fusion:
    def __init__(self, graph: Graph, views: ViewAnalysis, limits: FusionLimits, enabled: bool) -> None:
        self.graph = graph
        self.views = views
        self.limits = limits
        self.enabled = enabled
        self.position = {node.outputs[0]: i for i, node in enumerate(graph.nodes)}
        self.consumers = graph.consumers()
        self.taken: set[int] = set()

    def run(self) -> tuple[Group, ...]:
        groups = []
        # Last anchors first: of two branches that meet in an Add, the later one takes it in.
        for node in reversed(self.graph.nodes):
            if ops.get(node.op).kind in ANCHOR_KINDS:
                groups.append(Group(self._grow(node, anchored=True), node))
        for index, node in enumerate(self.graph.nodes):
            if index not in self.taken and not self.views.is_view(node):
                groups.append(Group(self._grow(node, anchored=False), None))
        return tuple(sorted(groups, key=lambda g: self.position[g.nodes[-1].outputs[0]]))

    def _grow(self, seed: Node, anchored: bool) -> tuple[Node, ...]:
        members = [self.position[seed.outputs[0]]]
        extensible = anchored or _is_chainable(seed)
        while self.enabled and extensible:
            last = self.graph.nodes[members[-1]]
            added = self._closed_extension(last, len(members), anchored)
            if not added or not self._few_inputs(members + added):
                break
            members += added
        self.taken.update(members)
        return tuple(self.graph.nodes[i] for i in members)

    def _closed_extension(self, last: Node, size: int, anchored: bool) -> list[int]:
        """The fewest nodes after ``last`` that hold all readers of all values but one."""
        if len(last.present_outputs) != 1:
            return []
        (value,) = last.present_outputs
        pending, added = [value], list[int]()
        while len(added) + size < self.limits.max_nodes:
            if any(v in self.graph.outputs for v in pending):
                return []
            readers = {self.position[r.outputs[0]] for v in pending for r in self.consumers[v]}
            readers -= set(added)
            if not readers:
                return []
            index = min(readers)
            node = self.graph.nodes[index]
            if not self._may_join(node, value, anchored):
                return []
            added.append(index)
            pending = [v for v in (*pending, node.outputs[0]) if self._is_open(v, added)]
            if pending == [node.outputs[0]]:
                return added
        return []

    def _is_open(self, value: str, added: list[int]) -> bool:
        """Whether someone outside still reads the value (or nobody does: the last result)."""
        readers = {self.position[r.outputs[0]] for r in self.consumers[value]}
        return not readers or value in self.graph.outputs or not readers <= set(added)

    def _may_join(self, node: Node, value: str, anchored: bool) -> bool:
        index = self.position[node.outputs[0]]
        if index in self.taken or self.views.is_view(node) or len(node.outputs) != 1:
            return False
        kind = ops.get(node.op).kind
        shape = self.graph.type_of(value).shape
        if kind == "elementwise":
            return self.graph.type_of(node.outputs[0]).shape == shape
        return not anchored and node.op in CHAINED_MOVEMENT

    def _few_inputs(self, members: Sequence[int]) -> bool:
        nodes = [self.graph.nodes[i] for i in members]
        made = {v for node in nodes for v in node.present_outputs}
        read = {v for node in nodes for v in node.present_inputs}
        return len(read - made) <= self.limits.max_inputs


def _is_chainable(node: Node) -> bool:
    return ops.get(node.op).kind == "elementwise" or node.op in CHAINED_MOVEMENT


__all__ = ["ANCHOR_KINDS", "FusionLimits", "Group", "fuse"]
