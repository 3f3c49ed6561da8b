"""Placed graphs: which device each value lives on.

A graph is placed when ``Graph.affinity`` has the device of every input and no node names one. From there on devices
follow: a Transfer's result is on the device that it names, any other result where its operands are. Constants, and
what is computed of them alone, live wherever they are read.
"""

from __future__ import annotations

from autotune.errors import GraphError
from autotune.graph import ops
from autotune.graph.ir import Affinity, Graph, Node


def is_annotated(graph: Graph) -> bool:
    """Return whether a graph names any device, placed or not."""
    return bool(graph.affinity) or any(node.device for node in graph.nodes)


def without_devices(graph: Graph) -> Graph:
    """Return the graph without the devices that it names; raises GraphError where transfers say that it
    is placed already."""
    if any(map(is_transfer, graph.nodes)):
        raise GraphError(f"graph {graph.name!r} has transfers between devices, and is to run on one")
    if not is_annotated(graph):
        return graph
    nodes = tuple(node.replace(device="") if node.device else node for node in graph.nodes)
    return graph.replace(nodes=nodes, affinity=Affinity())


def is_transfer(node: Node) -> bool:
    """Return whether a node's result is its operand on another device."""
    return ops.get(node.op).crosses


def floating_values(graph: Graph) -> frozenset[str]:
    """Return constants, and what is computed of constants alone: each device that reads one has its own."""
    floating = set(graph.constants)
    for node in graph.nodes:
        if floating.issuperset(node.present_inputs):
            floating.update(node.present_outputs)
    return frozenset(floating)


def value_devices(graph: Graph) -> dict[str, str]:
    """Return the device of each value of a placed graph that does not float.

    Raises GraphError that names the node where operands are on different devices, or a device is not known.
    """
    floating = floating_values(graph)
    homes = dict(graph.affinity.inputs)
    lost = [value for value in graph.inputs if not homes.get(value)]
    if lost:
        raise GraphError(f"graph {graph.name!r}: input {lost[0]!r} is on no device")
    for node in graph.nodes:
        if node.device:
            raise _error(graph, node, f"names device {node.device} though transfers are nodes already")
        known = {value: homes[value] for value in node.present_inputs if value not in floating}
        device = _device_of(graph, node, known)
        homes.update({} if not device else dict.fromkeys(node.present_outputs, device))
    return homes


def check_devices(graph: Graph) -> None:
    """Raise GraphError unless, in a placed graph, operands and results meet on one device at every node but a Transfer.

    A graph without devices is not looked at any further.
    """
    if graph.affinity or any(is_transfer(node) or node.device for node in graph.nodes):
        value_devices(graph)


def _device_of(graph: Graph, node: Node, operands: dict[str, str]) -> str:
    """Return the device of a node's results; nowhere in particular without operands that are somewhere."""
    if is_transfer(node) and operands:
        wanted, (home,) = str(node.attrs["device"]), operands.values()
        if wanted == home:
            raise _error(graph, node, f"transfers {node.inputs[0]!r} to {wanted}, where it is")
        return wanted
    if len(set(operands.values())) > 1:
        where = ", ".join(f"{value!r} on {device}" for value, device in operands.items())
        raise _error(graph, node, f"reads values of several devices: {where}")
    return next(iter(operands.values()), "")


def _error(graph: Graph, node: Node, what: str) -> GraphError:
    return GraphError(f"graph {graph.name!r}, node {node.name!r} ({node.op}): {what}")


__all__ = [
    "check_devices",
    "floating_values",
    "is_annotated",
    "is_transfer",
    "value_devices",
    "without_devices",
]
