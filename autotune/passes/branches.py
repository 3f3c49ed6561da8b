"""Branches as dispatches that run when they are chosen.

Each branch is divided by itself, as the body of a loop is. Its dispatches carry the condition that they run under; both
branches write their results into the same memory, and what lives within one lies where the memory plan puts it. Of a
refused branch there is no dispatch: those of the other run in any case, and a check says when it should have been the
refused one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotune.graph.ir import ABSENT, Graph, Node, fresh_name
from autotune.graph.ops.branch import BranchParts
from autotune.passes.expanded import Divide, Expanded, instance
from autotune.passes.graphs_inside import bound_branches
from autotune.passes.layout.views import Placement, is_dense
from autotune.passes.partition import Condition, Dispatch, Partition


def expand_branches(into: Expanded, dispatch: Dispatch, node: Node, divide: Divide) -> None:
    """Append the dispatches of both branches of a node, each under its condition."""
    refusal = BranchParts.of(node.attrs).refusal
    prefix = fresh_name(f"{node.present_outputs[0]}.if", into.types)
    for wanted, graph, outer in bound_branches(node, into.constants(node)):
        begin = len(into.dispatches)
        body = divide(graph.replace(outputs=tuple(dict.fromkeys(graph.outputs))))
        _Branch(into, f"{prefix}.{'then' if wanted else 'else'}", dispatch, body).append(node, graph, outer)
        under = Condition(node.inputs[0], wanted, refusal)
        into.dispatches[begin:] = [_under(under, each) for each in into.dispatches[begin:]]


def _under(condition: Condition, dispatch: Dispatch) -> Dispatch:
    """Return a dispatch that runs under one more condition; what is not chosen is not repeated."""
    conditions, repeats = (condition, *dispatch.conditions), dispatch.repeats
    if not condition.refusal:
        repeats = tuple(replace(each, conditions=(condition, *each.conditions)) for each in repeats)
    return replace(dispatch, conditions=conditions, repeats=repeats)


@dataclass
class _Branch:
    """The dispatches of one branch, put among those of the graph around."""

    into: Expanded
    prefix: str
    dispatch: Dispatch
    body: Partition
    roots: dict[str, Placement] = field(default_factory=dict)
    """Memory of the branch's own roots, and of what it captures."""
    names: dict[str, str] = field(default_factory=dict)
    """Of values of the branch: their names around it."""

    def append(self, node: Node, graph: Graph, outer: Mapping[str, str]) -> None:
        """Append all dispatches, and copies of results that are wanted in more than one place."""
        into, body = self.into, self.body
        copies = self._place_results(node, graph)
        for inner, value in outer.items():
            if inner in body.inputs or inner in body.constants:
                self.names[inner] = into.captured(value, self.dispatch)
                self.roots[inner] = into.placements[self.names[inner]]
        into.in_place += body.in_place
        for each in body.dispatches:
            into.dispatches.append(instance(each, self._named, self.prefix, self.dispatch.origins))
        for number, (value, target) in enumerate(copies):
            name = f"{self.prefix}.copy{number}"
            into.define(name, body.types[value].dense, target)
            into.copy(self._named(value), name, self.dispatch.origins)

    def _place_results(self, node: Node, graph: Graph) -> list[tuple[str, Placement]]:
        """Let results lie where those of the node do; returns what is to be copied there instead."""
        names = dict(zip(dict.fromkeys(graph.outputs), self.body.outputs, strict=True))
        copies = list[tuple[str, Placement]]()
        for result, output in zip(graph.outputs, node.outputs, strict=True):
            if output == ABSENT:
                continue
            value, target = names[result], self.into.placements[output]
            root = self.body.placements[value].root
            if root in self.roots or not is_dense(self.body.types[value].shape, target.strides):
                copies.append((value, target))
            else:
                self.roots[root] = target
        return copies

    def _named(self, value: str) -> str:
        """Return the name around the branch of one of its values; it is placed there."""
        if value not in self.names:
            self.names[value] = self._instance(value)
        return self.names[value]

    def _instance(self, value: str) -> str:
        own, name = self.body.placements[value], f"{self.prefix}.{value}"
        if own.root not in self.roots:
            self._define_root(own.root)
        outer = self.roots[own.root]
        if self.names.get(own.root) == name:
            return name
        place = Placement(outer.root, outer.offset + own.offset, own.strides)
        self.into.define(name, self.body.types[value], place)
        inner = self.body.versions.get(value)
        if inner is not None:
            self.into.versions[name] = inner.within(self.prefix)
        if value in self.body.moving:
            self.into.moving[name] = self.body.moving[value]
        return name

    def _define_root(self, root: str) -> None:
        """Give memory of its own to what lives within the branch."""
        name = f"{self.prefix}.{root}"
        self.into.define(name, self.body.types[root].dense, None)
        self.names[root] = name
        self.roots[root] = self.into.placements[name]


__all__ = ["expand_branches"]
