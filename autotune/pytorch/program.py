"""Compiled code of one graph for a bucket of its sizes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import ModelImportError
from autotune.pytorch.exported import ExportedGraph
from autotune.pytorch.open_sizes import SizeBucket
from autotune.pytorch.results import Result, is_tensor
from autotune.pytorch.shared import SharedConstants
from autotune.pytorch.tensors import array_of, tensor_of
from autotune.pytorch.weights import RecordedWeights
from autotune.runtime.module import Module

_TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1}
"""The allowed distance of first results from PyTorch's, relative to the largest, where 1e-3 is too strict."""


@dataclass(frozen=True)
class TorchProgram:
    """Compiled code for a graph at sizes in ``buckets``, with ``numbers`` in it.

    ``inputs`` are the arguments that the module takes, in its order; ``results`` has what a call returns: an output of
    the module by number, or what needs no module.

    ``error`` is how far the first results were from PyTorch's, relative to the largest value.
    """

    module: Module | None
    inputs: tuple[int, ...]
    weights: RecordedWeights
    results: tuple[Result, ...]
    buckets: Mapping[str, SizeBucket]
    numbers: tuple[Any, ...]
    seconds: float
    error: float = 0.0

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether all weights are what they were when it was compiled."""
        return self.weights.holds(arguments)

    def serves(self, sizes: Mapping[str, int], numbers: tuple[Any, ...]) -> bool:
        """Return whether it is for such sizes, and has such numbers in it."""
        return numbers == self.numbers and all(
            bucket.holds(sizes[symbol]) for symbol, bucket in self.buckets.items()
        )

    def at(self, sizes: Mapping[str, int]) -> TorchProgram:
        """Return it for one of the sizes that it serves: the same code, with results of these sizes."""
        results = tuple(each if isinstance(each, int) else each.at(sizes) for each in self.results)
        return dataclasses.replace(self, results=results)

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results of a call; tensors are fresh memory that nothing else holds."""
        module = self.module
        outputs = [] if module is None else module(*[array_of(arguments[index]) for index in self.inputs])
        return tuple(
            tensor_of(outputs[each]) if isinstance(each, int) else each.of(arguments) for each in self.results
        )


def compiled(
    graph: ExportedGraph,
    buckets: Mapping[str, SizeBucket],
    options: Mapping[str, Any],
    memory: SharedConstants,
) -> TorchProgram:
    """Compile a graph for sizes in ``buckets``, its constants in ``memory``.

    Raises ModelImportError for what cannot be compiled, and PaddingError where a request's results would depend on what
    lies beyond its sizes."""
    import autotune

    if graph.model is None:
        return TorchProgram(None, (), graph.weights, graph.results, {}, graph.numbers, 0.0)
    begin = time.perf_counter()
    shapes = {symbol: buckets[symbol].text for symbol in graph.symbols}
    with autotune.compile(graph.model, shapes=shapes or None, **options) as made:
        module = Module(made.compiled, memory=memory)
    inputs = tuple(graph.inputs[spec.name] for spec in module.inputs)
    seconds = time.perf_counter() - begin
    return TorchProgram(module, inputs, graph.weights, graph.results, buckets, graph.numbers, seconds)


def checked(program: TorchProgram, arguments: Sequence[Any], expected: Sequence[Any]) -> TorchProgram:
    """Return the program with the error of its first results; raises ModelImportError where that is large."""
    worst = 0.0
    for number, (found, value) in enumerate(zip(program(arguments), expected, strict=True)):
        if not is_tensor(value):
            continue
        if found.shape != value.shape or found.dtype != value.dtype:
            raise ModelImportError(
                f"result {number} is {found.dtype}{list(found.shape)}, PyTorch's {value.dtype}{list(value.shape)}"
            )
        error = _distance(found, value)
        limit = _TOLERANCES.get(str(value.dtype).removeprefix("torch."), 1e-3)
        if not error <= limit:
            raise ModelImportError(
                f"result {number} is {error:.1e} from PyTorch's, relative to the largest value; allowed are {limit:g}"
            )
        worst = max(worst, error)
    return dataclasses.replace(program, error=worst)


def _distance(found: Any, value: Any) -> float:
    """Return the largest difference relative to the largest value; infinite where one is finite and the other not."""
    import torch

    if not value.numel():
        return 0.0
    mine, theirs = found.to(torch.float64), value.detach().to(torch.float64)
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    difference = torch.where(same, 0.0, (mine - theirs).abs()).nan_to_num(nan=torch.inf)
    finite = theirs[theirs.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return float(difference.max()) / (scale or 1.0)


__all__ = ["TorchProgram", "checked", "compiled"]
