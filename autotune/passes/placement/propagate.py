"""Devices of all operations of a graph, from the annotations of a few.

What is said counts. Everything else follows the values it reads, the most bytes of them, so that a result stays on the
device that made it; what reads nothing that is anywhere yet, such as an input of the model and the views of it, goes
to what reads it. Both are repeated until nothing changes. What is connected with nothing that is said is put on the
default device, which the answer says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.devices import floating_values
from autotune.graph.ir import Graph, Node
from autotune.passes.placement.device_rules import Annotations


@dataclass(frozen=True)
class Home:
    """The device that something is on and why; ``possible`` are the devices that were to choose from, with reasons."""

    device: str
    reason: str
    possible: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Homes:
    """The home of each node that does not float, by its first output; of each input; and of each output."""

    nodes: Mapping[str, Home]
    inputs: Mapping[str, Home]
    outputs: Mapping[str, Home]

    def of_value(self, value: str, producers: Mapping[str, Node]) -> str:
        """Return the device of a value that does not float."""
        if value in self.inputs:
            return self.inputs[value].device
        return self.nodes[producers[value].present_outputs[0]].device


def propagate(graph: Graph, said: Annotations) -> Homes:
    """Settle all nodes, inputs and outputs; ``said`` names at least one device."""
    return _Propagation(graph, said).run()


class _Propagation:
    def __init__(self, graph: Graph, said: Annotations) -> None:
        self.graph = graph
        self.said = said
        self.producers = graph.producers()
        self.consumers = graph.consumers()
        self.floating = floating_values(graph)
        self.nodes = [n for n in graph.nodes if not self.floating.issuperset(n.present_outputs)]
        self.devices: dict[str, str] = {}
        """By value."""
        self.reasons: dict[str, str] = {}
        """By input, or first output of a node."""

    def run(self) -> Homes:
        for node in self.nodes:
            key = node.present_outputs[0]
            if key in self.said.nodes:
                found = self.said.nodes[key]
                self._settle(node, found.device, f"named by {found.source}")
        for value, found in self.said.inputs.items():
            self._put(value, found.device, f"named by {found.source}")
        self._spread()
        while self._settle_one_by_default():
            self._spread()
        for value in self.graph.inputs:
            if value not in self.devices:
                self._put(value, *self._default())
        return Homes(
            {n.present_outputs[0]: self._home_of(n) for n in self.nodes},
            {v: self._home(v, self._readers(v)) for v in self.graph.inputs},
            {v: self._output(v) for v in self.graph.outputs if v not in self.floating},
        )

    # deciding -----------------------------------------------------------------------------------

    def _spread(self) -> None:
        """Follow operands, then readers, until nothing changes."""
        before = -1
        while before != len(self.devices):
            before = len(self.devices)
            for node in self.nodes:
                if node.present_outputs[0] not in self.devices:
                    self._follow(node, self._operands(node))
            for node in reversed(self.nodes):
                if node.present_outputs[0] not in self.devices:
                    wanted = [choice for v in node.present_outputs for choice in self._readers(v)]
                    self._follow(node, wanted)
            for value in self.graph.inputs:
                readers = self._readers(value)
                if value not in self.devices and readers:
                    self._put(value, readers[0][0], readers[0][1])

    def _follow(self, node: Node, choices: Sequence[tuple[str, str, int]]) -> None:
        """Put a node where most bytes of what it works with are; what its readers want decides between equals."""
        if not choices:
            return
        weights: dict[str, int] = {}
        for device, _, nbytes in choices:
            weights[device] = weights.get(device, 0) + nbytes
        most = max(weights.values())
        best = [device for device, nbytes in weights.items() if nbytes == most]
        wanted = [device for v in node.present_outputs for device, _, _ in self._readers(v) if device in best]
        chosen = wanted[0] if len(best) > 1 and wanted else best[0]
        self._settle(node, chosen, next(why for device, why, _ in choices if device == chosen))

    def _settle_one_by_default(self) -> bool:
        """Put the first node that is nowhere on the default device; False where there is none."""
        for node in self.nodes:
            if node.present_outputs[0] not in self.devices:
                self._settle(node, *self._default())
                return True
        return False

    def _default(self) -> tuple[str, str]:
        if self.said.default is not None:
            return self.said.default.device, f"default of {self.said.default.source}"
        return self.said.devices[0], "nothing says where: the first device that is named"

    def _settle(self, node: Node, device: str, reason: str) -> None:
        self.devices.update(dict.fromkeys(node.present_outputs, device))
        self.reasons[node.present_outputs[0]] = reason

    def _put(self, value: str, device: str, reason: str) -> None:
        self.devices[value], self.reasons[value] = device, reason

    # what speaks for a device: (device, reason, bytes) --------------------------------------------

    def _operands(self, node: Node) -> list[tuple[str, str, int]]:
        return [
            (self.devices[v], f"reads {v}, which is there", self.graph.type_of(v).nbytes)
            for v in dict.fromkeys(node.present_inputs)
            if v not in self.floating and v in self.devices
        ]

    def _readers(self, value: str) -> list[tuple[str, str, int]]:
        nbytes = self.graph.type_of(value).nbytes
        found = [
            (self.devices[key], f"{value} is read there by {reader.name}", nbytes)
            for reader in self.consumers[value]
            if (key := reader.present_outputs[0]) in self.devices
        ]
        wanted = self.said.outputs.get(value)
        return [
            *found,
            *([] if wanted is None else [(wanted.device, f"output {value} is wanted there", nbytes)]),
        ]

    # the answer ---------------------------------------------------------------------------------

    def _home_of(self, node: Node) -> Home:
        readers = [choice for v in node.present_outputs for choice in self._readers(v)]
        key = node.present_outputs[0]
        if key in self.said.nodes:
            return Home(self.devices[key], self.reasons[key])
        return self._home(key, [*self._operands(node), *readers])

    def _home(self, key: str, choices: Sequence[tuple[str, str, int]]) -> Home:
        possible = {device: reason for device, reason, _ in reversed(choices)}
        if key in self.said.inputs:
            possible = {}
        chosen = (self.devices[key], self.reasons[key])
        return Home(*chosen, tuple((d, why) for d, why in reversed(possible.items()) if d != chosen[0]))

    def _output(self, value: str) -> Home:
        wanted = self.said.outputs.get(value)
        if wanted is not None:
            return Home(wanted.device, f"named by {wanted.source}")
        maker = self.producers[value].name if value in self.producers else "the caller"
        return Home(
            self.devices[value], f"stays where {maker} makes it" if maker != "the caller" else "an input"
        )


__all__ = ["Home", "Homes", "propagate"]
