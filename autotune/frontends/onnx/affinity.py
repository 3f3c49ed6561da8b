"""Devices that an ONNX model names: ``metadata_props`` with the key ``autotune.affinity``.

On a node: where it runs. On a value info: where that value is made; for inputs of the model where the caller has it,
for outputs where it is wanted. On the graph, or the model: the device of all that nothing else says anything about.
The same in the graphs of If, Loop and Scan, where what nothing is said of is where the node is that has the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from autotune.errors import ModelImportError, PlacementError
from autotune.graph.ir import Affinity, Graph, Node

KEY = "autotune.affinity"
FACTS = "autotune.facts."
"""The beginning of keys that `autotune explain --onnx` writes, for people to read."""
_OURS = "autotune"
_ALIKE = 0.9
"""So alike (``difflib``) is a key with a letter or two that are wrong."""


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
        """Return the graph with these devices; its nodes have theirs already.

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
        what = f"{self.origin}: node {node.name!r} ({node.op})"
        device = _one_device(what, node.device, {v: values[v] for v in node.present_outputs if v in values})
        return node.replace(device=device) if device != node.device else node

    def within(self, node: Any) -> str:
        """Return the device of a ``NodeProto`` of these; "" for that of the node around it. Raises PlacementError."""
        name = _called(node)
        values = {v: self.values[v] for v in node.output if v in self.values}
        found = _one_device(
            f"{self.origin}: node {name!r} ({node.op_type})", self.nodes.get(name, ""), values
        )
        return found or self.default


def named_devices(proto: Any, origin: str, node_names: Mapping[str, str]) -> NamedDevices:
    """Return the devices that a ``ModelProto`` names; ``node_names`` are the names of its nodes by their results.

    Raises ModelImportError.
    """
    _check_keys(proto, origin)
    for function in proto.functions:
        what = f"{origin}: function {function.name!r}"
        if any(
            entry.key == KEY for each in (function, *function.value_info) for entry in each.metadata_props
        ):
            raise ModelImportError(
                f"{what} has {KEY}\n  put it on nodes: those of the function, or that call it"
            )
    found = _in_graph(proto.graph, origin, node_names)
    default = found.default or device_in(proto.metadata_props, f"{origin}: the model")
    return NamedDevices(origin, found.nodes, found.values, default)


def devices_within(graph: Any, node: str) -> NamedDevices:
    """Return the devices named by a graph that is an attribute of the node ``node``. Raises ModelImportError."""
    origin = f"node {node!r}, graph {graph.name!r}"
    found = _in_graph(graph, origin, {v: _called(node) for node in graph.node for v in node.output})
    made = {value for node in graph.node for value in node.output} | {t.name for t in graph.initializer}
    if outside := sorted(found.values.keys() - made):
        raise ModelImportError(
            f"{origin}: {KEY} is given for {outside[0]!r}, which no node of this graph makes\n"
            "  name the device of a value where it is made"
        )
    return found


def _in_graph(graph: Any, origin: str, node_names: Mapping[str, str]) -> NamedDevices:
    """Return the devices that a ``GraphProto`` names itself, without the graphs inside of it."""
    nodes = {}
    for node in graph.node:
        name = next((node_names[v] for v in node.output if v in node_names), node.name)
        device = device_in(node.metadata_props, f"{origin}: node {name!r}")
        nodes.update({name: device} if device else {})
    values = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        device = device_in(value.metadata_props, f"{origin}: value {value.name!r}")
        values.update({value.name: device} if device else {})
    return NamedDevices(origin, nodes, values, device_in(graph.metadata_props, f"{origin}: the graph"))


def _called(node: Any) -> str:
    """Return a node by its first result: names of nodes need not differ."""
    return str(next(filter(None, node.output), node.name))


def _one_device(what: str, own: str, values: Mapping[str, str]) -> str:
    """Return the device of a node that has ``own`` and whose results have those of ``values``; "" for none."""
    said = {f"the {KEY} of the node": own} if own else {}
    said |= {f"the {KEY} of its result {value!r}": device for value, device in values.items()}
    if len(set(said.values())) > 1:
        lines = "\n".join(f"  {device} by {source}" for source, device in said.items())
        raise PlacementError(f"{what} is put on two devices:\n{lines}\n  take one of them away")
    return next(iter(said.values()), "")


def _check_keys(proto: Any, origin: str) -> None:
    """Raise ModelImportError for a key that is meant for us and is not ours, wherever it stands."""
    described = [("the model", proto), *_described(proto.graph)]
    for function in proto.functions:
        what = f"function {function.name!r}"
        described += [(what, function), *((f"{what}, value {v.name!r}", v) for v in function.value_info)]
        described += _of_nodes(function.node)
    for what, each in described:
        for entry in each.metadata_props:
            if entry.key != KEY and not entry.key.startswith(FACTS) and _is_ours(entry.key):
                raise ModelImportError(
                    f"{origin}: {what} has the key {entry.key!r}, which is not known; did you mean {KEY!r}?"
                )


def _is_ours(key: str) -> bool:
    """Return whether a key was meant for us: it begins with our name, or is nearly our key."""
    folded = key.strip().lower().replace("_", ".").replace("-", ".")
    return folded.partition(".")[0] == _OURS or SequenceMatcher(None, folded, KEY).ratio() > _ALIKE


def _described(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield all of a graph that has metadata, and of the graphs inside of it, each with what to call it."""
    yield f"graph {graph.name!r}", graph
    for value in (*graph.value_info, *graph.input, *graph.output):
        yield f"value {value.name!r}", value
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        yield f"node {_called(node)!r}", node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _described(graph)


def device_in(properties: Any, what: str) -> str:
    """Return the device that properties name for ``what``; "" without one. Raises ModelImportError for
    two, and for none."""
    found = {entry.value.strip() for entry in properties if entry.key == KEY}
    if len(found) > 1 or found == {""}:
        said = " and ".join(map(repr, sorted(found)))
        raise ModelImportError(f"{what} has {KEY} = {said}\n  it is the name of one device, such as cpu:0")
    return next(iter(found), "")


__all__ = ["FACTS", "KEY", "NamedDevices", "device_in", "devices_within", "named_devices"]
