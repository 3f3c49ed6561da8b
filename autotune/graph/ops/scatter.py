"""Tensors with some elements replaced, or combined with others.

ScatterElements(data, indices, updates): axis (default 0), reduction "none", "add", "mul", "max" or "min".
ScatterND(data, indices, updates): reduction; the last dimension of indices [..., q] names one of the first q
dimensions of data each. Updates are applied in the order in which they stand. Negative indices count from the end;
wrong ones change nothing where the runtime does not refuse them, and the reference raises GraphError.
TensorScatter(past, update, write_indices?, count?): axis (default -2), mode "linear" or "circular": writes update into
past from the place on that write_indices [batch] (zeros without it) says; elements beyond the end are dropped, or go on
from the beginning. Of update only the first ``count`` along the axis are written, all without it.

te: sequential kernels copy the data, each point a part of it, and apply those updates that are in that part.
TensorScatter copies nothing where its result lies in the memory of past: a cache that grows in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    accumulated_in,
    at,
    complete_axis,
    delinear,
    int_attr,
    optional,
    positive_axis,
    require_same_dtype,
    stage,
    str_attr,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.expr import negate
from autotune.te.sequential import sequential
from autotune.te.statements import Steps

REDUCTION = Attribute("str", "none", choices=("none", "add", "mul", "max", "min"))
_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": te.maximum,
    "min": te.minimum,
}
_NUMPY: dict[str, Callable[[Any, Any], Any]] = {**_FOLDS, "max": np.maximum, "min": np.minimum}
_LANES = 64
_CHECKS = 8
"""Parts of the data look through all updates where that is at most one update for so many elements copied."""


def _require_indices(name: str, indices: TensorType) -> None:
    if indices.dtype not in ("int32", "int64"):
        raise GraphError(f"{name}: indices are {indices.dtype}, not int32 or int64")


def _folded(old: Expr, new: Expr, attrs: Attrs) -> Expr:
    """Return the new value of an element; bool is or, and, as numbers are max and min."""
    how, dtype = str_attr(attrs, "reduction"), old.dtype
    if how == "none":
        return new
    wide = "int32" if dtype == "bool" else accumulated_in(dtype)
    found = _FOLDS[how](te.cast(old, wide), te.cast(new, wide))
    return found != 0 if dtype == "bool" else te.cast(found, dtype)


def _folded_arrays(old: Any, new: Any, attrs: Attrs) -> Any:
    how = str_attr(attrs, "reduction")
    if how == "none":
        return new
    wide = np.dtype(accumulated_in(old.dtype.name))
    return _NUMPY[how](old.astype(wide), new.astype(wide)).astype(old.dtype)


def copy_rows(
    steps: Steps, target: te.Tensor, source: te.Tensor, lead: Sequence[Expr], shape: Sequence[int]
) -> None:
    """Copy what lies behind the indices ``lead``, dimensions of ``shape``, neighbours in vectors."""
    count = math.prod(shape)
    blocks = count // _LANES

    def copy(position: Expr) -> None:
        index = (*lead, *delinear(position, shape))
        steps.store(target, index, source(*index))

    if len(shape) and shape[-1] % _LANES == 0:
        with steps.loop(blocks, "block") as block, steps.loop(_LANES, "lane", "vectorized") as lane:
            copy(block * _LANES + lane)
        return
    columns = shape[-1] if shape else 1
    with steps.loop(count // max(columns, 1), "row") as row, steps.loop(columns, "column") as column:
        copy(row * columns + column)


def _wrapped(steps: Steps, index: Expr, extent: int) -> Expr:
    """Return an index counted from the front."""
    found = steps.let(te.cast(index, "int64"), "index")
    return steps.let(te.if_then_else(found < 0, found + extent, found), "index")


def _inside(index: Expr, extent: int) -> Expr:
    return te.all(index >= 0, index < extent)


# -- ScatterElements -----------------------------------------------------------------------------------------


def _elements_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    data, indices, updates = (at(types, i) for i in range(3))
    axis = int_attr(attrs, "axis")
    require_same_dtype("ScatterElements", [data, updates])
    _require_indices("ScatterElements", indices)
    fits = len(indices.shape) == data.rank and all(
        i <= d for a, (i, d) in enumerate(zip(indices.shape, data.shape, strict=True)) if a != axis
    )
    if not fits or indices.shape != updates.shape:
        raise GraphError(
            f"ScatterElements on axis {axis}: indices {indices.shape} and updates {updates.shape} do not fit "
            f"data {data.shape}"
        )
    return [data.dense]


def _elements_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    data, indices, updates = (at(arrays, i) for i in range(3))
    axis, found = int_attr(attrs, "axis"), at(arrays, 0).copy()
    for place in itertools.product(*(range(d) for d in indices.shape)):
        index = int(indices[place])
        _check_index("ScatterElements", index, data.shape[axis])
        target = (*place[:axis], index, *place[axis + 1 :])
        found[target] = _folded_arrays(found[target], updates[place], attrs)
    return [found]


def _check_index(name: str, index: int, extent: int) -> None:
    if not -extent <= index < extent:
        raise GraphError(f"{name}: index {index} is out of range for {extent} elements")


def _elements_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    data, indices, updates = (at(tensors, i) for i in range(3))
    axis = int_attr(attrs, "axis")
    shape, extent = data.shape, data.shape[axis]

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        out, lead = steps.results[0], point[:axis]
        copy_rows(steps, out, data, lead, shape[axis:])
        if 0 in indices.shape:
            return
        inner = indices.shape[axis:]
        reached = te.all(*(p < d for p, d in zip(lead, indices.shape, strict=False) if d != 0))
        with steps.when(reached), steps.loop(math.prod(inner), "update") as update:
            place = (*lead, *delinear(update, inner))
            index = _wrapped(steps, indices(*place), extent)
            with steps.when(_inside(index, extent)):
                target = (*place[:axis], index, *place[axis + 1 :])
                steps.store(out, target, _folded(out(*target), updates(*place), attrs))

    apart = {dim: shape[dim] for dim in range(axis)}
    length = math.prod(shape[axis:]) + math.prod(indices.shape[axis:])
    return sequential(
        shape,
        (data.dtype,),
        [data, indices, updates],
        build,
        names,
        apart=apart,
        length=length,
        keeps_inside=True,
    )


# -- ScatterND -----------------------------------------------------------------------------------------------


def _nd_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    data, indices, updates = (at(types, i) for i in range(3))
    require_same_dtype("ScatterND", [data, updates])
    _require_indices("ScatterND", indices)
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= data.rank or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        raise GraphError(
            f"ScatterND: indices {indices.shape} and updates {updates.shape} do not fit data {data.shape}\n"
            f"  updates have the shape of indices less its last dimension q, then the dimensions of data from q on"
        )
    return [data.dense]


def _nd_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    data, indices, updates = (at(arrays, i) for i in range(3))
    found = data.copy()
    for place in np.ndindex(indices.shape[:-1]):
        target = tuple(int(i) for i in indices[place])
        for index, extent in zip(target, data.shape, strict=False):
            _check_index("ScatterND", index, extent)
        found[target] = _folded_arrays(np.asarray(found[target]), np.asarray(updates[place]), attrs)
    return [found]


def _nd_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    data, indices, updates = (at(tensors, i) for i in range(3))
    shape, depth = data.shape, indices.shape[-1]
    count = math.prod(indices.shape[:-1])
    # Parts of the first dimension look through all updates, where those are few.
    parts = len(shape) > 1 and shape[0] * count * _CHECKS <= math.prod(shape)
    lead = 1 if parts else 0

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        out = steps.results[0]
        copy_rows(steps, out, data, point[:lead], shape[lead:])
        if 0 in updates.shape:
            return
        with steps.loop(count, "update") as update:
            place = delinear(update, indices.shape[:-1])
            target = [_wrapped(steps, indices(*place, q), shape[q]) for q in range(depth)]
            mine = [target[0] == point[0]] if parts else []
            with steps.when(te.all(*(_inside(i, d) for i, d in zip(target, shape, strict=False)), *mine)):
                inner = shape[depth:]
                with steps.loop(math.prod(inner), "element") as element:
                    rest = delinear(element, inner)
                    index = (*target, *rest)
                    new = updates(*place, *rest)
                    steps.store(out, index, _folded(out(*index), new, attrs))

    apart = {0: shape[0]} if parts else {}
    length = math.prod(shape[lead:]) + math.prod(updates.shape)
    return sequential(
        shape,
        (data.dtype,),
        [data, indices, updates],
        build,
        names,
        apart=apart,
        length=length,
        keeps_inside=True,
    )


# -- TensorScatter -------------------------------------------------------------------------------------------


def _complete_tensor(types: Types, attrs: dict[str, Attr]) -> None:
    attrs["axis"] = positive_axis(int_attr(attrs, "axis"), at(types, 0).rank)


def _tensor_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    past, update, axis = at(types, 0), at(types, 1), int_attr(attrs, "axis")
    starts: TensorType | None = optional(types, 2)
    require_same_dtype("TensorScatter", [past, update])
    fits = update.rank == past.rank and all(
        u <= p if d == axis else u == p for d, (u, p) in enumerate(zip(update.shape, past.shape, strict=True))
    )
    if not fits or not axis:
        raise GraphError(f"TensorScatter on axis {axis}: update {update.shape} does not fit {past.shape}")
    if starts is not None:
        _require_indices("TensorScatter", starts)
        if starts.shape != past.shape[:1]:
            raise GraphError(f"TensorScatter: write_indices {starts.shape} for a batch of {past.shape[0]}")
    count: TensorType | None = optional(types, 3)
    if count is not None and (count.dtype != "int64" or count.size != 1):
        raise GraphError(f"TensorScatter: count is {count}, not one int64")
    return [past.dense]


def _tensor_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    past, update, axis = at(arrays, 0), at(arrays, 1), int_attr(attrs, "axis")
    starts: Array | None = optional(arrays, 2)
    count: Array | None = optional(arrays, 3)
    found, extent = past.copy(), past.shape[axis]
    written = update.shape[axis] if count is None else min(update.shape[axis], int(count.reshape(-1)[0]))
    for batch in range(past.shape[0]):
        start = 0 if starts is None else int(starts[batch])
        for step in range(written):
            place = start + step
            if str_attr(attrs, "mode") == "circular":
                place %= extent
            if 0 <= place < extent:
                np.moveaxis(found[batch], axis - 1, 0)[place] = np.moveaxis(update[batch], axis - 1, 0)[step]
    return [found]


def _tensor_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    past, update, axis = at(tensors, 0), at(tensors, 1), int_attr(attrs, "axis")
    starts: te.Tensor | None = optional(tensors, 2)
    count: te.Tensor | None = optional(tensors, 3)
    shape, written = past.shape, update.shape[axis]
    limit = te.const(shape[axis], "int64")

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        out, lead = steps.results[0], point[:axis]
        with steps.when(negate(te.overwritten(past(*(0 for _ in shape))))):
            copy_rows(steps, out, past, lead, shape[axis:])
        start = te.const(0, "int64") if starts is None else te.cast(starts(point[0]), "int64")
        start = steps.let(start, "start")
        with steps.loop(written, "step") as step:
            place = start + step
            if str_attr(attrs, "mode") == "circular":
                place = te.floormod(place, limit)
            place = steps.let(place, "place")
            given = [] if count is None else [step < count(*(0 for _ in count.shape))]
            with steps.when(te.all(_inside(place, shape[axis]), *given)):
                rows = shape[axis + 1 :]
                with steps.loop(math.prod(rows), "element") as element:
                    behind = delinear(element, rows)
                    steps.store(out, (*lead, place, *behind), update(*lead, step, *behind))

    if 0 in shape:
        return [stage(shape, lambda *i: past(*i), names[0])]
    return sequential(
        shape,
        (past.dtype,),
        [each for each in (past, update, starts, count) if each is not None],
        build,
        names,
        apart=dict(enumerate(shape[:axis])),
        length=math.prod(update.shape[axis:]),
        keeps_inside=True,
    )


define(
    "ScatterElements",
    "sequential",
    (3, 3),
    _elements_infer,
    _elements_reference,
    _elements_compute,
    {"axis": Attribute("int", 0), "reduction": REDUCTION},
    complete_axis,
    index_input=1,
)
define(
    "ScatterND",
    "sequential",
    (3, 3),
    _nd_infer,
    _nd_reference,
    _nd_compute,
    {"reduction": REDUCTION},
    index_input=1,
    index_tuples=True,
)
define(
    "TensorScatter",
    "sequential",
    (2, 4),
    _tensor_infer,
    _tensor_reference,
    _tensor_compute,
    {"axis": Attribute("int", -2), "mode": Attribute("str", "linear", choices=("linear", "circular"))},
    _complete_tensor,
)
