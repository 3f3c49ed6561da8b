"""The verifier: run at the boundary after every pass."""

from __future__ import annotations

from autotune.errors import GraphError
from autotune.graph.build import complete_node
from autotune.graph.ir import Graph, Node, TensorType


def verify(graph: Graph) -> None:
    """Check all rules of the graph IR.

    Each value is defined once, before it is read; types are there for exactly the defined values
    and are what the operators infer; constants have their declared types; outputs exist. Raises
    GraphError that names the graph and the node.
    """
    _verify_sources(graph)
    defined = {*graph.inputs, *graph.constants}
    later = graph.producers()
    for node in graph.nodes:
        for value in node.present_inputs:
            if value not in defined:
                why = (
                    f"is read before node {later[value].name!r} defines it"
                    if value in later
                    else "is not defined"
                )
                raise _error(graph, node, f"input {value!r} {why}")
        for value in node.present_outputs:
            if value in defined:
                raise _error(graph, node, f"output {value!r} is defined twice")
            defined.add(value)
        _verify_node(graph, node)
    for value in graph.outputs:
        if value not in defined:
            raise GraphError(f"graph {graph.name!r}: output {value!r} is not defined")
    stray = sorted(set(graph.types) - defined)
    if stray:
        raise GraphError(f"graph {graph.name!r}: type given for unknown value {stray[0]!r}")


def _error(graph: Graph, node: Node, what: str) -> GraphError:
    return GraphError(f"graph {graph.name!r}, node {node.name!r} ({node.op}): {what}")


def _verify_sources(graph: Graph) -> None:
    seen: set[str] = set()
    for value in (*graph.inputs, *graph.constants):
        if value in seen:
            raise GraphError(f"graph {graph.name!r}: value {value!r} is defined twice")
        if value not in graph.types:
            raise GraphError(f"graph {graph.name!r}: value {value!r} has no type")
        seen.add(value)
    for name, array in graph.constants.items():
        declared = graph.types[name].dense
        if TensorType.of(array) != declared:
            raise GraphError(
                f"graph {graph.name!r}: constant {name!r} is {TensorType.of(array)}, its type says {declared}"
            )


def _verify_node(graph: Graph, node: Node) -> None:
    try:
        complete, inferred = complete_node(node, graph.types)
    except GraphError as error:
        raise GraphError(f"graph {graph.name!r}, {error}") from error
    if complete is not node:
        given = tuple(node.attrs.items())
        key, value = next(item for item in complete.attrs.items() if item not in given)
        raise _error(graph, node, f"attribute {key} = {node.attrs.get(key)!r} must be completed to {value!r}")
    for value, expected in inferred.items():
        declared = graph.types.get(value)
        if declared is None:
            raise _error(graph, node, f"output {value!r} has no type")
        if declared.dense != expected:
            raise _error(graph, node, f"output {value!r} is declared {declared.dense}, inferred {expected}")
