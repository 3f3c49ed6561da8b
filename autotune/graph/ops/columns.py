"""Col2Im(x): the columns that windows of an image saw, added up to an image; Unfold's transpose.

x [n, c * taps, positions] holds for each tap of a window, and each of its positions, what is added to the element that
the tap sees there (Caffe's col2im). Attributes: image_shape, block_shape (the window), strides, dilations, pads.
te: one stage, axes n, c, spatial; it gathers: each element adds those taps that saw it. Reduce axes rd, rh, rw.

DeformedColumns(x, offsets, mask?): what a window sees whose taps are moved, each by its own offset. x [n, c, h, w],
offsets [n, groups * taps * 2, oh, ow] (down, right), mask [n, groups * taps, oh, ow] to [n, c * taps, oh * ow]; x is
blended from the elements around a place, 0 outside. The product with the weights is a deformable convolution (Dai et
al., 2017; with a mask Zhu et al., 2018). Attributes: kernel_shape, strides, dilations, pads, offset_group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.arithmetic import ARRAYS, EXPRESSIONS, Arithmetic
from autotune.graph.ops.common import (
    Expr,
    at,
    delinear,
    int_attr,
    ints_attr,
    linear,
    named_axes,
    optional,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.wide import define_in_float32
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, Window, complete_window, window_of


def _complete_col2im(types: Types, attrs: dict[str, Attr]) -> None:
    complete_window(len(ints_attr(attrs, "block_shape")), attrs)


def _window(x: TensorType, attrs: Attrs) -> Window:
    """Return the window over the image; its positions are the last axis of x."""
    image, block = ints_attr(attrs, "image_shape"), ints_attr(attrs, "block_shape")
    if len(image) != len(block) or x.rank != 3:
        raise GraphError(
            f"Col2Im of x {x} with image_shape {image}, block_shape {block}; it takes 3 dimensions, and one number of "
            "each for an axis of the image"
        )
    window = window_of("Col2Im", (1, 1, *image), {**attrs, "kernel_shape": block, "layout": "NCHW"})
    if x.shape[1] % math.prod(block) or x.shape[2] != math.prod(window.out_size):
        raise GraphError(
            f"Col2Im: x {x} does not hold {math.prod(block)} taps at {math.prod(window.out_size)} positions"
        )
    return window


def _col2im_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    window = _window(x, attrs)
    return [TensorType((x.shape[0], x.shape[1] // math.prod(window.kernel), *window.size), x.dtype)]


def _col2im_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    window = _window(TensorType.of(x), attrs)
    n, c = x.shape[0], x.shape[1] // math.prod(window.kernel)
    parts = x.reshape(n, c, *window.kernel, *window.out_size)
    steps = zip(window.size, window.pad_begin, window.pad_end, strict=True)
    full = np.zeros((n, c, *(s + b + e for s, b, e in steps)), x.dtype)
    for tap, seen in window.taps():
        here: Any = (slice(None), slice(None), *tap)
        full[(slice(None), slice(None), *seen)] += parts[here]
    kept = tuple(slice(b, b + s) for b, s in zip(window.pad_begin, window.size, strict=True))
    return [np.ascontiguousarray(full[(slice(None), slice(None), *kept)])]


def _col2im_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    window = _window(TensorType(x.shape, x.dtype), attrs)
    shape = (x.shape[0], x.shape[1] // math.prod(window.kernel), *window.size)
    taps = window.reduce_axes()

    def element(*index: Expr) -> Expr:
        positions, inside = [], []
        steps = zip(index[2:], taps, window.pad_begin, window.dilations, window.strides, strict=True)
        for axis, (i, tap, begin, dilation, stride) in enumerate(steps):
            place = i + begin - tap * dilation
            positions.append(place // stride if stride > 1 else place)
            inside += [place >= 0, positions[-1] < window.out_size[axis]]
            inside += [place % stride < 1] if stride > 1 else []
        row = linear([index[1], *taps], [shape[1], *window.kernel])
        cell = x(index[0], row, linear(positions, window.out_size))
        return te.sum(te.if_then_else(te.all(*inside), cell, te.const(0, x.dtype)), axis=taps)

    axes = ["n", "c", *spatial_names(window.rank)]
    return [stage(shape, named_axes(axes, element), names[0])]


def _col2im_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    return at(types, 0).size


def _complete_deformed(types: Types, attrs: dict[str, Attr]) -> None:
    complete_window(2, attrs)


def _deformed_window(types: Types, attrs: Attrs) -> tuple[Window, int]:
    """Return the window before its taps are moved, and the channels that are moved alike."""
    x, offsets, mask = at(types, 0), at(types, 1), optional(types, 2)
    require_float("DeformedColumns", types)
    if x.rank != 4:
        raise GraphError(f"DeformedColumns takes an image of 4 dimensions, got {x}")
    window = window_of("DeformedColumns", x.shape, {**attrs, "layout": "NCHW"})
    groups, taps = int_attr(attrs, "offset_group"), math.prod(window.kernel)
    wanted = (x.shape[0], groups * taps * 2, *window.out_size)
    masked = (x.shape[0], groups * taps, *window.out_size)
    if groups < 1 or x.shape[1] % groups or offsets.shape != wanted or (mask and mask.shape != masked):
        raise GraphError(
            f"DeformedColumns of x {x} with offsets {offsets}, mask {mask}, offset_group {groups}; it takes offsets "
            f"{list(wanted)}, a mask {list(masked)}, and groups that divide the channels"
        )
    return window, x.shape[1] // groups


def _deformed_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    window, _ = _deformed_window(types, attrs)
    shape = (x.shape[0], x.shape[1] * math.prod(window.kernel), math.prod(window.out_size))
    return [TensorType(shape, x.dtype)]


def _around(a: Arithmetic, place: Any, extent: int) -> list[tuple[Any, Any]]:
    """Return the two elements around a place along an axis, and what they count; 0 where there is none."""
    place = a.low(a.high(place, -2.0), float(extent + 1))
    below = a.floor(place)
    k, t = a.integer(below), place - below

    def kept(index: Any, weight: Any) -> Any:
        return a.where(index < 0, weight * 0, a.where(index < extent, weight, weight * 0))

    return [(a.within(k, extent), kept(k, 1 - t)), (a.within(k + 1, extent), kept(k + 1, t))]


def _deformed_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, offsets, mask = at(arrays, 0), at(arrays, 1), optional(arrays, 2)
    types = [None if t is None else TensorType.of(t) for t in (x, offsets, mask)]
    window, alike = _deformed_window(types, attrs)
    n, c, groups = x.shape[0], x.shape[1], x.shape[1] // alike
    moved = offsets.reshape(n, groups, *window.kernel, 2, *window.out_size)
    taps = []
    for axis in range(2):
        steps = window.strides[axis] * np.arange(window.out_size[axis]) - window.pad_begin[axis]
        tap = window.dilations[axis] * np.arange(window.kernel[axis])
        place = (steps.reshape(-1, 1) if axis == 0 else steps) + (
            tap.reshape(-1, 1, 1, 1) if axis == 0 else tap.reshape(-1, 1, 1)
        )
        place = (place + moved[..., axis, :, :]).astype(x.dtype)
        taps.append(_around(ARRAYS, np.repeat(place, alike, axis=1), window.size[axis]))
    batch, channel = (
        np.arange(s).reshape(shape) for s, shape in ((n, (n, 1, 1, 1, 1, 1)), (c, (1, c, 1, 1, 1, 1)))
    )
    found = sum(x[batch, channel, h, w] * (wh * ww) for h, wh in taps[0] for w, ww in taps[1])
    if mask is not None:
        found = found * np.repeat(mask.reshape(n, groups, *window.kernel, *window.out_size), alike, axis=1)
    shape = (n, c * math.prod(window.kernel), math.prod(window.out_size))
    return [np.asarray(found, x.dtype).reshape(shape)]


def _deformed_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, offsets, mask = at(tensors, 0), at(tensors, 1), optional(tensors, 2)
    types = [None if t is None else TensorType(t.shape, t.dtype) for t in (x, offsets, mask)]
    window, alike = _deformed_window(types, attrs)
    (result,) = _deformed_infer(types, attrs)

    def element(n: Expr, row: Expr, column: Expr) -> Expr:
        c, *tap = delinear(row, (x.shape[1], *window.kernel))
        position = delinear(column, window.out_size)
        moved = linear([c // alike, *tap], [x.shape[1] // alike, *window.kernel])
        around = []
        for axis in range(2):
            place = position[axis] * window.strides[axis] + tap[axis] * window.dilations[axis]
            offset = offsets(n, moved * 2 + axis, *position)
            start = te.cast(te.cast(place - window.pad_begin[axis], "int32"), x.dtype)
            around.append(_around(EXPRESSIONS, start + offset, window.size[axis]))
        total = None
        for h, wh in around[0]:
            for w, ww in around[1]:
                part = x(n, c, h, w) * (wh * ww)
                total = part if total is None else total + part
        return total if mask is None else total * mask(n, moved, *position)

    return [te.compute(result.shape, element, name=names[0])]


def _deformed_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return four products and sums an element."""
    return 8 * results[0].size


define(
    "Col2Im",
    "pool",
    (1, 1),
    _col2im_infer,
    _col2im_reference,
    _col2im_compute,
    {
        **WINDOW_ATTRIBUTES,
        "block_shape": Attribute("ints", required=True),
        "image_shape": Attribute("ints", required=True),
    },
    _complete_col2im,
    flops_rule=_col2im_flops,
)
define_in_float32(
    "DeformedColumns",
    "movement",
    (2, 3),
    _deformed_infer,
    _deformed_reference,
    _deformed_compute,
    {
        **WINDOW_ATTRIBUTES,
        "kernel_shape": Attribute("ints", required=True),
        "offset_group": Attribute("int", 1),
    },
    _complete_deformed,
    flops_rule=_deformed_flops,
    in_onnx=False,
)
