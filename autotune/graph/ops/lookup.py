"""Elements looked up, or placed, by indices that data hold.

GatherND(data, indices): batch_dims (default 0): the last dimension of indices [..., q] names one of the q dimensions
of data after the batch dimensions each. OneHot(indices, values [2]): depth (required), axis (default -1): values[1]
where the place along the new dimension is the index (negative ones count from the end), values[0] elsewhere.
ReverseSequence(x, lengths [batch]): time_axis (default 0), batch_axis (default 1): the first lengths[b] elements along
time in the opposite order.

The runtime checks indices of GatherND, which read the nearest element where it does not; the reference raises
GraphError for wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, int_attr, positive_axis, stage
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.bounds import settled_index
from autotune.te.dtypes import is_float


def _nd_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    data, indices, batch = at(types, 0), at(types, 1), int_attr(attrs, "batch_dims")
    if indices.dtype not in ("int32", "int64"):
        raise GraphError(f"GatherND: indices are {indices.dtype}, not int32 or int64")
    depth = indices.shape[-1] if indices.rank else 0
    fits = 0 <= batch < indices.rank and depth >= 1 and batch + depth <= data.rank
    if not fits or indices.shape[:batch] != data.shape[:batch]:
        raise GraphError(
            f"GatherND with batch_dims = {batch}: indices {indices.shape} do not fit data {data.shape}"
        )
    shape = (*indices.shape[:-1], *data.shape[batch + depth :])
    if 0 in data.shape[batch : batch + depth] and 0 not in shape:
        raise GraphError(f"GatherND from an empty dimension of {data.shape}")
    return [TensorType(shape, data.dtype)]


def _nd_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    data, indices, batch = at(arrays, 0), at(arrays, 1), int_attr(attrs, "batch_dims")
    depth = indices.shape[-1]
    for q in range(depth):
        extent, column = data.shape[batch + q], indices[..., q]
        wrong = column[(column < -extent) | (column >= extent)]
        if wrong.size:
            raise GraphError(f"GatherND: index {wrong.flat[0]} is out of range for {extent} elements")
    lead = np.indices(indices.shape[:-1], sparse=True)[:batch]
    return [np.asarray(data[(*lead, *(indices[..., q] for q in range(depth)))])]


def _nd_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    data, indices, batch = at(tensors, 0), at(tensors, 1), int_attr(attrs, "batch_dims")
    depth, lead = indices.shape[-1], indices.ndim - 1
    shape = (*indices.shape[:-1], *data.shape[batch + depth :])

    def element(*index: Expr) -> Expr:
        found = [settled_index(indices(*index[:lead], q), data.shape[batch + q]) for q in range(depth)]
        return data(*index[:batch], *found, *index[lead:])

    return [stage(shape, element, names[0])]


def _complete_one_hot(types: Types, attrs: dict[str, Attr]) -> None:
    attrs["axis"] = positive_axis(int_attr(attrs, "axis"), at(types, 0).rank + 1)


def _one_hot_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    indices, values = at(types, 0), at(types, 1)
    axis, depth = int_attr(attrs, "axis"), int_attr(attrs, "depth")
    if values.shape != (2,) or depth < 1 or indices.dtype == "bool":
        raise GraphError(
            f"OneHot of depth {depth}: indices {indices}, values {values}; values are two numbers"
        )
    return [TensorType((*indices.shape[:axis], depth, *indices.shape[axis:]), values.dtype)]


def _one_hot_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    indices, values = at(arrays, 0), at(arrays, 1)
    axis, depth = int_attr(attrs, "axis"), int_attr(attrs, "depth")
    places = indices.astype(np.int64)
    places = np.expand_dims(np.where(places < 0, places + depth, places), axis)
    along = np.arange(depth).reshape([-1 if d == axis else 1 for d in range(places.ndim)])
    return [np.where(along == places, values[1], values[0]).astype(values.dtype)]


def _one_hot_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    indices, values = at(tensors, 0), at(tensors, 1)
    axis, depth = int_attr(attrs, "axis"), int_attr(attrs, "depth")
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])

    def element(*index: Expr) -> Expr:
        found = te.cast(indices(*index[:axis], *index[axis + 1 :]), "int64")
        place = te.if_then_else(found < 0, found + depth, found)
        return te.if_then_else(place.equal(index[axis]), values(1), values(0))

    return [stage(shape, element, names[0])]


def _complete_reverse(types: Types, attrs: dict[str, Attr]) -> None:
    rank = at(types, 0).rank
    for key in ("time_axis", "batch_axis"):
        attrs[key] = positive_axis(int_attr(attrs, key), rank)


def _reverse_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, lengths = at(types, 0), at(types, 1)
    time, batch = int_attr(attrs, "time_axis"), int_attr(attrs, "batch_axis")
    if time == batch or lengths.shape != (x.shape[batch],) or is_float(lengths.dtype):
        raise GraphError(
            f"ReverseSequence of {x} along {time} with batches along {batch}: sequence_lens {lengths} do not fit"
        )
    return [x.dense]


def _reverse_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, lengths = at(arrays, 0), at(arrays, 1)
    time, batch = int_attr(attrs, "time_axis"), int_attr(attrs, "batch_axis")
    extent = x.shape[time]
    places = np.arange(extent)[:, None]
    own = np.clip(lengths.astype(np.int64), 0, extent)[None, :]
    source = np.where(places < own, own - 1 - places, places)  # [time, batch]
    moved = np.moveaxis(x, (time, batch), (0, 1))
    found = moved[source, np.arange(x.shape[batch])[None, :]]
    return [np.ascontiguousarray(np.moveaxis(found, (0, 1), (time, batch)))]


def _reverse_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, lengths = at(tensors, 0), at(tensors, 1)
    time, batch = int_attr(attrs, "time_axis"), int_attr(attrs, "batch_axis")

    def element(*index: Expr) -> Expr:
        own = te.maximum(te.minimum(te.cast(lengths(index[batch]), "int64"), x.shape[time]), 0)
        place = te.if_then_else(own > index[time], own - 1 - index[time], index[time])
        return x(*index[:time], place, *index[time + 1 :])

    return [stage(x.shape, element, names[0])]


define(
    "GatherND",
    "movement",
    (2, 2),
    _nd_infer,
    _nd_reference,
    _nd_compute,
    {"batch_dims": Attribute("int", 0)},
    moves="lookup",
    index_input=1,
    index_tuples=True,
)
define(
    "OneHot",
    "movement",
    (2, 2),
    _one_hot_infer,
    _one_hot_reference,
    _one_hot_compute,
    {"axis": Attribute("int", -1), "depth": Attribute("int", required=True)},
    _complete_one_hot,
    in_onnx=True,
)
define(
    "ReverseSequence",
    "movement",
    (2, 2),
    _reverse_infer,
    _reverse_reference,
    _reverse_compute,
    {"time_axis": Attribute("int", 0), "batch_axis": Attribute("int", 1)},
    _complete_reverse,
)
