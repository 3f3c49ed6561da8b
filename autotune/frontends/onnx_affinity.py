"""Devices that an ONNX model names: ``metadata_props`` with the key ``autotune.affinity``.

On a node: where it runs. On a value info: where that value is made; for inputs of the model where the caller has it,
for outputs where it is wanted. On the graph, or the model: the device of all that nothing else says anything about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import ModelImportError, PlacementError
from autotune.graph.ir import Affinity, Graph, Node

KEY = "autotune.affinity"


@dataclass(frozen=True)
class NamedDevices:
    """Devices by node, as the file calls it, by value, and for everything else."""

    origin: str
    nodes: Mapping[str, str]
    values: Mapping[str, str]
    default: str

    def __bool__(self) -> bool:
        return bool(self.nodes or self.values or self.default)

    def apply(self, graph: Graph) -> Graph:
        """The graph with these devices; its nodes have theirs already.

        Raises PlacementError for a node and a result of it that are put on different devices, ModelImportError for a
        device of a value that is not in the graph.
        """
        if not self:
            return graph
        lost = [value for value in self.values if value not in graph.types]
        if lost:
            raise ModelImportError(
                f"{self.origin}: {KEY} is given for {lost[0]!r}, which is no value of the graph"
            )
        inputs, outputs = (
            {v: self.values[v] for v in values if v in self.values}
            for values in (graph.inputs, graph.outputs)
        )
        inside = {v: d for v, d in self.values.items() if v not in inputs and v not in outputs}
        nodes = tuple(self._on_device(node, inside) for node in graph.nodes)
        return graph.replace(nodes=nodes, affinity=Affinity(self.default, inputs, outputs))

    def _on_device(self, node: Node, values: Mapping[str, str]) -> Node:
        said = {f"the {KEY} of the node": node.device} if node.device else {}
        said |= {f"the {KEY} of its result {v!r}": values[v] for v in node.present_outputs if v in values}
        if len(set(said.values())) > 1:
            lines = "\n".join(f"  {device} by {source}" for source, device in said.items())
            what = f"{self.origin}: node {node.name!r} ({node.op})"
            raise PlacementError(f"{what} is put on two devices:\n{lines}\n  take one of them away")
        device = next(iter(said.values()), "")
        return node.replace(device=device) if device != node.device else node


def named_devices(proto: Any, origin: str, node_names: Mapping[str, str]) -> NamedDevices:
    """What a ``ModelProto`` says; ``node_names`` are the names of its nodes by their results.

    Raises ModelImportError.
    """
    graph = proto.graph
    nodes = {}
    for node in graph.node:
        name = next((node_names[v] for v in node.output if v in node_names), node.name)
        device = device_in(node.metadata_props, f"{origin}: node {name!r}")
        nodes.update({name: device} if device else {})
    values = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        device = device_in(value.metadata_props, f"{origin}: value {value.name!r}")
        values.update({value.name: device} if device else {})
    default = device_in(graph.metadata_props, f"{origin}: the graph")
    default = default or device_in(proto.metadata_props, f"{origin}: the model")
    return NamedDevices(origin, nodes, values, default)


def device_in(properties: Any, what: str) -> str:
    """The device that properties name for ``what``; "" without one. Raises ModelImportError for two, and for none."""
    found = {entry.value.strip() for entry in properties if entry.key == KEY}
    if len(found) > 1 or found == {""}:
        said = " and ".join(map(repr, sorted(found)))
        raise ModelImportError(f"{what} has {KEY} = {said}\n  it is the name of one device, such as cpu:0")
    return next(iter(found), "")


__all__ = ["KEY", "NamedDevices", "device_in", "named_devices"]
