"""A graph with some of its arguments fixed, as a module that ``torch.export`` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


class Bound(nn.Module):
    """A graph as a function of the arguments ``inputs``; the others are as they are given here: tensors are constants,
    numbers are part of the program. It returns the results ``wanted``."""

    def __init__(
        self,
        graph: Callable[..., Any],
        arguments: Sequence[Any],
        inputs: Sequence[int],
        wanted: Sequence[int],
    ) -> None:
        super().__init__()
        self._graph = (graph,)  # in a tuple, or its parameters would be this module's
        self._inputs = tuple(inputs)
        self._wanted = tuple(wanted)
        self._numbers: dict[int, Any] = {}
        self._count = len(arguments)
        for index, value in enumerate(arguments):
            if index in self._inputs:
                continue
            if isinstance(value, torch.Tensor):
                self.register_buffer(f"fixed_{index}", value.detach())
            else:
                self._numbers[index] = value

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the wanted results."""
        given = dict(zip(self._inputs, tensors, strict=True))
        arguments = [self._argument(index, given) for index in range(self._count)]
        results = self._graph[0](*arguments)
        return tuple(results[number] for number in self._wanted)

    def _argument(self, index: int, given: dict[int, torch.Tensor]) -> Any:
        if index in given:
            return given[index]
        return self._numbers[index] if index in self._numbers else getattr(self, f"fixed_{index}")


__all__ = ["Bound"]
