"""ONNX's Resize and Upsample: coordinates worked out, so that Resize and Interpolate of the graph IR are left.

A coordinate transformation takes output element i to the place ``i * slope + offset`` of the input, both kept as exact
fractions. Antialiasing, and leaving out what is outside, make weights that differ from element to element: they are
products with constant matrices. Places outside of a crop become padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.frontends.onnx.budget import MAX_PLACES, check_count, check_evaluated
from autotune.graph.ir import ABSENT, Array, TensorType
from autotune.graph.ops.common import accumulated_in
from autotune.te.dtypes import is_float

if TYPE_CHECKING:
    from autotune.frontends.onnx.emit import Emitter
    from autotune.frontends.onnx.nodes import OnnxNode

_LARGEST = 1 << 40
"""Of numbers that say where an element lies; times an index they are far below 2^63."""
_SIMPLE = 1 << 10
"""The largest denominator of a fraction that stands for another one."""
_NEAR = Fraction(1, 1 << 24)
"""Parts of an extent between places that count as one: scales are known to this only."""
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """The resizing of one axis: from ``extent`` elements to ``size``; element i lies at ``i * slope + offset``.

    ``scale`` is what antialiasing goes by. ``before`` and ``after`` elements of the size are outside of the input.
    """

    axis: int
    extent: int
    size: int
    scale: Fraction
    slope: Fraction
    offset: Fraction
    before: int = 0
    after: int = 0

    @property
    def places(self) -> list[Fraction]:
        """Return the places of the elements."""
        return [self.slope * i + self.offset for i in range(self.size)]

    def cropped(self) -> Axis:
        """Return the axis without the elements that lie outside."""
        inside = [i for i, place in enumerate(self.places) if 0 <= place <= self.extent - 1]
        if not inside:
            return replace(self, size=0, before=self.size)
        first, count = inside[0], len(inside)
        return replace(
            self,
            size=count,
            offset=self.offset + first * self.slope,
            before=first,
            after=self.size - first - count,
        )

    def as_integers(self, rounding: str = "") -> tuple[int, int, int]:
        """Return start, step and unit of the places; with a ``rounding``, of what is left of them after rounding down.

        The numbers are small where that makes no difference: scales are fractions in float32, 1.3 one of 2^23.
        """
        exact = _integers(self.slope, self.offset, rounding)
        if self.size > MAX_PLACES:
            return exact  # the places would be compared one by one
        for most in (_SIMPLE, _SIMPLE**2):
            slope, offset = (number.limit_denominator(most) for number in (self.slope, self.offset))
            small = _integers(slope, offset, rounding)
            if small == exact or self._same(exact, small, bool(rounding)):
                return small
        return exact if max(map(abs, exact)) < _LARGEST else small

    def _same(self, one: tuple[int, int, int], other: tuple[int, int, int], rounded: bool) -> bool:
        """Return whether two maps lead to the same places, or near enough to blend the same."""
        for i in range(self.size):
            a, b = (Fraction(i * step + start, unit) for start, step, unit in (one, other))
            if (floor(a) != floor(b)) if rounded else (abs(a - b) > self.extent * _NEAR):
                return False
        return True


def _integers(slope: Fraction, offset: Fraction, rounding: str) -> tuple[int, int, int]:
    """Return start, step and unit."""
    unit = lcm(slope.denominator, offset.denominator)
    step, start = int(slope * unit), int(offset * unit)
    if rounding == "ceil":
        start += unit - 1
    elif rounding == "round_prefer_ceil":
        start, step, unit = 2 * start + unit, 2 * step, 2 * unit
    elif rounding == "round_prefer_floor":
        start, step, unit = 2 * start + unit - 1, 2 * step, 2 * unit
    return start, step, unit


def compose_resize(node: OnnxNode, emit: Emitter) -> None:
    """Resize (of opset 10, or 11 and later) or Upsample, by what the graph IR has."""
    mode = node.attrs.get("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "cubic"):
        raise node.fail(f"mode {mode!r} is not known\n  one of nearest, linear, cubic")
    axes = _axes(node)
    x, found = node.inputs[0], node.input_type(0)
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        for axis in axes:
            check_count(node, axis.size, MAX_PLACES, f"elements along axis {axis.axis}")
        axes = [axis.cropped() for axis in axes]
    if mode == "nearest":
        x = _nearest(node, emit, x, axes)
    else:
        wide = accumulated_in(found.dtype) if is_float(found.dtype) else "float32"
        x = emit("Cast", [x], {"to": wide}, "wide")
        x = _blended(node, emit, x, found, axes, cubic=mode == "cubic")
        x = _narrowed(emit, x, found.dtype)
    pads = [0] * (2 * found.rank)
    for axis in axes:
        pads[axis.axis], pads[axis.axis + found.rank] = axis.before, axis.after
    value = float(node.attrs.get("extrapolation_value", 0.0))
    emit("Pad", [x], {"pads": tuple(pads), "value": value}, "", node.outputs[0])


def _nearest(node: OnnxNode, emit: Emitter, x: str, axes: Sequence[Axis]) -> str:
    old = node.op == "Upsample" or node.scope.opset < 11
    rounding = "floor" if old else node.attrs.get("nearest_mode", "round_prefer_floor")
    if rounding not in _ROUNDING:
        raise node.fail(f"nearest_mode {rounding!r} is not known\n  one of {', '.join(_ROUNDING)}")
    if node.attrs.get("antialias", 0):
        raise node.fail("antialias=1 is for modes linear and cubic, not nearest")
    return emit("Resize", [x], _attributes(node, axes, rounding), "resized")


def _attributes(node: OnnxNode, axes: Sequence[Axis], rounding: str = "") -> dict[str, Any]:
    numbers = [axis.as_integers(rounding) for axis in axes]
    for axis, found in zip(axes, numbers, strict=True):
        if max(map(abs, found)) >= _LARGEST:
            check_count(node, axis.size, MAX_PLACES, f"elements along axis {axis.axis}, by such a scale,")
    lists = {key: tuple(each[i] for each in numbers) for i, key in enumerate(("starts", "steps", "units"))}
    return {"axes": tuple(a.axis for a in axes), "size": tuple(a.size for a in axes), **lists}


def _blended(
    node: OnnxNode, emit: Emitter, x: str, found: TensorType, axes: Sequence[Axis], cubic: bool
) -> str:
    coefficient = float(node.attrs.get("cubic_coeff_a", -0.75))
    antialias, exclude = node.attrs.get("antialias", 0), node.attrs.get("exclude_outside", 0)
    if not antialias and not (exclude and cubic):
        attrs = {"mode": "cubic" if cubic else "linear", "coefficient": coefficient}
        return emit("Interpolate", [x], {**_attributes(node, axes), **attrs}, "resized")
    shape = list(found.shape)
    for each in axes:
        if each.size == each.extent and each.slope == 1 and each.offset == 0:
            continue
        matrix = _weights(node, each, cubic, coefficient, bool(antialias), bool(exclude))
        x = _along(emit, x, shape, each.axis, matrix)
        shape[each.axis] = each.size
    return x


def _along(emit: Emitter, x: str, shape: Sequence[int], axis: int, matrix: Array) -> str:
    """Return the product of a matrix with each line of x along an axis."""
    dtype = emit.type_of(x).dtype
    lead, trail = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
    rows = emit("Reshape", [x], {"shape": (lead, shape[axis], trail)}, "lines")
    made = emit("MatMul", [emit.constant(matrix, dtype), rows], {}, "blended")
    return emit("Reshape", [made], {"shape": (*shape[:axis], len(matrix), *shape[axis + 1 :])}, "image")


def _weights(node: OnnxNode, axis: Axis, cubic: bool, a: float, antialias: bool, exclude: bool) -> Array:
    """Return a row an element of the result: what each element of the input counts in it.

    Antialiasing widens the kernel by the factor of a reduction, and makes the weights sum to one.
    """
    scale = min(float(axis.scale), 1.0) if antialias else 1.0
    reach = 2.0 if cubic else 1.0
    first = int(np.floor(-reach / scale)) + 1
    check_count(node, axis.size, MAX_PLACES, f"elements along axis {axis.axis}")
    for width in (axis.extent, 1 - 2 * first):
        check_evaluated(node, (axis.size, width), 8, f"the matrix of weights along axis {axis.axis}")
    places = np.array([float(p) for p in axis.places])
    # ONNX's windows reach from the element below a place that is not whole, over a fixed count of elements.
    below = np.ceil(places).astype(np.int64) - 1
    offsets = np.arange(first, 2 - first)
    near = below[:, None] + offsets
    distance = np.abs(near - places[:, None]) * scale
    weights = _keys(distance, a) if cubic else np.clip(1 - distance, 0, 1)
    if antialias:
        weights = weights / weights.sum(1, keepdims=True)
    if exclude:
        weights = np.where((near < 0) | (near >= axis.extent), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    matrix = np.zeros((axis.size, axis.extent))
    rows = np.broadcast_to(np.arange(axis.size)[:, None], near.shape)
    np.add.at(matrix, (rows, np.clip(near, 0, axis.extent - 1)), weights)
    return matrix


def _keys(distance: Array, a: float) -> Array:
    """Return keys' kernel at distances that are not negative."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _narrowed(emit: Emitter, x: str, dtype: str) -> str:
    """Return the rounded and kept within the limits of an integer type."""
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        x = emit("Clip", [emit("Round", [x], {}, "round")], {"min": limits.min, "max": limits.max}, "kept")
    return emit("Cast", [x], {"to": dtype}, "narrow")


