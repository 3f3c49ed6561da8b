"""Which indices of a model are checked while it runs, and where they lie; constant ones are checked here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autotune.compiler.hoist import argument_value
from autotune.errors import GraphError, InternalError
from autotune.graph import ops
from autotune.graph.ir import Node
from autotune.passes.attributes import integer
from autotune.passes.partition import Dispatch, Partition
from autotune.runtime.image import Binding, IndexCheck

Locate = Callable[[str, int, int], Binding]
"""Binding of a value's memory: its name, the first element and the number of elements that are touched."""


def index_checks(
    partition: Partition, dispatch: Dispatch, number: int, command: int, locate: Locate
) -> Iterator[IndexCheck]:
    """The checks of a dispatch, which is ``number`` and begins with a command of the image.

    Raises:
        GraphError: a constant index is out of range.
    """
    for node in dispatch.workload.region.graph.nodes:
        position = ops.get(node.op).index_input
        if position is None:
            continue
        data = dispatch.workload.region.graph.type_of(node.inputs[0])
        axis = integer(node, "axis")
        if node.inputs[position] not in dispatch.workload.region.graph.inputs:
            raise InternalError(f"{dispatch.name} computes the indices that it reads: nothing checks them")
        value = argument_value(dispatch, node.inputs[position])
        placement, found = partition.placements[value], partition.types[value]
        if placement.root in partition.constants:
            _check_constant(partition, dispatch, node, value, data.shape[axis])
            continue
        width = np.dtype(found.dtype).itemsize
        for offset, runs, stride, count in _runs(found.shape, placement.strides):
            if runs * count:
                binding = locate(value, offset, (runs - 1) * stride + count)
                yield IndexCheck(
                    command, number, binding, width, runs, stride * width, count, data.shape[axis], axis
                )


def _check_constant(partition: Partition, dispatch: Dispatch, node: Node, value: str, extent: int) -> None:
    placement, found = partition.placements[value], partition.types[value]
    flat = partition.constants[placement.root].reshape(-1)[placement.offset :]
    steps = [stride * flat.itemsize for stride in placement.strides]
    indices = np.lib.stride_tricks.as_strided(flat, found.shape, steps)
    wrong = indices[(indices < -extent) | (indices >= extent)]
    if wrong.size:
        origins = ", ".join(dispatch.origins) or dispatch.name
        raise GraphError(
            f"{node.op} of {origins}: constant index {wrong.flat[0]} is out of range\n"
            f"  axis {node.attrs['axis']} has {extent} elements: indices are from {-extent} to {extent - 1}"
        )


def _runs(shape: Sequence[int], strides: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """A strided value as (first element, number of runs, elements from one to the next, elements of each)."""
    outer = [pair for pair in zip(shape, strides, strict=True) if pair[0] != 1]
    count = 1
    while outer and outer[-1][1] == count:
        count *= outer.pop()[0]
    runs, stride = outer.pop() if outer else (1, 0)
    for index in itertools.product(*(range(extent) for extent, _ in outer)):
        yield sum(i * step for i, (_, step) in zip(index, outer, strict=True)), runs, stride, count


__all__ = ["index_checks"]
