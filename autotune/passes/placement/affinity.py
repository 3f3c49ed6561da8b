"""Affinity: the devices that are named for parts of a model decide where all of it runs, and what crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import PlacementError
from autotune.graph.devices import check_devices, floating_values, is_annotated, is_transfer
from autotune.graph.ir import ABSENT, Affinity, Graph, Node, TensorType, fresh_name
from autotune.passes.base import GraphPass
from autotune.passes.placement.device_rules import NO_RULES, DeviceRules, gathered
from autotune.passes.placement.propagate import Homes, propagate


@dataclass(frozen=True)
class Crossing:
    """A value that is moved: of ``nbytes``, from one device to another, for the nodes that read it there."""

    value: str
    source: str
    destination: str
    nbytes: int
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Affinities:
    """The placement of a graph: the homes of its parts, and the values that cross, each once a device."""

    graph: Graph
    homes: Homes
    crossings: tuple[Crossing, ...]


def affinities(graph: Graph, rules: DeviceRules) -> Affinities | None:
    """Return the placement of the parts of a graph, if it or the rules name a device at all.

    Raises PlacementError for annotations that contradict one another, fit nothing or name a device that is not there.
    """
    if not is_annotated(graph) and not rules.rules:
        return None
    homes = propagate(graph, gathered(graph, rules))
    return Affinities(graph, homes, _crossings(graph, homes))


@dataclass(frozen=True)
class PlaceOnDevices(GraphPass):
    """Insert a Transfer wherever a value is read on another device than the one that made it, one a value and device.

    The result is a placed graph (:mod:`autotune.graph.devices`): no node names a device any more, all devices follow
    from those of the inputs and of the transfers. Later passes cannot see through a Transfer, so that nothing is
    computed across devices. Without a named device the graph stays as it is.
    """

    name: ClassVar[str] = "affinity"
    rules: DeviceRules = NO_RULES

    def apply(self, graph: Graph) -> Graph:
        if any(is_transfer(node) for node in graph.nodes):
            return self._placed_before(graph)
        found = affinities(graph, self.rules)
        return graph if found is None else _placed(found)

    def _placed_before(self, graph: Graph) -> Graph:
        if self.rules.rules:
            raise PlacementError(
                f"graph {graph.name!r} has transfers already, so that a placement cannot change where it runs"
            )
        check_devices(graph)
        return graph

    def __str__(self) -> str:
        rules = " ".join(f"{pattern}={device}" for pattern, device in self.rules.rules.items())
        return f"{self.name}{{{rules}}}" if rules else self.name


def _crossings(graph: Graph, homes: Homes) -> tuple[Crossing, ...]:
    producers, floating = graph.producers(), floating_values(graph)
    readers: dict[tuple[str, str], list[str]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.present_inputs):
            if value not in floating:
                device = homes.nodes[node.present_outputs[0]].device
                readers.setdefault((value, device), []).append(node.name)
    for output, home in homes.outputs.items():
        readers.setdefault((output, home.device), []).append(f"output {output}")
    return tuple(
        Crossing(value, source, device, graph.type_of(value).nbytes, tuple(names))
        for (value, device), names in readers.items()
        if (source := homes.of_value(value, producers)) != device
    )


def _placed(found: Affinities) -> Graph:
    """Return the graph with a Transfer before the first reader of each value that crosses."""
    graph, homes = found.graph, found.homes
    producers = graph.producers()
    crossing = {(c.value, c.destination) for c in found.crossings}
    copies: dict[tuple[str, str], str] = {}
    nodes, types = list[Node](), dict[str, TensorType](graph.types)

    def there(value: str, device: str) -> str:
        if (value, device) not in crossing:
            return value
        if (value, device) not in copies:
            name = fresh_name(f"{value}@{device}", types)
            types[name] = types[value].dense
            origins = producers[value].origins if value in producers else ()
            nodes.append(Node("Transfer", (value,), (name,), {"device": device}, origins=origins))
            copies[value, device] = name
        return copies[value, device]

    for node in graph.nodes:
        home = homes.nodes.get(node.present_outputs[0])
        inputs = node.inputs
        if home is not None:
            inputs = tuple(v if v == ABSENT else there(v, home.device) for v in inputs)
        nodes.append(node.replace(inputs=inputs, device=""))
    outputs = [there(v, homes.outputs[v].device) if v in homes.outputs else v for v in graph.outputs]
    affinity = Affinity(inputs={value: home.device for value, home in homes.inputs.items()})
    return graph.replace(nodes=tuple(nodes), types=types, outputs=tuple(outputs), affinity=affinity)


__all__ = ["Affinities", "Crossing", "PlaceOnDevices", "affinities"]
