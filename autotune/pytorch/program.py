"""One graph of PyTorch compiled for inputs of one shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import ModelImportError
from autotune.pytorch.tensors import array_of, digest_of, tensor_of
from autotune.runtime.module import Module

_TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1}
"""The allowed distance of first results from PyTorch's, relative to the largest, where 1e-3 is too strict."""


@dataclass(frozen=True)
class Weight:
    """A tensor that was compiled as a constant: the argument ``index``, or one that the graph itself holds (None).

    PyTorch's counter of writes, ``version``, misses those through ``.data``, through ``.detach().numpy()`` and by
    assigning to ``.data``: the address and a hash of the bytes are compared too. ``digest`` is None where the caller
    promised that nothing writes like that (the option ``weights="fixed"``).
    """

    index: int | None
    tensor: Any
    version: int
    address: int
    digest: int | None

    @classmethod
    def of(cls, index: int | None, tensor: Any, hashed: bool) -> Weight:
        """Record a tensor as it is now."""
        digest = digest_of(tensor) if hashed else None
        return cls(index, tensor, _version_of(tensor), int(tensor.data_ptr()), digest)

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether a call gives that tensor, at that address, with those bytes."""
        argument = self.tensor if self.index is None else arguments[self.index]
        return (
            argument is self.tensor
            and _version_of(argument) == self.version
            and argument.data_ptr() == self.address
            and (self.digest is None or digest_of(argument) == self.digest)
        )


def _version_of(tensor: Any) -> int:
    """Count the writes that PyTorch knows of; tensors of inference mode have no counter."""
    return 0 if tensor.is_inference() else int(tensor._version)


@dataclass(frozen=True)
class ViewResult:
    """A result that is memory of an argument, seen with other sizes."""

    index: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, arguments: Sequence[Any]) -> Any:
        """Return the result of a call."""
        return arguments[self.index].as_strided(self.size, self.stride, self.offset)


@dataclass(frozen=True)
class ConstantResult:
    """A result that is no tensor: the same for all inputs of these shapes."""

    value: Any

    def of(self, arguments: Sequence[Any]) -> Any:
        """Return the result of a call."""
        return self.value


@dataclass(frozen=True)
class TorchProgram:
    """Compiled code for a graph. ``inputs`` are the arguments that the module takes, in its order; ``results`` has what
    a call returns: an output of the module by number, or what needs no module.

    ``error`` is how far the first results were from PyTorch's, relative to the largest value.
    """

    module: Module | None
    inputs: tuple[int, ...]
    weights: tuple[Weight, ...]
    results: tuple[int | ViewResult | ConstantResult, ...]
    seconds: float
    error: float

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether all weights are what they were when it was compiled."""
        return all(weight.holds(arguments) for weight in self.weights)

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results of a call; tensors are fresh memory that nothing else holds."""
        module = self.module
        outputs = [] if module is None else module(*[array_of(arguments[index]) for index in self.inputs])
        return tuple(
            tensor_of(outputs[each]) if isinstance(each, int) else each.of(arguments) for each in self.results
        )


def compiled(
    graph: Callable[..., Any],
    arguments: Sequence[Any],
    weights: Sequence[Weight],
    expected: Sequence[Any],
    options: Mapping[str, Any],
) -> TorchProgram:
    """Compile a graph for arguments like these, the ``weights`` among them as constants.

    ``weights`` were recorded before PyTorch computed ``expected`` of the arguments: a write since then is noticed at
    the next call. Raises ModelImportError for what cannot be compiled, or computes something else.
    """
    begin = time.perf_counter()
    results, wanted = _results(arguments, expected)
    fixed = {weight.index for weight in weights}
    inputs = [index for index, value in enumerate(arguments) if index not in fixed and _is_tensor(value)]
    module, taken = None, tuple(inputs)
    if wanted:
        module, taken = _module(graph, arguments, inputs, wanted, options)
    program = TorchProgram(module, taken, tuple(weights), results, time.perf_counter() - begin, 0.0)
    return _checked(program, arguments, expected)


def _results(
    arguments: Sequence[Any], expected: Sequence[Any]
) -> tuple[tuple[int | ViewResult | ConstantResult, ...], list[int]]:
    """Return the kind of each result, and which ones a module computes."""
    memory = {
        value.untyped_storage().data_ptr(): index
        for index, value in reversed(list(enumerate(arguments)))
        if _is_tensor(value) and value.numel()
    }
    results: list[int | ViewResult | ConstantResult] = []
    wanted: list[int] = []
    for number, value in enumerate(expected):
        if not _is_tensor(value):
            results.append(ConstantResult(value))
            continue
        index = memory.get(value.untyped_storage().data_ptr())
        if index is None or arguments[index].dtype != value.dtype:
            results.append(len(wanted))
            wanted.append(number)
        else:
            results.append(
                ViewResult(index, tuple(value.shape), tuple(value.stride()), int(value.storage_offset()))
            )
    return tuple(results), wanted


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _module(
    graph: Callable[..., Any],
    arguments: Sequence[Any],
    inputs: Sequence[int],
    wanted: Sequence[int],
    options: Mapping[str, Any],
) -> tuple[Module, tuple[int, ...]]:
    """Return the module of the wanted results, and the arguments that it takes."""
    import torch

    import autotune
    from autotune.frontends.torch_export import export_error, to_onnx
    from autotune.pytorch.bound import Bound

    if not inputs:
        raise ModelImportError("it takes no tensor: all of it is constant")
    names = {f"input_{index}": index for index in inputs}
    try:
        with torch.no_grad():
            bound = Bound(graph, arguments, inputs, wanted)
            program = torch.export.export(
                bound, tuple(arguments[index].detach() for index in inputs), strict=False
            )
    except Exception as error:  # tracing runs code of PyTorch and of the model
        raise ModelImportError(f"torch.export cannot trace it: {export_error(error)}") from error
    module = autotune.compile(to_onnx(program, names=list(names)), **options)
    return module, tuple(names[spec.name] for spec in module.inputs)


def _checked(program: TorchProgram, arguments: Sequence[Any], expected: Sequence[Any]) -> TorchProgram:
    """Return the program with the error of its first results; raises ModelImportError where that is large."""
    import dataclasses

    worst = 0.0
    for number, (found, value) in enumerate(zip(program(arguments), expected, strict=True)):
        if not _is_tensor(value):
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


__all__ = ["ConstantResult", "TorchProgram", "ViewResult", "Weight", "compiled"]
