"""A graph with some of its arguments fixed, as a module that ``torch.export`` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from autotune.pytorch.flex_attention import has_flex_attention, write_plainly
from autotune.pytorch.open_sizes import Place


class Bound(nn.Module):
    """A graph as a function of the arguments ``inputs``; the others are as they are given here: tensors are constants,
    numbers are part of the program. It returns the results ``wanted``.

    Arguments in ``extents`` are sizes of inputs, ``numbers`` are given as tensors and read as what they hold."""

    def __init__(
        self,
        graph: fx.GraphModule,
        arguments: Sequence[Any],
        inputs: Sequence[int],
        wanted: Sequence[int],
        extents: Mapping[int, Place],
        numbers: Sequence[int],
    ) -> None:
        super().__init__()
        scalars = {
            index: arguments[index].item() for index in numbers if isinstance(arguments[index], torch.Tensor)
        }
        own = _rewritten(graph, scalars) if scalars or has_flex_attention(graph.graph) else graph
        self._graph = (own.forward,)  # in a tuple, or its parameters would be this module's
        self._inputs = tuple(inputs)
        self._wanted = tuple(wanted)
        self._extents = dict(extents)
        self._numbers: dict[int, Any] = {}
        self._count = len(arguments)
        for index, value in enumerate(arguments):
            if index in self._inputs or index in self._extents:
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
        if index in self._extents:
            tensor, axis = self._extents[index]
            return given[tensor].shape[axis]
        return self._numbers[index] if index in self._numbers else getattr(self, f"fixed_{index}")


def _rewritten(graph: fx.GraphModule, numbers: Mapping[int, Any]) -> fx.GraphModule:
    """Return a graph in which numbers stand for what is read of the arguments that hold them, and FlexAttention is
    plain operators."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    placeholders = [node for node in copy.nodes if node.op == "placeholder"]
    for index, number in numbers.items():
        for item in list(placeholders[index].users):
            for user in list(item.users):
                user.args = fx.map_arg(
                    user.args, lambda node, item=item, number=number: number if node is item else node
                )
                user.kwargs = fx.map_arg(
                    user.kwargs, lambda node, item=item, number=number: number if node is item else node
                )
            copy.erase_node(item)
    write_plainly(copy)
    return fx.GraphModule(graph, copy)


__all__ = ["Bound"]
