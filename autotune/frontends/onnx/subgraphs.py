"""Nodes of a subgraph in the place of the node that has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import ModelImportError
from autotune.frontends.onnx.affinity import devices_within
from autotune.frontends.onnx.diverging import ImportStep, Rest, import_in_order
from autotune.frontends.onnx.scope import Importing, names_of, renamed
from autotune.graph.ir import ABSENT


def inlined(graph: Any, prefix: str, given: Sequence[str], model: Importing) -> list[str]:
    """Import the nodes of a subgraph, which takes values by their names here; returns its results' names.

    Names of values inside begin with ``prefix``. Raises UnknownParameterError where a result has other shapes in the
    branches of an If.
    """
    results, rest = with_rest(graph, prefix, given, model)
    if rest is not None:
        raise rest.reason
    return results


def with_rest(
    graph: Any, prefix: str, given: Sequence[str], model: Importing
) -> tuple[list[str], Rest | None]:
    """Import a subgraph; where results have other shapes in the branches of an If, return these: they have them."""
    names = {value.name: name for value, name in zip(graph.input, given, strict=True)}
    made = [tensor.name for tensor in graph.initializer]
    made += [value for node in graph.node for value in node.output if value != ABSENT]
    names |= {value: f"{prefix}{value}" for value in made}
    if graph.sparse_initializer:
        raise ModelImportError(f"graph {graph.name!r} has sparse initialisers: not supported")
    for tensor in graph.initializer:
        model.define(names[tensor.name], model.read_tensor(tensor, f"initialiser {tensor.name!r}"))
    results = [names.get(value.name, value.name) for value in graph.output]
    protos = [renamed(node, names, prefix) for node in graph.node]
    model.read.update(results, *(names_of(proto) for proto in protos))
    devices = devices_within(graph, prefix.rstrip("."))

    def step(original: Any, proto: Any) -> ImportStep:
        def imports(which: Any) -> None:
            model.expansion.add(prefix)
            with model.on_device(devices.within(original)):
                model.import_node(which)

        return ImportStep(proto, imports)

    steps = [step(*pair) for pair in zip(graph.node, protos, strict=True)]
    return results, import_in_order(steps, results, model)


__all__ = ["inlined", "with_rest"]
