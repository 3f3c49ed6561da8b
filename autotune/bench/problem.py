"""A problem: one computation, as our graph and as the ONNX model that the peers get."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.graph.ir import Array, Graph

if TYPE_CHECKING:
    import onnx

Permutation = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """One computation in both forms, with the same weights and inputs.

    Peers may want another layout: their input ``name`` is ours transposed by ``to_peer[name]``, and
    their outputs, transposed by ``from_peer``, are ours. ``model`` is None where no peer takes part.
    """

    graph: Graph
    inputs: Mapping[str, Array]
    model: onnx.ModelProto | None = None
    to_peer: Mapping[str, Permutation] = field(default_factory=dict)
    from_peer: Permutation | None = None

    def peer_input(self, name: str) -> Array:
        """An input as the peers take it."""
        array = self.inputs[name]
        return np.ascontiguousarray(array.transpose(self.to_peer[name])) if name in self.to_peer else array

    def our_output(self, array: Array) -> Array:
        """A peer's output in our layout."""
        return array if self.from_peer is None else array.transpose(self.from_peer)

    @property
    def bytes(self) -> int:
        """Bytes of inputs, constants and outputs: what has to move at least once."""
        graph = self.graph
        names = {*graph.inputs, *graph.outputs, *graph.constants}
        return sum(graph.type_of(name).nbytes for name in names)

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        from autotune.graph import ops

        graph = self.graph
        return sum(ops.get(n.op).flops(graph.input_types(n), n.attrs) for n in graph.nodes)


@dataclass(frozen=True)
class BenchmarkCase:
    """A problem that can be built: its ``family`` and ``name`` in tables."""

    family: str
    name: str
    build: Callable[[], Problem] = field(compare=False)


def write_inputs(problem: Problem, folder: Path, *, peer: bool) -> dict[str, str]:
    """Write the inputs as .npy files; their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for index, name in enumerate(problem.inputs):
        paths[name] = str(folder / f"{index}.npy")
        np.save(paths[name], problem.peer_input(name) if peer else problem.inputs[name])
    return paths


def write_onnx(model: onnx.ModelProto, path: Path) -> str:
    """Write a model for peers that read ONNX; its path."""
    import onnx

    onnx.save(model, str(path))
    return str(path)


def write_recipe(model: onnx.ModelProto, folder: Path) -> str:
    """Write nodes as JSON and constants as .npy, for peers that read no ONNX; the folder."""
    from onnx import helper, numpy_helper

    graph = model.graph
    nodes = [
        {
            "op": node.op_type,
            "inputs": list(node.input),
            "outputs": list(node.output),
            "attrs": {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute},
        }
        for node in graph.node
    ]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return _write_recipe(folder, nodes, [value.name for value in graph.output], constants)


def write_graph(problem: Problem, folder: Path, tuned: Path) -> str:
    """Write our graph as a recipe and as text, for peers that take our layout; the folder.

    ``tuned`` is the folder where such a peer keeps what its tuner found.
    """
    from autotune.graph.text import print_graph

    graph = problem.graph
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.txt").write_text(print_graph(graph, graph.constants))
    nodes = [
        {"op": node.op, "inputs": list(node.inputs), "outputs": list(node.outputs), "attrs": dict(node.attrs)}
        for node in graph.nodes
    ]
    return _write_recipe(folder, nodes, graph.outputs, graph.constants, tuned=str(tuned.resolve()))


def _write_recipe(
    folder: Path,
    nodes: Sequence[Mapping[str, Any]],
    outputs: Sequence[str],
    constants: Mapping[str, Array],
    **more: str,
) -> str:
    (folder / "constants").mkdir(parents=True, exist_ok=True)
    for number, array in enumerate(constants.values()):  # a name may hold what no file name may
        np.save(folder / "constants" / f"{number}.npy", array)
    recipe = {"nodes": nodes, "outputs": list(outputs), "constants": list(constants), **more}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return str(folder)


def _plain(value: Any) -> Any:
    """An attribute as JSON."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, (int, float, str)) else list(value)


__all__ = [
    "BenchmarkCase",
    "Permutation",
    "Problem",
    "write_graph",
    "write_inputs",
    "write_onnx",
    "write_recipe",
]
