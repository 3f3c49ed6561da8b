"""TopK (x): k (required), axis (default -1), largest (default 1) -> the first k values along an axis and their places.

They are always in order, as ``sorted`` asks for and its absence allows; of equal elements the first come first, and
every NaN counts as the first of all. Up to 16 elements are kept in a sorted list, up to a quarter of a row in a heap
(n log k), beyond that the row is sorted by merges (n log n). Places are int64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, complete_axis, int_attr
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.sorting import Element, SortedRow, insert_first, merge_sort, ordering, select_first
from autotune.te.dtypes import is_float
from autotune.te.sequential import sequential
from autotune.te.statements import Steps

_FEW = 16
"""So many elements are kept in a sorted list."""
_PART = 4
"""A heap serves where at most one of so many elements is wanted."""


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    complete_axis(types, attrs)


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, axis, k = at(types, 0), int_attr(attrs, "axis"), int_attr(attrs, "k")
    if x.dtype == "bool":
        raise GraphError("TopK does not take bool")
    if not 0 <= k <= x.shape[axis]:
        raise GraphError(f"TopK: k = {k} of the {x.shape[axis]} elements of axis {axis} of {x}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [TensorType(shape, x.dtype), TensorType(shape, "int64")]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, axis, k = at(arrays, 0), int_attr(attrs, "axis"), int_attr(attrs, "k")
    order = first_places(x, axis, bool(int_attr(attrs, "largest")))
    places = np.take(order, np.arange(k), axis=axis)
    return [np.take_along_axis(x, places, axis), places.astype(np.int64)]


def first_places(x: Array, axis: int, largest: bool) -> Array:
    """Return places of elements in order, the largest or the least first, every NaN before all; ties in their order."""
    if is_float(x.dtype.name):
        wide = x.astype(np.float64)
        nan = np.isnan(wide)
        wide = np.where(nan, 0.0, -wide if largest else wide)
        # The last key counts most.
        by_value = np.argsort(wide, axis=axis, kind="stable")
        by_nan = np.argsort(~np.take_along_axis(nan, by_value, axis), axis=axis, kind="stable")
        return np.take_along_axis(by_value, by_nan, axis)
    keys = ~x if largest else x  # unlike -x it never overflows
    return np.asarray(np.argsort(keys, axis=axis, kind="stable"))


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, axis, k = at(tensors, 0), int_attr(attrs, "axis"), int_attr(attrs, "k")
    size, how = x.shape[axis], ordering(x.dtype, bool(int_attr(attrs, "largest")))
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        def read(place: Expr) -> Expr:
            return x(*point[:axis], place, *point[axis + 1 :])

        def element(place: Expr) -> Element:
            return how.element(read(place), place)

        def fill(row: SortedRow) -> None:
            with steps.loop(size, "i") as i:
                row.put(i, element(i))

        if k <= _FEW:
            first = insert_first(steps, how, size, k, element)
        elif k * _PART <= size:
            first = select_first(steps, how, size, k, element)
        else:
            first = merge_sort(steps, how, size, fill)
        with steps.loop(k, "o") as o:
            place = steps.let(how.place(first.at(o)), "place")
            target = (*point[:axis], o, *point[axis + 1 :])
            steps.store(steps.results[0], target, read(place))
            steps.store(steps.results[1], target, place)

    apart = {dim: extent for dim, extent in enumerate(shape) if dim != axis}
    steps = size * max(k, 2).bit_length()
    return sequential(
        shape, (x.dtype, "int64"), [x], build, names, apart=apart, length=steps, keeps_inside=True
    )


define(
    "TopK",
    "sequential",
    (1, 1),
    _infer,
    _reference,
    _compute,
    {"axis": Attribute("int", -1), "k": Attribute("int", required=True), "largest": Attribute("int", 1)},
    _complete,
)
