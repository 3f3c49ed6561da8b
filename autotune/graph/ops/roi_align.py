"""RoiAlign(x, rois, batch_indices): features of regions of an image, each as a grid of equal size.

A region [x1, y1, x2, y2] (times ``spatial_scale``, minus half an element with half_pixel=1) of the image that
batch_indices names is divided into output_height by output_width bins; each has a grid of places at which the image is
blended from the 4 elements around. The result is their mean (mode "avg"), or the largest of the weighted elements
("max"). He et al., Mask R-CNN, 2017; as ONNX defines it.

``sampling_ratio`` is the number of places along an axis of a bin; 0: one an element that the bin covers, at most as
many as bins of the whole image have, so that only regions larger than the image have fewer than ONNX says.

te: "<out>.sum" and then the mean, or one stage, axes r, h, w, c or r, c, h, w, reduce axes rh, rw (the places).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.arithmetic import ARRAYS, EXPRESSIONS, Arithmetic
from autotune.graph.ops.common import (
    Expr,
    at,
    float_attr,
    int_attr,
    named_axes,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.wide import define_in_float32


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, rois, batch = (at(types, i) for i in range(3))
    require_float("RoiAlign", [x])
    out = [int_attr(attrs, "output_height"), int_attr(attrs, "output_width")]
    fits = x.rank == 4 and 0 not in x.shape and rois.rank == 2 and rois.shape[1] == 4
    if not fits or batch.shape != rois.shape[:1] or min(out) < 1 or int_attr(attrs, "sampling_ratio") < 0:
        raise GraphError(
            f"RoiAlign of x {x}, rois {rois}, batch_indices {batch} to {out[0]} x {out[1]}; it takes an image of 4 "
            "dimensions, [r, 4] and [r], and a sampling_ratio of 0 or more"
        )
    if batch.dtype not in ("int32", "int64"):
        raise GraphError(f"RoiAlign: batch_indices are {batch.dtype}, not int32 or int64")
    shape = (rois.shape[0], *out, x.shape[3])
    if attrs["layout"] == "NCHW":
        shape = (rois.shape[0], x.shape[1], *out)
    return [TensorType(shape, x.dtype)]


def _extents(x: Sequence[int], attrs: Attrs) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return extents of the image and of the grid of bins."""
    image = (x[1], x[2]) if attrs["layout"] == "NHWC" else (x[2], x[3])
    return image, (int_attr(attrs, "output_height"), int_attr(attrs, "output_width"))


