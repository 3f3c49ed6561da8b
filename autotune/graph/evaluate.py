"""Run a graph in NumPy: the reference that everything compiled is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autotune.errors import InputError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Graph, Node, TensorType


def check_inputs(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the graph's inputs as arrays.

    Raises InputError if one is missing, unknown, or of the wrong shape or dtype.
    """
    unknown = sorted(set(inputs) - set(graph.inputs))
    if unknown:
        raise InputError(
            f"graph {graph.name!r} has no input {unknown[0]!r}; it has: {', '.join(graph.inputs)}"
        )
    checked = {}
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"input {name!r} of graph {graph.name!r} is missing")
        array, expected = np.asarray(inputs[name]), graph.type_of(name).dense
        if TensorType.of(array) != expected:
            raise InputError(f"input {name!r} is {TensorType.of(array)}, expected {expected}")
        checked[name] = array
    return checked


def run_node(node: Node, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of one node. Raises GraphError if the operator refuses."""
    arrays = [None if v == ABSENT else values[v] for v in node.inputs]
    results = ops.get(node.op).reference(arrays, node.attrs)
    return {v: a for v, a in zip(node.outputs, results, strict=True) if v != ABSENT}


def run(
    graph: Graph,
    inputs: Mapping[str, Array],
    on_value: Callable[[str, Array], None] | None = None,
) -> dict[str, Array]:
    """Return the graph's outputs by name.

    Values are dropped after their last use; `on_value` sees each one, the constants excepted.
    Raises InputError for inputs that do not fit the graph.
    """
    values: dict[str, Array] = {**graph.constants, **check_inputs(graph, inputs)}
    last_use = {v: i for i, node in enumerate(graph.nodes) for v in node.present_inputs}
    for i, node in enumerate(graph.nodes):
        results = run_node(node, values)
        values.update(results)
        if on_value is not None:
            for name, array in results.items():
                on_value(name, array)
        for name in set(node.present_inputs) - set(graph.outputs):
            if last_use[name] == i:
                del values[name]
    return {name: values[name] for name in graph.outputs}
