"""A placed graph cut at its transfers: segments, each of one device, in an order in which they can run.

A segment is as much of its device's work as can run once its inputs are there. What another device waits for ends a
segment, so that the rest of the work does not hold it up; a rest without any product, pool or the like stays with it.
Every segment is a graph of its own, and becomes dispatches by itself: nothing is fused across a border.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotune.errors import InternalError
from autotune.graph.devices import floating_values, is_transfer, value_devices
from autotune.graph.ir import Graph, Node, fresh_name
from autotune.graph.region import anchors


@dataclass(frozen=True)
class GraphSegment:
    """Work of one device: a graph whose inputs come from elsewhere, and whose outputs are read elsewhere."""

    device: str
    graph: Graph


@dataclass(frozen=True)
class ValueTransfer:
    """``result`` is ``value`` on ``device``."""

    value: str
    result: str
    device: str


DivisionStep: TypeAlias = "GraphSegment | ValueTransfer"


@dataclass(frozen=True)
class GraphDivision:
    """A placed graph as steps; each reads inputs and what steps before it made."""

    graph: Graph
    devices: Mapping[str, str]
    """Of every value between steps."""
    steps: tuple[DivisionStep, ...]

    @property
    def segments(self) -> tuple[GraphSegment, ...]:
        """The steps that compute."""
        return tuple(step for step in self.steps if isinstance(step, GraphSegment))


def divide_by_device(graph: Graph) -> GraphDivision:
    """Cut a placed graph; raises GraphError if it is none."""
    return _Cut(graph).run()


class _Cut:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.devices = _with_settled_outputs(graph)
        self.floating = floating_values(graph)
        self.producers = self.graph.producers()
        self.consumers = self.graph.consumers()
        self.done = set(graph.inputs)
        self.left = [n for n in self.graph.nodes if not self.floating.issuperset(n.present_outputs)]
        self.steps: list[DivisionStep] = []

    def run(self) -> GraphDivision:
        while self.left:
            self._transfer()
            node = next((n for n in self.left if self._ready(n, self.done)), None)
            if node is not None:
                self._compute(self._closure(self._device(node)))
            elif self.left:
                raise InternalError(f"the steps of graph {self.graph.name!r} have a cycle")
        self._transfer()
        return GraphDivision(self.graph, self.devices, tuple(self.steps))

    def _device(self, node: Node) -> str:
        return self.devices[node.present_outputs[0]]

    def _ready(self, node: Node, done: set[str]) -> bool:
        return all(v in done or v in self.floating for v in node.present_inputs)

    def _transfer(self) -> None:
        """Add every transfer of what is there."""
        for node in [n for n in self.left if is_transfer(n) and n.inputs[0] in self.done]:
            self.left.remove(node)
            self.steps.append(ValueTransfer(node.inputs[0], node.outputs[0], self._device(node)))
            self.done.update(node.outputs)

    def _closure(self, device: str) -> list[Node]:
        """Return all nodes of a device that can run one after the other from here."""
        done, found = set(self.done), list[Node]()
        for node in self.left:
            if not is_transfer(node) and self._device(node) == device and self._ready(node, done):
                found.append(node)
                done.update(node.present_outputs)
        return found

    def _compute(self, nodes: Sequence[Node]) -> None:
        """Add one segment, or two: what others wait for first."""
        awaited = self._leading_out(nodes)
        rest = [node for node in nodes if node not in awaited]
        if awaited and anchors(rest):
            self._segment(awaited)
            self._transfer()
            self._segment(rest)
        else:
            self._segment(nodes)

    def _leading_out(self, nodes: Sequence[Node]) -> list[Node]:
        """Return those whose results reach another device."""
        wanted: set[str] = set()
        found = []
        for node in reversed(nodes):
            readers = (reader for v in node.present_outputs for reader in self.consumers[v])
            if wanted.intersection(node.present_outputs) or any(map(is_transfer, readers)):
                found.append(node)
                wanted.update(node.present_inputs)
        return found[::-1]

    def _segment(self, nodes: Sequence[Node]) -> None:
        made = {v for node in nodes for v in node.present_outputs}
        inside = {node.outputs for node in nodes}
        read = dict.fromkeys(v for node in nodes for v in node.present_inputs if v not in made)
        results = [
            v
            for node in nodes
            for v in node.present_outputs
            if v in self.graph.outputs or any(r.outputs not in inside for r in self.consumers[v])
        ]
        graph = self.graph.replace(
            name=f"{self.graph.name}.{sum(isinstance(s, GraphSegment) for s in self.steps)}",
            inputs=tuple(v for v in read if v not in self.floating),
            outputs=tuple(results),
            affinity=type(self.graph.affinity)(),
        ).with_nodes([*self._constant_nodes(read), *nodes])
        types = {v: found for v, found in graph.types.items() if v in set(graph.values())}
        self.steps.append(GraphSegment(self._device(nodes[0]), graph.replace(types=types)))
        self.left = [node for node in self.left if node.outputs not in inside]
        self.done |= made

    def _constant_nodes(self, values: Iterable[str]) -> list[Node]:
        """Return the nodes that compute values of constants alone, again in every segment that reads them."""
        found: dict[tuple[str, ...], Node] = {}
        waiting = [v for v in values if v in self.floating]
        while waiting:
            node = self.producers.get(waiting.pop())
            if node is not None and node.outputs not in found:
                found[node.outputs] = node
                waiting += node.present_inputs
        return [node for node in self.graph.nodes if node.outputs in found]


def _with_settled_outputs(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return the graph, and devices of its values, where outputs that are constants are copies on the
    first device of all."""
    devices, floating = value_devices(graph), floating_values(graph)
    home = next(iter(devices.values()), "")
    nodes, types, outputs = list(graph.nodes), dict(graph.types), list(graph.outputs)
    for index, output in enumerate(outputs):
        if output in floating:
            outputs[index] = name = fresh_name(f"{output}.copy", types)
            types[name], devices[name] = types[output].dense, home
            nodes.append(Node("Identity", (output,), (name,)))
    return graph.replace(nodes=tuple(nodes), types=types, outputs=tuple(outputs)), devices


__all__ = ["DivisionStep", "GraphDivision", "GraphSegment", "ValueTransfer", "divide_by_device"]
