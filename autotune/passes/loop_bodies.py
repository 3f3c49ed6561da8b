"""The bodies of loops: bound to the constants that they capture, rewritten, and put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.graph.build import complete_node
from autotune.graph.ir import Array, Graph, Node, TensorType, fresh_name
from autotune.graph.ops.loop import LoopParts, is_loop, loop_node


def bound_body(node: Node, constants: Mapping[str, Array]) -> tuple[Graph, dict[str, str]]:
    """Return a loop's body in which captured constants are constants, and what is captured: its name there, here."""
    parts = LoopParts.of(node.attrs)
    outer = dict(zip(parts.captured, node.inputs[parts.carried + parts.scanned :], strict=True))
    known = {inner: constants[name] for inner, name in outer.items() if name in constants}
    inputs = tuple(v for v in parts.body.inputs if v not in known)
    return parts.body.replace(inputs=inputs, constants=known), outer


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with what ``change`` makes of the body of each loop.

    Constants that the body comes to have are constants of the graph, which the loop captures; what the body reads no
    more is captured no more.
    """
    if not any(map(is_loop, graph.nodes)):
        return graph
    constants, types = dict(graph.constants), dict(graph.types)
    nodes = list[Node]()
    for node in graph.nodes:
        if not is_loop(node):
            nodes.append(node)
            continue
        before, outer = bound_body(node, constants)
        body = change(before)
        nodes.append(_put_back(node, body, outer, constants))
        nodes[-1], found = complete_node(nodes[-1], {**types, **_types_of(constants)})
        types |= found
    added = {name: array for name, array in constants.items() if name not in graph.constants}
    return graph.with_nodes(nodes, types, added)


def _put_back(node: Node, body: Graph, outer: Mapping[str, str], constants: dict[str, Array]) -> Node:
    """Return the loop over a changed body; its new constants are added to the graph's."""
    parts = LoopParts.of(node.attrs)
    taken = parts.carried + parts.scanned
    read = {v for inner in body.nodes for v in inner.present_inputs} | set(body.outputs)
    captured = {name: outer[name] for name in body.inputs[taken:] if name in read}
    for name, array in body.constants.items():
        if name not in read:
            continue
        if name in outer and constants.get(outer[name]) is array:
            captured[name] = outer[name]
        else:
            captured[name] = fresh_name(f"{node.name}.{name}", {*constants, *captured.values()})
            constants[captured[name]] = array
    whole = body.replace(inputs=(*body.inputs[:taken], *captured), constants={})
    made = loop_node(
        (*node.inputs[:taken], *captured.values()),
        node.outputs,
        whole.pruned(),
        carried=parts.carried,
        scanned=parts.scanned,
        trips=parts.trips,
        from_end=parts.from_end,
        name=node.name,
    )
    return made.replace(origins=node.origins, device=node.device)


def _types_of(constants: Mapping[str, Array]) -> dict[str, TensorType]:
    return {name: TensorType.of(array) for name, array in constants.items()}


__all__ = ["bound_body", "with_bodies"]
