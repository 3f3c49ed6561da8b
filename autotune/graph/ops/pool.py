"""Pooling, 1-D to 3-D, in layouts "NCHW" (x [n, c, spatial...]) and "NHWC" (x [n, spatial..., c]).

MaxPool(x), AveragePool(x): kernel_shape, strides, dilations, pads (as ONNX), ceil_mode,
AveragePool also count_include_pad (0: padding does not count as elements of the mean; cells that
only ceil_mode adds never do). SumPool(x): as AveragePool, without the division.
GlobalAveragePool(x), GlobalMaxPool(x): spatial dimensions become 1.

te stages: "<out>.pad" if anything is padded (minus infinity or zero), "<out>.sum" and then the
division for averages, one stage for maxima. Reduce axes rd, rh, rw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, Index, at, named_axes, require_float, spatial_names, stage
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.wide import define_in_float32
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, Window, complete_window, window_of
from autotune.te.dtypes import is_float

Reduction = Literal["max", "average", "sum"]


def _check_rank(op: str, x: TensorType) -> int:
    if not 3 <= x.rank <= 5:
        raise GraphError(f"{op} takes 3 to 5 dimensions, got x of shape {x.shape}")
    return x.rank - 2


def _out_shape(x: Sequence[int], window: Window, channels_last: bool) -> tuple[int, ...]:
    if channels_last:
        return (x[0], *window.out_size, x[-1])
    return (x[0], x[1], *window.out_size)


def _axis_names(rank: int, channels_last: bool) -> list[str]:
    spatial = spatial_names(rank)
    return ["n", *spatial, "c"] if channels_last else ["n", "c", *spatial]


def lowest(dtype: str) -> float:
    return -math.inf if is_float(dtype) else float(np.iinfo(dtype).min)


@dataclass(frozen=True)
class Pool:
    """The rules of one pooling operator; `over_all` makes the window the whole image."""

    name: str
    reduction: Reduction
    over_all: bool = False

    def complete(self, types: Types, attrs: dict[str, Attr]) -> None:
        """Fill in the defaults that depend on the rank."""
        rank = _check_rank(self.name, at(types, 0))
        if not self.over_all:
            complete_window(rank, attrs)

    def window(self, x: TensorType, attrs: Attrs) -> Window:
        """Return the window; GraphError if it does not fit or padding is not smaller than it."""
        rank = _check_rank(self.name, x)
        if self.over_all:
            size = x.shape[1:-1] if attrs["layout"] == "NHWC" else x.shape[2:]
            ones, zeros = (1,) * rank, (0,) * rank
            return Window(size, size, ones, ones, zeros, zeros, ones, zeros)
        window = window_of(self.name, x.shape, attrs, bool(attrs["ceil_mode"]))
        for k, d, *pads in zip(
            window.kernel, window.dilations, window.pad_begin, window.pad_end, strict=True
        ):
            if max(pads) > (k - 1) * d:
                raise GraphError(
                    f"{self.name}: pads {attrs['pads']} must be smaller than the window {window.kernel}"
                )
        return window

    def infer(self, types: Types, attrs: Attrs) -> list[TensorType]:
        """Return the shape and dtype of the output."""
        x = at(types, 0)
        if self.reduction != "max":
            require_float(self.name, types)
        elif x.dtype == "bool":
            raise GraphError(f"{self.name} does not take bool")
        if self.over_all and not x.size and all(x.shape[:2]):
            raise GraphError(f"{self.name} of an image without elements: x has shape {x.shape}")
        shape = _out_shape(x.shape, self.window(x, attrs), attrs["layout"] == "NHWC")
        return [TensorType(shape, x.dtype)]

    def reference(self, arrays: Arrays, attrs: Attrs) -> list[Array]:
        """Fold the shifted slices of the padded input."""
        x = at(arrays, 0)
        window = self.window(TensorType.of(x), attrs)
        last = attrs["layout"] == "NHWC"
        maximum = self.reduction == "max"
        read = window.reachable()
        x = x if last else np.moveaxis(x, 1, -1)
        x = read.pad_array(x, lowest(str(x.dtype)) if maximum else 0)
        parts = (x[(slice(None), *shifted)] for _, shifted in read.taps())
        total = next(parts).copy()
        for part in parts:
            total = np.maximum(total, part) if maximum else total + part
        if self.reduction == "average":
            total = total / self._counts(window, attrs).astype(total.dtype)[..., None]
        return [np.ascontiguousarray(total if last else np.moveaxis(total, -1, 1))]

    def flops(self, types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
        """Return an operation an element that a window sees."""
        if self.over_all:
            return at(types, 0).size
        return results[0].size * math.prod(self.window(at(types, 0), attrs).reachable().kernel)

    def _counts(self, window: Window, attrs: Attrs) -> Array:
        """Return elements that each output averages, an array over the spatial dimensions."""
        counts = np.ones((), np.int64)
        for i in range(window.rank):
            low, high = _counted_range(window, attrs, i)
            starts = np.arange(window.out_size[i]) * window.strides[i]
            first = np.maximum(-((starts - low) // window.dilations[i]), 0)
            end = np.minimum(-((starts - high) // window.dilations[i]), window.kernel[i])
            counts = np.multiply.outer(counts, np.maximum(end - first, 1))
        return counts

    def compute(self, tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        """Return padding, reduction, and the division of averages."""
        x = at(tensors, 0)
        window = self.window(TensorType(x.shape, x.dtype), attrs)
        last = attrs["layout"] == "NHWC"
        shape = _out_shape(x.shape, window, last)
        maximum = self.reduction == "max"
        filler = te.min_value(x.dtype) if maximum else te.const(0, x.dtype)
        read = window.reachable()
        source = read.pad_tensor(x, last, filler, f"{names[0]}.pad")
        taps = read.reduce_axes()
        fold = te.max if maximum else te.sum

        def element(*index: Expr) -> Expr:
            position = index[1:-1] if last else index[2:]
            where = taps if self.over_all else read.source(position, taps)
            cell = (index[0], *where, index[-1]) if last else (index[0], index[1], *where)
            return fold(source(*cell), axis=taps)

        axes = _axis_names(window.rank, last)
        averages = self.reduction == "average"
        folded = stage(shape, named_axes(axes, element), f"{names[0]}.sum" if averages else names[0])
        if not averages:
            return [folded]
        mean = self._mean(folded, window, attrs, last)
        return [stage(shape, named_axes(axes, mean), names[0])]

    def _mean(self, total: te.Tensor, window: Window, attrs: Attrs, last: bool) -> Expr:
        """Return the body of the division; the divisor is a constant unless some windows are cut."""
        whole = math.prod(window.kernel)
        if self.over_all or bool(np.all(self._counts(window, attrs) == whole)):
            return lambda *index: total(*index) * (1.0 / whole)

        def divided(*index: Expr) -> Expr:
            position = index[1:-1] if last else index[2:]
            count = _count_expr(window, attrs, position)
            return total(*index) / te.cast(count, total.dtype)

        return divided


def _counted_range(window: Window, attrs: Attrs, i: int) -> tuple[int, int]:
    """Return cells of dimension i of the padded input that count in a mean."""
    if attrs.get("count_include_pad"):
        return 0, window.pad_begin[i] + window.size[i] + window.pad_end[i]
    return window.pad_begin[i], window.pad_begin[i] + window.size[i]


def _count_expr(window: Window, attrs: Attrs, position: Index) -> Expr:
    """Return the number of cells start + t*d, 0 <= t < k, that lie in [low, high), over all dimensions."""
    count: Expr = 1
    for i, p in enumerate(position):
        low, high = _counted_range(window, attrs, i)
        k, d = window.kernel[i], window.dilations[i]
        start = p * window.strides[i]
        first = te.maximum((low - start + (d - 1)) // d, 0)
        end = te.minimum((high - start + (d - 1)) // d, k)
        count = count * te.maximum(end - first, 1)
    return count


def _register(pool: Pool, attributes: dict[str, Attribute], in_onnx: bool = True) -> OpDef:
    return define_in_float32(
        pool.name,
        "pool",
        (1, 1),
        pool.infer,
        pool.reference,
        pool.compute,
        {"layout": LAYOUT, **attributes},
        complete=pool.complete,
        flops_rule=pool.flops,
        in_onnx=in_onnx,
    )


WINDOWED = {
    **WINDOW_ATTRIBUTES,
    "ceil_mode": Attribute("int", 0),
    "kernel_shape": Attribute("ints", required=True),
}
_register(Pool("MaxPool", "max"), WINDOWED)
_register(Pool("AveragePool", "average"), {**WINDOWED, "count_include_pad": Attribute("int", 0)})
_register(Pool("SumPool", "sum"), WINDOWED, in_onnx=False)
_register(Pool("GlobalMaxPool", "max", over_all=True), {})
_register(Pool("GlobalAveragePool", "average", over_all=True), {})