def _axes(node: OnnxNode) -> list[Axis]:
    """Return the resizing of the axes, from scales or sizes."""
    x, old = node.input_type(0), node.op == "Upsample" or node.scope.opset < 11
    axes = [axis % x.rank for axis in node.attrs.get("axes", range(x.rank))]
    scales = _numbers(node, 1 if old else 2, "scales") if "scales" not in node.attrs else None
    given = np.asarray(node.attrs["scales"]) if scales is None else scales
    sizes = _numbers(node, 3, "sizes")
    wanted = given if given.size else sizes
    if wanted.size != len(axes) or (given.size and sizes.size):
        raise node.fail(
            f"scales {given.tolist()} and sizes {sizes.tolist()} for {len(axes)} axes of {x}; it takes one of them, "
            "a number an axis"
        )
    if given.size:
        factors = [Fraction(float(scale)) for scale in given]
        lengths = [scale * x.shape[axis] for axis, scale in zip(axes, factors, strict=True)]
        outs = [int(length) for length in lengths]
    else:
        factors, outs = _by_sizes(node, x, axes, [int(size) for size in sizes])
        lengths = [scale * x.shape[axis] for axis, scale in zip(axes, factors, strict=True)]
    if any(scale <= 0 for scale in factors):
        raise node.fail(f"scales {[float(s) for s in factors]} are not all positive")
    mode = "asymmetric" if old else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode not in _COORDINATES:
        raise node.fail(f"coordinates {mode!r} are not known\n  one of {', '.join(_COORDINATES)}")
    regions = _regions(node, len(axes)) if mode == "tf_crop_and_resize" else [(0, 1)] * len(axes)
    return [
        Axis(axis, x.shape[axis], out, scale, *_places(mode, x.shape[axis], out, length, scale, region))
        for axis, out, length, scale, region in zip(axes, outs, lengths, factors, regions, strict=True)
    ]


