"""Indices of a model that are checked while it runs, and their memory; constant ones are checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autotune.compiler.hoist import argument_value
from autotune.errors import GraphError, InternalError
from autotune.graph import ops
from autotune.graph.ir import Node
from autotune.graph.ops.definition import Types
from autotune.passes.partition import Condition, Dispatch, Partition
from autotune.runtime.image import Binding, IndexCheck
from autotune.strides import strided_runs

Locate = Callable[[str, int, int], Binding]
"""Binding of a value's memory: its name, the first element and the number of elements that are touched."""


def index_checks(
    partition: Partition, dispatch: Dispatch, number: int, command: int, locate: Locate
) -> Iterator[IndexCheck]:
    """Yield the checks of a dispatch, which is ``number`` and begins with a command of the image.

    Raises:
        GraphError: a constant index is out of range.
    """
    for node in dispatch.workload.region.graph.nodes:
        position = ops.get(node.op).index_input
        if position is None:
            continue
        types = dispatch.workload.region.graph.input_types(node)
        if node.inputs[position] not in dispatch.workload.region.graph.inputs:
            raise InternalError(f"{dispatch.name} computes the indices that it reads: nothing checks them")
        value = argument_value(dispatch, node.inputs[position])
        for column in _columns(node, partition, value, types):
            if partition.placements[value].root in partition.constants:
                _check_constant(partition, dispatch, node, value, column)
                continue
            width = np.dtype(partition.types[value].dtype).itemsize
            for first, runs, stride, count in strided_runs(column.shape, column.strides):
                if runs * count:
                    binding = locate(value, column.offset + first, (runs - 1) * stride + count)
                    checked = (runs, stride * width, count, column.extent, column.axis)
                    yield IndexCheck(command, number, binding, width, *checked, len(guards_of(dispatch)))


def guards_of(dispatch: Dispatch) -> list[Condition]:
    """Return the conditions that decide whether a dispatch runs."""
    return [condition for condition in dispatch.conditions if not condition.refusal]


def indexed_values(dispatch: Dispatch) -> set[str]:
    """Return the operands of a dispatch that are indices."""
    graph = dispatch.workload.region.graph
    positions = ((node, ops.get(node.op).index_input) for node in graph.nodes)
    names = {node.inputs[position] for node, position in positions if position is not None}
    return {argument_value(dispatch, name) for name in names if name in graph.inputs}


@dataclass(frozen=True)
class _Column:
    """Indices along one axis of ``extent`` elements, where they lie in their value's memory."""

    axis: int
    extent: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _columns(node: Node, partition: Partition, value: str, types: Types) -> list[_Column]:
    """Return the indices along each axis that a node chooses elements along."""
    definition, data = ops.get(node.op), types[0]
    shape, strides = partition.types[value].shape, partition.placements[value].strides
    assert data is not None
    axes = definition.indexed_axes(types, node.attrs)
    if not definition.index_tuples:
        return [_Column(axis, data.shape[axis], 0, shape, strides) for axis in axes]
    return [
        _Column(axis, data.shape[axis], number * strides[-1], shape[:-1], strides[:-1])
        for number, axis in enumerate(axes)
    ]


def _check_constant(
    partition: Partition, dispatch: Dispatch, node: Node, value: str, column: _Column
) -> None:
    placement, extent = partition.placements[value], column.extent
    flat = partition.constants[placement.root].reshape(-1)[placement.offset + column.offset :]
    steps = [stride * flat.itemsize for stride in column.strides]
    indices = np.lib.stride_tricks.as_strided(flat, column.shape, steps)
    wrong = indices[(indices < -extent) | (indices >= extent)]
    if wrong.size:
        origins = ", ".join(dispatch.origins) or dispatch.name
        raise GraphError(
            f"{node.op} of {origins}: constant index {wrong.flat[0]} is out of range\n"
            f"  axis {column.axis} has {extent} elements: indices are from {-extent} to {extent - 1}"
        )


__all__ = ["guards_of", "index_checks", "indexed_values"]
