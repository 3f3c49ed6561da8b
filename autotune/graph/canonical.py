"""The canonical form of a region: equal regions of any models become one text.

Nodes are ordered by a depth-first walk from the outputs, inputs by their first use, values renamed
i0, i1, ... (inputs) and v0, v1, ... (the rest), attributes completed, and operands of commutative
operators put with computed values first. The order of the outputs is the caller's.
"""

from __future__ import annotations

from autotune.graph import ops
from autotune.graph.ir import Graph, Node


def canonical_graph(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return the canonical graph, and the new name of each of the old graph's values."""
    producers = graph.producers()
    nodes = [_canonical_node(n, graph, producers) for n in _walk(graph, producers)]
    names: dict[str, str] = {}
    inputs = [v for node in nodes for v in node.present_inputs if v not in producers]
    for value in dict.fromkeys([*inputs, *graph.inputs]):
        names[value] = f"i{len(names)}"
    count = len(names)
    for node in nodes:
        for value in node.present_outputs:
            names[value] = f"v{len(names) - count}"
    renamed = tuple(n.renamed(names).replace(name="", origins=()) for n in nodes)
    canonical = Graph(
        "workload",
        tuple(names[v] for v in names if v not in producers),
        tuple(names[v] for v in graph.outputs),
        renamed,
        {new: graph.type_of(old) for old, new in names.items()},
    )
    return canonical, names


def _walk(graph: Graph, producers: dict[str, Node]) -> list[Node]:
    """Return the post-order from the outputs: a node after all that it reads, operands left to right."""
    order: list[Node] = []
    state: dict[str, bool] = {}  # by first output: False while its operands are visited
    stack = [producers[v] for v in reversed(graph.outputs) if v in producers]
    while stack:
        node = stack[-1]
        key = node.present_outputs[0]
        if key in state:
            stack.pop()
            if not state[key]:
                state[key] = True
                order.append(node)
            continue
        state[key] = False
        operands = _canonical_node(node, graph, producers).present_inputs
        found = [producers[v] for v in reversed(operands) if v in producers]
        stack += [n for n in found if n.present_outputs[0] not in state]
    return order


def _canonical_node(node: Node, graph: Graph, producers: dict[str, Node]) -> Node:
    definition = ops.get(node.op)
    attrs = definition.canonical(graph.input_types(node), node.attrs)
    inputs = node.inputs
    if definition.commutative:
        inputs = tuple(sorted(inputs, key=lambda v: v not in producers))
    return node.replace(attrs=attrs, inputs=inputs)
