"""MaxPoolIndices(x): where the largest element of each window is, as MaxPool finds it; the first of equal ones.

The result has numbers of elements of x as if it had one dimension: with storage_order=1 those of an image are counted
down its columns. Padding is not the largest element, unless all others are NaN. Attributes: those of MaxPool,
storage_order.

te: "<out>.pad" if anything is padded, "<out>.tap" (an arg reduction over the taps of the window), and "<out>".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, delinear, int_attr, linear, stage
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.pool import WINDOWED, Pool, lowest
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import Window

_POOL = Pool("MaxPoolIndices", "max")


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    (found,) = _POOL.infer(types, attrs)
    return [TensorType(found.shape, "int64")]


def _number(plane: Any, tap: Any, position: Sequence[Any], window: Window, attrs: Attrs) -> Any:
    """Return the number in x of the element that a tap sees; ``plane`` numbers images and channels."""
    steps = zip(
        delinear(tap, window.kernel),
        position,
        window.strides,
        window.dilations,
        window.pad_begin,
        strict=True,
    )
    place = [p * stride + t * dilation - begin for t, p, stride, dilation, begin in steps]
    size = list(window.size)
    if int_attr(attrs, "storage_order"):
        place, size = place[::-1], size[::-1]
    return plane * math.prod(size) + linear(place, size)


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, last = at(arrays, 0), attrs["layout"] == "NHWC"
    window = _POOL.window(TensorType.of(x), attrs)
    x = x if last else np.moveaxis(x, 1, -1)
    padded = window.pad_array(x, lowest(str(x.dtype)))
    inside = window.pad_array(np.ones(x.shape, np.int8), 0)
    best = np.stack([padded[(slice(None), *seen)] for _, seen in window.taps()])
    real = np.stack([inside[(slice(None), *seen)] for _, seen in window.taps()])
    # Of equal elements one that is no padding.
    tap = np.argmax((best == best.max(0)) & (real == 1), axis=0)
    *position, channel = np.indices(tap.shape, sparse=True)[1:]
    plane = np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)) * x.shape[-1] + channel
    found = np.broadcast_to(_number(plane, tap, position, window, attrs), tap.shape).astype(np.int64)
    return [np.ascontiguousarray(found if last else np.moveaxis(found, -1, 1))]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, last = at(tensors, 0), attrs["layout"] == "NHWC"
    window = _POOL.window(TensorType(x.shape, x.dtype), attrs)
    (result,) = _infer([TensorType(x.shape, x.dtype)], attrs)
    padded = window.pad_tensor(x, last, te.min_value(x.dtype), f"{names[0]}.pad")
    taps = window.reduce_axes()
    number = linear(taps, window.kernel)
    number = number if isinstance(number, te.Expr) else taps[0] * 0
    count = math.prod(window.kernel)
    alone = all(k == 1 or size == 1 for k, size in zip(window.kernel, window.size, strict=True))

    def largest(*index: Expr) -> Any:
        position = index[1:-1] if last else index[2:]
        places = window.source(position, taps)
        cell = (index[0], *places, index[-1]) if last else (index[0], index[1], *places)
        # Ties go to the smaller number: padding, where there is some, comes after all taps that see elements.
        inside = []
        steps = zip(places, window.pad_begin, window.size, strict=True)
        for axis, (place, begin, extent) in enumerate(steps):
            inside += [place >= begin] if begin else []
            inside += [place < begin + extent] if window.pad_end[axis] + window.extra[axis] else []
        key = te.if_then_else(te.all(*inside), number, number + count) if inside else number
        return te.argmax((key, padded(*cell)), axis=taps)

    found = te.compute(result.shape, largest, name=f"{names[0]}.tap")[0]

    def element(*index: Expr) -> Expr:
        channel, position = (index[-1], index[1:-1]) if last else (index[1], index[2:])
        plane = index[0] * (x.shape[-1] if last else x.shape[1]) + channel
        number = _number(plane, found(*index) % count, position, window, attrs)
        # Where only one element is seen its number says nothing of the tap; a program reads its inputs.
        return te.if_then_else(found(*index) < 0, te.const(-1, "int64"), number) if alone else number

    return [stage(result.shape, element, names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    return _POOL.flops(types, results, attrs)


define(
    "MaxPoolIndices",
    "pool",
    (1, 1),
    _infer,
    _reference,
    _compute,
    {"layout": LAYOUT, **WINDOWED, "storage_order": Attribute("int", 0)},
    _POOL.complete,
    flops_rule=_flops,
    in_onnx=False,
)