def _most(x: Sequence[int], attrs: Attrs) -> list[int]:
    """Return the most places along each axis of a bin."""
    ratio = int_attr(attrs, "sampling_ratio")
    return [ratio or -(-size // bins) for size, bins in zip(*_extents(x, attrs), strict=True)]


def _bin(a: Arithmetic, low: Any, high: Any, bins: int, most: int, attrs: Attrs) -> tuple[Any, Any, Any]:
    """Return the begin of a region, the size of its bins, and the number of places in each, along one axis."""
    scale, offset = float_attr(attrs, "spatial_scale"), 0.5 if int_attr(attrs, "half_pixel") else 0.0
    start = low * scale - offset
    size = (high * scale - offset) - start
    if not offset:
        size = a.high(size, 1.0)
    size = size * (1 / bins)
    if int_attr(attrs, "sampling_ratio"):
        return start, size, float(most)
    return start, size, a.low(a.high(a.ceil(size), 0.0), float(most))


def _taps(a: Arithmetic, place: Any, extent: int, dtype: str) -> list[tuple[Any, Any]]:
    """Return the two elements around a place along one axis, and what they count; nothing beyond one
    element outside."""
    seen = a.where(place < -1.0, 0.0, a.where(place > float(extent), 0.0, 1.0))
    place = a.low(a.high(place, 0.0), float(extent - 1))
    below = a.floor(place)
    k, t = a.integer(below), a.real(place - below, dtype)
    seen = a.real(seen, dtype)
    return [(a.within(k, extent), (1 - t) * seen), (a.within(k + 1, extent), t * seen)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, rois, batch = (at(arrays, i) for i in range(3))
    image, bins = _extents(x.shape, attrs)
    last, largest = attrs["layout"] == "NHWC", attrs["mode"] == "max"
    x = x if last else np.moveaxis(x, 1, -1)
    counts, axes = [], []
    for axis in range(2):
        low, high, most = rois[:, 1 - axis], rois[:, 3 - axis], _most(arrays[0].shape, attrs)[axis]  # type: ignore[union-attr]
        start, size, count = _bin(ARRAYS, low, high, bins[axis], most, attrs)
        counts.append(np.broadcast_to(np.asarray(count, rois.dtype), low.shape))
        step = size / np.maximum(counts[-1], 1)
        p, i = np.arange(bins[axis])[:, None], np.arange(most)
        place = start[:, None, None] + p * size[:, None, None] + (i + 0.5) * step[:, None, None]
        taps = _taps(ARRAYS, place.astype(rois.dtype), image[axis], str(x.dtype))
        axes.append((taps, i < counts[-1][:, None, None]))
    (rows, some_rows), (columns, some_columns) = axes
    chosen = np.clip(np.where(batch < 0, batch + len(x), batch), 0, len(x) - 1)[:, None, None, None, None]
    parts = []
    for h, wh in rows:
        for w, ww in columns:  # [r, ph, pw, ih, iw]
            h5, wh5 = h[:, :, None, :, None], wh[:, :, None, :, None]
            w5, ww5 = w[:, None, :, None, :], ww[:, None, :, None, :]
            parts.append(x[chosen, h5, w5] * (wh5 * ww5)[..., None])
    some = (some_rows[:, :, None, :, None] & some_columns[:, None, :, None, :])[..., None]
    if largest:
        value = np.where(some, np.maximum.reduce(parts), -np.inf).max((3, 4))
        found = np.where(np.isneginf(value), 0, value)
    else:
        total = np.where(some, sum(parts), 0).sum((3, 4))
        found = total / np.maximum(counts[0] * counts[1], 1)[:, None, None, None]
    found = found.astype(x.dtype)
    return [np.ascontiguousarray(found if last else np.moveaxis(found, -1, 1))]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, rois, batch = (at(tensors, i) for i in range(3))
    (result,) = _infer([TensorType(t.shape, t.dtype) for t in (x, rois, batch)], attrs)
    last, largest = attrs["layout"] == "NHWC", attrs["mode"] == "max"
    image, bins = _extents(x.shape, attrs)
    most = _most(x.shape, attrs)
    adaptive = not int_attr(attrs, "sampling_ratio")
    axes = [te.reduce_axis((0, m), name=f"r{n}") for m, n in zip(most, spatial_names(2), strict=True)]

    def bin_of(r: Expr, axis: int) -> tuple[Any, Any, Any]:
        low, high = rois(r, 1 - axis), rois(r, 3 - axis)
        return _bin(EXPRESSIONS, low, high, bins[axis], most[axis], attrs)

    def element(*index: Expr) -> Expr:
        r, position, c = index[0], index[1:3] if last else index[2:4], index[3] if last else index[1]
        n = te.cast(batch(r), "int64")
        n = EXPRESSIONS.within(te.if_then_else(n < 0, n + x.shape[0], n), x.shape[0])
        taps, some = [], []
        for axis in range(2):
            start, size, count = bin_of(r, axis)
            p, i = (te.cast(te.cast(v, "int32"), rois.dtype) for v in (position[axis], axes[axis]))
            divisor = te.maximum(count, 1.0) if adaptive else count
            taps.append(
                _taps(EXPRESSIONS, start + p * size + (i + 0.5) * (size / divisor), image[axis], x.dtype)
            )
            some += [i < count] if adaptive else []
        parts = [
            (x(n, h, w, c) if last else x(n, c, h, w)) * (wh * ww) for h, wh in taps[0] for w, ww in taps[1]
        ]
        value = parts[0]
        for part in parts[1:]:
            value = te.maximum(value, part) if largest else value + part
        if some:
            value = te.if_then_else(te.all(*some), value, te.min_value(x.dtype) if largest else 0.0)
        return (te.max if largest else te.sum)(value, axis=axes)

    order = ["r", *spatial_names(2), "c"] if last else ["r", "c", *spatial_names(2)]
    if largest and not adaptive:
        return [stage(result.shape, named_axes(order, element), names[0])]
    folded = stage(result.shape, named_axes(order, element), f"{names[0]}.sum")

    def finished(*index: Expr) -> Expr:
        value = folded(*index)
        if largest:
            return te.if_then_else(value > te.min_value(x.dtype), value, 0.0)
        if not adaptive:
            return value * (1 / (most[0] * most[1]))
        places = bin_of(index[0], 0)[2] * bin_of(index[0], 1)[2]
        return value / te.cast(te.maximum(places, 1.0), x.dtype)

    return [stage(result.shape, named_axes(order, finished), names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return four products and sums for each place."""
    rows, columns = _most(at(types, 0).shape, attrs)
    return results[0].size * rows * columns * 8


define_in_float32(
    "RoiAlign",
    "pool",
    (3, 3),
    _infer,
    _reference,
    _compute,
    {
        "half_pixel": Attribute("int", 1),
        "layout": LAYOUT,
        "mode": Attribute("str", "avg", choices=("avg", "max")),
        "output_height": Attribute("int", 1),
        "output_width": Attribute("int", 1),
        "sampling_ratio": Attribute("int", 0),
        "spatial_scale": Attribute("float", 1.0),
    },
    flops_rule=_flops,
)