def _numbers(node: OnnxNode, index: int, name: str) -> Array:
    """Return a constant input; no numbers where it is absent."""
    value = node.input(index)
    if value == ABSENT:
        return np.zeros(0, np.float32)
    array = node.scope.constant_of(value)
    if array is None:
        raise node.unknown(f"input {name!r} ({value!r})", value)
    return array.reshape(-1)


def _regions(node: OnnxNode, count: int) -> list[tuple[Any, Any]]:
    roi = [Fraction(float(number)) for number in _numbers(node, 1, "roi")]
    if len(roi) != 2 * count:
        raise node.fail(f"roi has {len(roi)} numbers; tf_crop_and_resize takes {2 * count} for {count} axes")
    return list(zip(roi[:count], roi[count:], strict=True))


def _by_sizes(
    node: OnnxNode, x: TensorType, axes: Sequence[int], sizes: Sequence[int]
) -> tuple[list[Fraction], list[int]]:
    """Return factors and sizes; a policy that keeps the aspect ratio takes one factor for all axes."""
    if any(x.shape[axis] == 0 for axis in axes):
        raise node.fail(f"sizes {tuple(sizes)} of {x}, which has no elements")
    factors = [Fraction(size, x.shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, list(sizes)
    if policy not in ("not_larger", "not_smaller"):
        raise node.fail(f"keep_aspect_ratio_policy {policy!r} is not known")
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(axes), [int(factor * x.shape[axis] + Fraction(1, 2)) for axis in axes]


def _places(
    mode: str, extent: int, size: int, length: Fraction, scale: Fraction, region: tuple[Any, Any]
) -> tuple[Fraction, Fraction]:
    """Return the slope and offset of the places in the input; ``length`` is the extent times the scale,
    which may not be whole."""
    half = Fraction(1, 2)
    if mode == "align_corners":
        return (Fraction(extent - 1) / (length - 1) if length != 1 else Fraction(0)), Fraction(0)
    if mode == "asymmetric":
        return 1 / scale, Fraction(0)
    if mode == "tf_half_pixel_for_nn":
        return 1 / scale, half / scale
    if mode == "tf_crop_and_resize":
        begin, end = region
        if length == 1:
            return Fraction(0), Fraction((begin + end) * (extent - 1)) / 2
        return Fraction((end - begin) * (extent - 1)) / (length - 1), Fraction(begin * (extent - 1))
    if mode == "pytorch_half_pixel" and length == 1:
        return Fraction(0), -half
    offset = half / scale - half
    if mode == "half_pixel_symmetric":
        offset += Fraction(extent, 2) * (1 - size / length)
    return 1 / scale, offset


__all__ = ["compose_resize"]
