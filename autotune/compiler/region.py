"""A module of a single dispatch, for measuring a schedule and for building one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.errors import InputError
from autotune.graph.ir import Array, TensorType
from autotune.graph.region import Workload
from autotune.passes.layout.views import Placement
from autotune.passes.partition import Dispatch, Partition
from autotune.strides import dense_strides


def region_partition(workload: Workload, arrays: Sequence[Array]) -> Partition:
    """Return the workload as a partition of one dispatch.

    ``arrays`` are all its inputs; those that are constant in the workload become constants. Values
    with strides get a flat root of as many elements as they span.
    """
    graph = workload.region.graph
    if len(arrays) != len(graph.inputs):
        raise InputError(f"the workload has {len(graph.inputs)} inputs, got {len(arrays)}")
    fixed = workload.region.constant_inputs
    placements, types = {}, {}
    for value in (*graph.inputs, *graph.outputs):
        found = graph.type_of(value)
        placements[value] = Placement(value, 0, found.strides or dense_strides(found.shape))
        types[value] = _root_type(found)
    return Partition(
        name="region",
        inputs=tuple(v for v in graph.inputs if v not in fixed),
        outputs=graph.outputs,
        output_names=graph.outputs,
        dispatches=(Dispatch(workload.kind, workload.region, graph.inputs, graph.outputs, workload),),
        placements=placements,
        types=types,
        constants={v: a for v, a in zip(graph.inputs, arrays, strict=True) if v in fixed},
    )


def region_inputs(workload: Workload, arrays: Sequence[Array]) -> list[Array]:
    """Return arguments of the region's module, from all arrays of the workload.

    They are the inputs that are not constant; one with strides is laid out in a flat array.
    """
    graph = workload.region.graph
    return [
        _laid_out(array, graph.type_of(value))
        for value, array in zip(graph.inputs, arrays, strict=True)
        if value not in workload.region.constant_inputs
    ]


def region_outputs(workload: Workload, results: Sequence[Array]) -> list[Array]:
    """Return the workload's outputs in their own shapes, from what the region's module returns."""
    graph = workload.region.graph
    return [
        _strided_view(array, graph.type_of(value))
        for value, array in zip(graph.outputs, results, strict=True)
    ]


def region_gaps(workload: Workload) -> list[Array | None]:
    """Return for each output of the region's module a mask of the elements that are not its own; None if all are."""
    graph = workload.region.graph
    return [_gap(graph.type_of(value)) for value in graph.outputs]


def _gap(tensor_type: TensorType) -> Array | None:
    if tensor_type.strides is None:
        return None
    mask = np.ones(_span(tensor_type), np.bool_)
    _strided_view(mask, tensor_type)[...] = False
    return mask if mask.any() else None


def _span(tensor_type: TensorType) -> int:
    if tensor_type.strides is None:
        return tensor_type.size
    if tensor_type.size == 0:
        return 0
    return 1 + sum(
        (extent - 1) * stride for extent, stride in zip(tensor_type.shape, tensor_type.strides, strict=True)
    )


def _root_type(tensor_type: TensorType) -> TensorType:
    if tensor_type.strides is None:
        return tensor_type
    return TensorType((_span(tensor_type),), tensor_type.dtype)


def _strided_view(flat: Array, tensor_type: TensorType) -> Array:
    if tensor_type.strides is None:
        return flat
    steps = [stride * flat.itemsize for stride in tensor_type.strides]
    return np.lib.stride_tricks.as_strided(flat, tensor_type.shape, steps)


def _laid_out(array: Array, tensor_type: TensorType) -> Array:
    if tensor_type.strides is None:
        return array
    flat = np.zeros(_span(tensor_type), array.dtype)
    _strided_view(flat, tensor_type)[...] = array
    return flat


__all__ = ["region_gaps", "region_inputs", "region_outputs", "region_partition"]
