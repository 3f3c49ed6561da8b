"""One graph of PyTorch as an ONNX model, its open sizes by TorchDynamo's symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import ModelImportError
from autotune.frontends.models import ReadModel, declared_shapes, read_model
from autotune.frontends.sizes import open_names
from autotune.frontends.torch_export import export_error, to_onnx
from autotune.pytorch.open_sizes import OpenSizes
from autotune.pytorch.results import Result, is_tensor, results_of
from autotune.pytorch.weights import RecordedWeights


@dataclass(frozen=True)
class TracedGraph:
    """A graph as TorchDynamo made it: an ``fx.GraphModule``, its open sizes, and its results as it knows them."""

    module: Any
    sizes: OpenSizes
    results: Sequence[Any]

    @classmethod
    def of(cls, module: Any, examples: Sequence[Any]) -> TracedGraph:
        """Return a graph with what its nodes tell."""
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        results = [getattr(each, "meta", {}).get("example_value", each) for each in output.args[0]]
        return cls(module, OpenSizes.of(placeholders, examples), results)


@dataclass(frozen=True)
class ExportedGraph:
    """A graph as a model that takes the arguments ``inputs`` by name, with ``weights`` and ``numbers`` as constants.

    It leaves the sizes ``symbols`` open. Without ``model`` all ``results`` are views of arguments or numbers."""

    model: ReadModel | None
    inputs: Mapping[str, int]
    symbols: tuple[str, ...]
    weights: RecordedWeights
    numbers: tuple[Any, ...]
    results: tuple[Result, ...]

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether all weights are what they were when it was exported."""
        return self.weights.holds(arguments)


def exported(
    graph: TracedGraph, arguments: Sequence[Any], weights: RecordedWeights, expected: Sequence[Any]
) -> ExportedGraph:
    """Export a graph, the ``weights`` among its arguments as constants.

    ``weights`` were recorded before PyTorch computed ``expected`` of the arguments: a write since then is noticed at
    the next call. A graph that cannot be exported with open sizes is exported for those of the arguments. Raises
    ModelImportError.
    """
    results, wanted = results_of(arguments, expected, graph.results)
    inputs = {
        f"input_{i}": i for i, value in enumerate(arguments) if i not in weights.places and is_tensor(value)
    }
    inputs = {name: index for name, index in inputs.items() if index not in graph.sizes.numbers}
    numbers = graph.sizes.numbers_of(arguments)
    if not wanted:
        return ExportedGraph(None, {}, (), weights, numbers, results)
    if not inputs:
        raise ModelImportError("it takes no tensor: all of it is constant")
    model, symbols = _model(graph, arguments, inputs, wanted)
    return ExportedGraph(model, inputs, symbols, weights, numbers, results)


def _model(
    graph: TracedGraph, arguments: Sequence[Any], inputs: Mapping[str, int], wanted: Sequence[int]
) -> tuple[ReadModel, tuple[str, ...]]:
    """Return the model of the wanted results, and its open sizes."""
    if graph.sizes.places:
        try:
            return _open_model(graph, arguments, inputs, wanted)
        except ModelImportError:
            pass  # it is one for the sizes of these arguments, or the next line says why not
    return read_model(_proto(graph, arguments, inputs, wanted, {})), ()


def _open_model(
    graph: TracedGraph, arguments: Sequence[Any], inputs: Mapping[str, int], wanted: Sequence[int]
) -> tuple[ReadModel, tuple[str, ...]]:
    axes = {
        index: {
            axis: str(extent)
            for axis, extent in enumerate(graph.sizes.shapes[index])
            if not isinstance(extent, int)
        }
        for index in inputs.values()
    }
    proto = _proto(graph, arguments, inputs, wanted, axes)
    for value in proto.graph.input:
        for axis, text in axes[inputs[value.name]].items():
            dimension = value.type.tensor_type.shape.dim[axis]
            if dimension.HasField("dim_value"):
                raise ModelImportError(f"the exporter fixes {text} = {dimension.dim_value}")
            dimension.dim_param = text
    model = read_model(proto)
    names = open_names(declared_shapes(model))
    unknown = [name for name in names if name not in graph.sizes.places]
    if unknown:
        raise ModelImportError(f"its sizes are no sums of symbols: {unknown[0]}")
    return model, tuple(names)


def _proto(
    graph: TracedGraph,
    arguments: Sequence[Any],
    inputs: Mapping[str, int],
    wanted: Sequence[int],
    axes: Mapping[int, Mapping[int, str]],
) -> Any:
    """Return the ONNX model of the wanted results, ``axes`` of the inputs open."""
    import torch

    from autotune.pytorch.bound import Bound

    sizes, order = graph.sizes, tuple(inputs.values())
    extents = {index: sizes.places[symbol] for index, symbol in sizes.symbols.items()} if axes else {}
    tensors = tuple(arguments[index].detach() for index in order)
    dynamic = (tuple(dict.fromkeys(axes.get(index, {}), torch.export.Dim.AUTO) for index in order),)
    try:
        with torch.no_grad():
            bound = Bound(graph.module, arguments, order, wanted, extents, sizes.numbers)
            program = torch.export.export(
                bound, tensors, dynamic_shapes=dynamic if axes else None, strict=False
            )
    except Exception as error:  # tracing runs code of PyTorch and of the model
        raise ModelImportError(f"torch.export cannot trace it: {export_error(error)}") from error
    return to_onnx(program, names=list(inputs))


__all__ = ["ExportedGraph", "TracedGraph", "exported"]
