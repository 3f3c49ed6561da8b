"""Resize(x), Interpolate(x): images of another size; Resize takes the nearest element, Interpolate blends several.

Element i of the result along ``axes[k]``, which gets ``size[k]`` elements, is that of x at the place
``(i * steps[k] + starts[k]) / units[k]``: all of ONNX's coordinate transformations are of this form, and integers say
it exactly. Resize takes the element at the place rounded down (ways of rounding differ in ``starts`` alone),
Interpolate blends the two elements around it (mode "linear") or four of them (mode "cubic", Keys' kernel with its
parameter ``coefficient``); beyond its ends a dimension goes on with its last element.

te stages: one. Resize is a rearrangement: it may be computed where its result is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    float_attr,
    ints_attr,
    positive_axis,
    require_float,
    stage,
    str_attr,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.wide import define_in_float32

LISTS = ("size", "starts", "steps", "units")
"""Attributes with an entry for each of the axes."""
_INT32 = 1 << 31
_EXACT = 1 << 20
"""Places that a float32 holds with half a unit, and divides to less than half a unit of error."""


@dataclass(frozen=True)
class Map:
    """The places of the elements of a result along one axis of x, which has ``extent`` elements."""

    axis: int
    extent: int
    size: int
    start: int
    step: int
    unit: int

    def place(self, i: Any) -> Any:
        """Return the place of element i, in parts of ``unit``; i is an expression or an array."""
        scaled = i if self.step == 1 else i * self.step
        return scaled + self.start if self.start else scaled

    def inside(self, k: Any, low: Any, high: Any, offset: int = 0) -> Any:
        """Return the element k + offset of x, where k is a place rounded down; those beyond an end are
        the one at that end."""
        ends = [(self.place(i) // self.unit) + offset for i in (0, self.size - 1)]
        k = k + offset if offset else k
        if min(ends) < 0:
            k = high(k, 0)
        return low(k, self.extent - 1) if max(ends) > self.extent - 1 else k


def maps(x: Sequence[int], attrs: Attrs) -> list[Map]:
    """Return the maps of all resized axes, from complete attributes."""
    lists = zip(ints_attr(attrs, "axes"), *(ints_attr(attrs, key) for key in LISTS), strict=True)
    return [Map(axis, x[axis], *numbers) for axis, *numbers in lists]


def _reduced(op: str, found: Map) -> Map:
    """Return the same map in the least numbers."""
    start, step, unit = found.start, found.step, found.unit
    if op == "Resize":  # it rounds down, so that a start counts in whole parts of what step and unit share
        shared = math.gcd(step, unit)
    else:
        shared = math.gcd(start, step, unit)
    start, step, unit = start // shared, step // shared, unit // shared
    return Map(found.axis, found.extent, found.size, start, step, unit)


def _completing(op: str) -> Any:
    def complete(types: Types, attrs: dict[str, Attr]) -> None:
        x = at(types, 0)
        lists = [ints_attr(attrs, key) for key in ("axes", *LISTS)]
        axes = [positive_axis(axis, x.rank) for axis in lists[0]]
        if len({len(each) for each in lists}) != 1 or len(set(axes)) != len(axes):
            given = ", ".join(f"{key} {attrs[key]}" for key in ("axes", *LISTS))
            raise GraphError(f"{op}: {given}; it takes one number of each for an axis, and an axis once")
        found = []
        for axis, size, start, step, unit in sorted(zip(axes, *lists[1:], strict=True)):
            if size < 0 or unit < 1 or (x.shape[axis] == 0 and size > 0):
                raise GraphError(f"{op}: axis {axis} of {x.shape} to {size} elements in units of 1 / {unit}")
            one = _reduced(op, Map(axis, x.shape[axis], size, start, step, unit))
            if (one.size, one.start, one.step, one.unit) != (one.extent, 0, 1, 1):
                found.append(one)
        attrs["axes"] = tuple(each.axis for each in found)
        for key, name in zip(LISTS, ("size", "start", "step", "unit"), strict=True):
            attrs[key] = tuple(getattr(each, name) for each in found)

    return complete


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    shape = list(x.shape)
    for axis, size in zip(ints_attr(attrs, "axes"), ints_attr(attrs, "size"), strict=True):
        shape[axis] = size
    return [TensorType(tuple(shape), x.dtype)]


def _infer_interpolated(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("Interpolate", types)
    return _infer(types, attrs)


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    found = x
    for each in maps(x.shape, attrs):
        k = each.place(np.arange(each.size)) // each.unit
        found = found.take(each.inside(k, np.minimum, np.maximum), axis=each.axis)
    return [np.ascontiguousarray(found)]


def _interpolated_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    """Return an axis after the other."""
    x = at(arrays, 0)
    found = x
    for each in maps(x.shape, attrs):
        place = each.place(np.arange(each.size))
        k = place // each.unit
        t = ((place - k * each.unit) / each.unit).astype(x.dtype)
        along = [1] * x.ndim
        along[each.axis] = each.size
        parts = (
            found.take(each.inside(k, np.minimum, np.maximum, offset), axis=each.axis)
            * np.broadcast_to(np.asarray(weight, x.dtype), t.shape).reshape(along)
            for offset, weight in _weights_of(t, attrs)
        )
        total = next(parts)
        for part in parts:
            total = total + part
        found = total
    return [np.ascontiguousarray(found)]


def _weights_of(t: Any, attrs: Attrs) -> list[tuple[int, Any]]:
    return blend_weights(str_attr(attrs, "mode"), t, float_attr(attrs, "coefficient"))


def blend_weights(mode: str, t: Any, a: float = -0.75) -> list[tuple[int, Any]]:
    """Return offsets and weights of the elements that make one at a place, ``t`` beyond an element, 0 <= t < 1.

    Of mode "cubic" they are Keys' (Cubic convolution interpolation for digital image processing, 1981), with the
    parameter a; others are "linear".
    """
    if mode == "linear":
        return [(0, 1 - t), (1, t)]

    def near(d: Any) -> Any:  # of an element at most 1 away
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:  # of one from 1 to 2 away
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    (result,) = _infer([TensorType(x.shape, x.dtype)], attrs)
    found = maps(x.shape, attrs)

    def element(*index: Expr) -> Expr:
        cell = list(index)
        for each in found:
            k = each.place(index[each.axis]) // each.unit
            cell[each.axis] = each.inside(k, te.minimum, te.maximum)
        return x(*cell)

    return [stage(result.shape, element, names[0])]


def _interpolated(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    (result,) = _infer([TensorType(x.shape, x.dtype)], attrs)
    found = maps(x.shape, attrs)

    def element(*index: Expr) -> Expr:
        taps = []
        for each in found:
            k, t = _parts(each, index[each.axis], x)
            taps.append(
                [(each.inside(k, te.minimum, te.maximum, o), weight) for o, weight in _weights_of(t, attrs)]
            )

        def blended(level: int, cell: dict[int, Expr]) -> Expr:
            if level == len(found):
                return x(*(cell.get(axis, i) for axis, i in enumerate(index)))
            axis = found[level].axis
            parts = [blended(level + 1, {**cell, axis: k}) * weight for k, weight in taps[level]]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total

        return blended(0, {})

    return [stage(result.shape, element, names[0])]


def _parts(each: Map, i: Expr, x: te.Tensor) -> tuple[Expr, Expr]:
    """Return the place of element i rounded down, and what it is beyond that.

    Lanes run along the last axis. They divide in floating point, which vector units have no instruction for in
    integers: half a unit is added, so that rounding errors do not reach the next whole number.
    """
    ends = [abs(each.place(n)) for n in (0, each.size - 1)]
    power_of_two = each.unit & (each.unit - 1) == 0
    if each.axis != x.ndim - 1 or power_of_two or max(ends) + each.unit > _EXACT:
        place = each.place(i)
        k = place // each.unit
        return k, _fraction(place - k * each.unit, each.unit, x.dtype)
    place = each.place(te.cast(i, "int32"))
    k = te.cast(te.floor((te.cast(place, "float32") + 0.5) * (1 / each.unit)), "int32")
    return te.cast(k, "int64"), _fraction(place - k * each.unit, each.unit, x.dtype)


def _fraction(rest: Expr, unit: int, dtype: str) -> Expr:
    """Return ``rest / unit`` as a float; vector units convert 32 bits at once, 64 one by one."""
    narrow = te.cast(rest, "int32") if unit < _INT32 else rest
    return te.cast(narrow, dtype) * te.const(1 / unit, dtype)


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return a product and a sum for each element that is blended, an axis within the other."""
    taps = 2 if attrs["mode"] == "linear" else 4
    levels = len(ints_attr(attrs, "axes"))
    return results[0].size * sum(2 * int(taps**level) for level in range(1, levels + 1))


def _is_copy(types: Types, attrs: Attrs) -> bool:
    return not ints_attr(attrs, "axes")


_ATTRIBUTES = {
    "axes": Attribute("ints", required=True),
    "size": Attribute("ints", required=True),
    "starts": Attribute("ints", required=True),
    "steps": Attribute("ints", required=True),
    "units": Attribute("ints", required=True),
}

define(
    "Resize",
    "movement",
    (1, 1),
    _infer,
    _reference,
    _compute,
    _ATTRIBUTES,
    _completing("Resize"),
    moves="rearrangement",
    is_copy_rule=_is_copy,
    permutable="axes",
    axis_lists=LISTS,
)
define_in_float32(
    "Interpolate",
    "movement",
    (1, 1),
    _infer_interpolated,
    _interpolated_reference,
    _interpolated,
    {
        **_ATTRIBUTES,
        "coefficient": Attribute("float", -0.75),
        "mode": Attribute("str", "linear", choices=("linear", "cubic")),
    },
    _completing("Interpolate"),
    moves="blend",
    flops_rule=_flops,
    is_copy_rule=_is_copy,
    permutable="axes",
    axis_lists=LISTS,
    in_onnx=False,
)
