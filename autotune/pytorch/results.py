"""The results of a graph: outputs of its compiled code, memory of its arguments, and what is no tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from autotune.pytorch.open_sizes import value_of


@dataclass(frozen=True)
class ViewResult:
    """A result that is memory of an argument, seen with other sizes; these may be expressions in symbols."""

    index: int
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any

    def at(self, sizes: Mapping[str, int]) -> ViewResult:
        """Return it with numbers for expressions."""
        size, stride = (tuple(value_of(each, sizes) for each in of) for of in (self.size, self.stride))
        return ViewResult(self.index, size, stride, value_of(self.offset, sizes))

    def of(self, arguments: Sequence[Any]) -> Any:
        """Return the result of a call."""
        return arguments[self.index].as_strided(self.size, self.stride, self.offset)


@dataclass(frozen=True)
class ConstantResult:
    """A result that is no tensor: the same for all inputs of these shapes, or an expression in symbols."""

    value: Any

    def at(self, sizes: Mapping[str, int]) -> ConstantResult:
        """Return it with a number for an expression."""
        return ConstantResult(value_of(self.value, sizes)) if hasattr(self.value, "xreplace") else self

    def of(self, arguments: Sequence[Any]) -> Any:
        """Return the result of a call."""
        return self.value


Result: TypeAlias = "int | ViewResult | ConstantResult"
"""An output of the compiled code by its number, or what needs none."""


def results_of(
    arguments: Sequence[Any], expected: Sequence[Any], traced: Sequence[Any]
) -> tuple[tuple[Result, ...], list[int]]:
    """Return the kind of each result, and which ones compiled code computes.

    ``expected`` are results for ``arguments``, ``traced`` the same as TorchDynamo knows them, sizes as expressions.
    """
    memory = {
        value.untyped_storage().data_ptr(): index
        for index, value in reversed(list(enumerate(arguments)))
        if is_tensor(value) and value.numel()
    }
    results: list[Result] = []
    wanted: list[int] = []
    for number, (value, symbolic) in enumerate(zip(expected, traced, strict=True)):
        if not is_tensor(value):
            results.append(ConstantResult(_expression(symbolic, value)))
            continue
        index = memory.get(value.untyped_storage().data_ptr())
        if index is None or arguments[index].dtype != value.dtype:
            results.append(len(wanted))
            wanted.append(number)
        else:
            results.append(_view(index, value, symbolic if is_tensor(symbolic) else value))
    return tuple(results), wanted


def _view(index: int, value: Any, symbolic: Any) -> ViewResult:
    size, stride = (
        tuple(map(_expression, of, each))
        for of, each in ((symbolic.shape, value.shape), (symbolic.stride(), value.stride()))
    )
    return ViewResult(index, size, stride, _expression(symbolic.storage_offset(), value.storage_offset()))


def _expression(symbolic: Any, value: Any) -> Any:
    """Return the expression of a symbolic number; the value that it had here for anything else."""
    node = getattr(symbolic, "node", None)
    expression = getattr(node, "expr", None)
    return value if expression is None or expression.is_number else expression


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch."""
    import torch

    return isinstance(value, torch.Tensor)


__all__ = ["ConstantResult", "Result", "ViewResult", "is_tensor", "results_of"]
