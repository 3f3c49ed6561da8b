"""Origins of the nodes of a rewritten graph: nodes of the model.

A rewriter gives what it adds the origins of the node at hand. What is left here is what went without a
successor (folded into a weight, merged with an equal node, fused with its reader): its origins move to the
node that computes its value now, or to those that come from its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autotune.graph.ir import Graph, Node

Origins = tuple[str, ...]


def union(*origins: Iterable[str]) -> Origins:
    """Return each origin once, in order."""
    return tuple(dict.fromkeys(origin for some in origins for origin in some))


def carry_origins(before: Graph, after: Graph, current: Callable[[str], str]) -> Graph:
    """Return ``after`` with the origins of all nodes of ``before``; ``current`` is the new name of a value."""
    kept = {origin for node in after.nodes for origin in node.origins}
    lost = [node for node in before.nodes if not kept.issuperset(node.origins)]
    if not lost and all(node.origins for node in after.nodes):
        return after
    added = _moved(before, after, lost, current) if lost else {}
    nodes = list(after.nodes)
    for index, node in enumerate(nodes):
        if _key(node) in added:
            nodes[index] = node.with_origins(union(added[_key(node)], node.origins))
    return after.replace(nodes=_inherited(nodes))


def _key(node: Node) -> str:
    return node.outputs[0] or node.present_outputs[0]


def _moved(
    before: Graph, after: Graph, lost: list[Node], current: Callable[[str], str]
) -> Mapping[str, Origins]:
    """Return the origins that go to each node of ``after``, by its first output."""
    producers, consumers = after.producers(), before.consumers()
    homes: dict[str, list[str]] = {}  # an origin of the model, the nodes of `after` it is told of
    for node in after.nodes:
        for origin in node.origins:
            homes.setdefault(origin, []).append(_key(node))
    added: dict[str, Origins] = {}
    for node in reversed(lost):
        values = [current(value) for value in node.present_outputs]
        found = [_key(producers[value]) for value in values if value in producers]
        if not found:
            readers = [reader for value in node.present_outputs for reader in consumers[value]]
            found = [home for r in readers for origin in r.origins for home in homes.get(origin, ())]
        for home in dict.fromkeys(found):
            added[home] = union(node.origins, added.get(home, ()))
        for origin in node.origins:
            homes.setdefault(origin, list(dict.fromkeys(found)))
    return added


def _inherited(nodes: list[Node]) -> tuple[Node, ...]:
    """Return nodes that were made for no node in particular (a copy, a transpose) come from what makes
    their operands."""
    if all(node.origins for node in nodes):
        return tuple(nodes)
    made = {value: node.origins for node in nodes for value in node.present_outputs}
    for index, node in enumerate(nodes):
        if not node.origins:
            origins = union(*(made.get(value, ()) for value in node.present_inputs))
            nodes[index] = node.with_origins(origins)
            made.update(dict.fromkeys(node.present_outputs, origins))
    return tuple(nodes)


def with_own_names(graph: Graph) -> Graph:
    """Return the graph with each node its own origin, unless it has some."""
    if all(node.origins for node in graph.nodes):
        return graph
    return graph.replace(nodes=tuple(n if n.origins else n.with_origins((n.name,)) for n in graph.nodes))


__all__ = ["carry_origins", "union", "with_own_names"]
