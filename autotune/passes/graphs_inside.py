"""The graphs inside of loops and branches: bound to the constants that they capture, rewritten, and put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.graph.build import complete_node
from autotune.graph.ir import Array, Graph, Node, TensorType, fresh_name
from autotune.graph.ops.branch import BranchParts, branch_node, is_branch
from autotune.graph.ops.loop import LoopParts, is_loop, loop_node


def bound_body(node: Node, constants: Mapping[str, Array]) -> tuple[Graph, dict[str, str]]:
    """Return a loop's body in which captured constants are constants, and what is captured: its name there, here."""
    parts = LoopParts.of(node.attrs)
    return _bound(parts.body, node.inputs[parts.carried + parts.scanned :], constants)


def bound_branches(node: Node, constants: Mapping[str, Array]) -> list[tuple[bool, Graph, dict[str, str]]]:
    """Return the same for each branch, behind what it is chosen by."""
    sides = BranchParts.of(node.attrs).graphs(node)
    return [(wanted, *_bound(graph, given, constants)) for wanted, graph, given in sides]


def _bound(
    graph: Graph, captured: Sequence[str], constants: Mapping[str, Array]
) -> tuple[Graph, dict[str, str]]:
    """Return a graph that captures its last inputs, bound."""
    outer = dict(zip(graph.inputs[len(graph.inputs) - len(captured) :], captured, strict=True))
    known = {inner: constants[name] for inner, name in outer.items() if name in constants}
    return graph.replace(inputs=tuple(v for v in graph.inputs if v not in known), constants=known), outer


def with_graphs_changed(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with what ``change`` makes of the body of each loop and of each branch.

    Constants that one comes to have are constants of the graph, which it captures; what it reads no more is captured no
    more.
    """
    if not any(is_loop(node) or is_branch(node) for node in graph.nodes):
        return graph
    constants, types = dict(graph.constants), dict(graph.types)
    nodes = list[Node]()
    for node in graph.nodes:
        rebuilt = _rebuilt(node, change, constants)
        if rebuilt is not node:
            rebuilt = rebuilt.replace(origins=node.origins, device=node.device)
            rebuilt, found = complete_node(rebuilt, {**types, **_types_of(constants)})
            types |= found
        nodes.append(rebuilt)
    added = {name: array for name, array in constants.items() if name not in graph.constants}
    return graph.with_nodes(nodes, types, added)


def _rebuilt(node: Node, change: Callable[[Graph], Graph], constants: dict[str, Array]) -> Node:
    """Return a node over changed graphs, whose new constants are added; others as they are."""
    if is_loop(node):
        return _loop(node, change, constants)
    if is_branch(node):
        return _branch(node, change, constants)
    return node


def _loop(node: Node, change: Callable[[Graph], Graph], constants: dict[str, Array]) -> Node:
    parts = LoopParts.of(node.attrs)
    taken = parts.carried + parts.scanned
    before, outer = bound_body(node, constants)
    body, captured = _unbound(change(before), taken, outer, constants, node.name)
    loop = loop_node(
        (*node.inputs[:taken], *captured),
        node.outputs,
        body,
        carried=parts.carried,
        scanned=parts.scanned,
        trips=parts.trips,
        from_end=parts.from_end,
        going=parts.going,
    )
    return loop.replace(name=node.name)


def _branch(node: Node, change: Callable[[Graph], Graph], constants: dict[str, Array]) -> Node:
    sides = {
        wanted: _unbound(change(before), 0, outer, constants, node.name)
        for wanted, before, outer in bound_branches(node, constants)
    }
    refusal = BranchParts.of(node.attrs).refusal
    return branch_node(
        node.inputs[0], sides.get(True), sides[False], node.outputs, refusal=refusal, name=node.name
    )


def _unbound(
    graph: Graph, taken: int, outer: Mapping[str, str], constants: dict[str, Array], name: str
) -> tuple[Graph, tuple[str, ...]]:
    """Return a changed graph that captures what it reads behind its first ``taken`` inputs, and that by its names here;
    new constants are added to the graph's."""
    read = {v for inner in graph.nodes for v in inner.present_inputs} | set(graph.outputs)
    captured = {inner: outer[inner] for inner in graph.inputs[taken:] if inner in read}
    for inner, array in graph.constants.items():
        if inner not in read:
            continue
        if inner in outer and constants.get(outer[inner]) is array:
            captured[inner] = outer[inner]
        else:
            captured[inner] = fresh_name(f"{name}.{inner}", {*constants, *captured.values()})
            constants[captured[inner]] = array
    whole = graph.replace(inputs=(*graph.inputs[:taken], *captured), constants={})
    return whole.pruned(), tuple(captured.values())


def _types_of(constants: Mapping[str, Array]) -> dict[str, TensorType]:
    return {name: TensorType.of(array) for name, array in constants.items()}


__all__ = ["bound_body", "bound_branches", "with_graphs_changed"]
