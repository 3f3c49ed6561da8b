"""Normalisations. x is [n, c, spatial...] (layout "NCHW") or [n, spatial..., c] ("NHWC").

BatchNormalization(x, scale, bias, mean, var), all of [c]: epsilon (1e-5), layout; inference only.
It is elementwise. LayerNormalization(x, scale[, bias]): axis (-1), epsilon (1e-5): statistics over
the dimensions from axis on, scale and bias broadcast to them. RMSNormalization(x, scale): axis, epsilon: the
same with x over the root of the mean of its squares. InstanceNormalization(x, scale, bias):
epsilon, layout: statistics over the spatial dimensions. LRN(x): size, alpha (1e-4), beta (0.75),
bias (1), layout: x / (bias + alpha / size * sum of x^2 over a window of channels)^beta.

te stages: "<out>.first" (an element of the row, so that values far from zero are summed as differences),
"<out>.sum" and "<out>.sqsum" (of the differences from it, and of the squared ones from the mean; reduce rk or
rk0, rk1, ...), "<out>.mean" between them, "<out>.rstd" = 1 / sqrt(variance + epsilon), "<out>.shift" (what the
rounded mean lacks, times that), then the output. RMSNormalization: "<out>.sqsum" of the elements, "<out>.rstd",
then the output. LRN: "<out>.pad" (squares, zeros around the channels), "<out>.sqsum" (reduce rc), then the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    broadcasts_to,
    channel_axis,
    complete_axis,
    float_attr,
    int_attr,
    optional,
    pad_stage,
    read_broadcast,
    require_float,
    stage,
)
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.reduction import reduce_axes
from autotune.graph.ops.wide import define_in_float32

_EPSILON = Attribute("float", 1e-5)


def _check_channels(name: str, types: Types, attrs: Attrs) -> None:
    require_float(name, types)
    x = at(types, 0)
    if x.rank < 2:
        raise GraphError(f"{name} needs a channel dimension, got shape {x.shape}")
    channels = x.shape[channel_axis(x.rank, attrs)]
    for i in range(1, len(types)):
        if at(types, i).shape != (channels,):
            raise GraphError(f"{name}: input {i} has shape {at(types, i).shape}, expected {(channels,)}")


def _along(vector: Array, rank: int, axis: int) -> Array:
    """Return a vector shaped to broadcast along one axis."""
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def _batch_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check_channels("BatchNormalization", types, attrs)
    return [at(types, 0).dense]


def _batch_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, *rest = (at(arrays, i) for i in range(5))
    axis = channel_axis(x.ndim, attrs)
    scale, bias, mean, var = (_along(v, x.ndim, axis) for v in rest)
    return [(x - mean) * (scale / np.sqrt(var + float_attr(attrs, "epsilon"))) + bias]


def _batch_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, scale, bias, mean, var = (at(tensors, i) for i in range(5))
    axis, epsilon = channel_axis(x.ndim, attrs), float_attr(attrs, "epsilon")

    def element(*index: Expr) -> Expr:
        c = index[axis]
        return (x(*index) - mean[c]) * (scale[c] / te.sqrt(var[c] + epsilon)) + bias[c]

    return [stage(x.shape, element, names[0])]


def _normalise(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + x.dtype.type(epsilon)))


def _normalised_stage(
    x: te.Tensor,
    axes: Sequence[int],
    epsilon: float,
    name: str,
    finish: Callable[[Expr, Sequence[Expr]], Expr],
) -> te.Tensor:
    """Return (x - mean) / sqrt(var + epsilon) over axes, then `finish(value, index)`."""
    outer = [d for i, d in enumerate(x.shape) if i not in axes]
    extents = [x.shape[a] for a in axes]
    scale = 1.0 / math.prod(extents)

    def without(index: Sequence[Expr]) -> list[Expr]:
        return [i for d, i in enumerate(index) if d not in axes]

    def cell(row: Sequence[Expr], inner: Sequence[Expr]) -> list[Expr]:
        kept = list(row)
        return [inner[axes.index(d)] if d in axes else kept.pop(0) for d in range(x.ndim)]

    def total(element: Callable[[Sequence[Expr], Sequence[Expr]], Expr], suffix: str) -> te.Tensor:
        rks = reduce_axes(extents)
        return stage(outer, lambda *row: te.sum(element(cell(row, rks), row), axis=rks), f"{name}.{suffix}")

    def squared(index: Sequence[Expr], row: Sequence[Expr]) -> Expr:
        centred = x(*index) - mean(*row)
        return centred * centred

    def rounded_off(*row: Expr) -> Expr:
        """Return the rounding error of the mean (the error of a sum, by Dekker), times rstd."""
        return ((first(*row) - mean(*row)) + sums(*row) * scale) * rstd(*row)

    def result(*index: Expr) -> Expr:
        row = without(index)
        return finish((x(*index) - mean(*row)) * rstd(*row) - shift(*row), index)

    first = stage(outer, lambda *row: x(*cell(row, [0] * len(axes))), f"{name}.first")
    sums = total(lambda index, row: x(*index) - first(*row), "sum")
    mean = stage(outer, lambda *row: first(*row) + sums(*row) * scale, f"{name}.mean")
    squares = total(squared, "sqsum")
    rstd = stage(outer, lambda *row: 1.0 / te.sqrt(squares(*row) * scale + epsilon), f"{name}.rstd")
    shift = stage(outer, rounded_off, f"{name}.shift")
    return stage(x.shape, result, name)


def _layer_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    return _row_infer("LayerNormalization", types, attrs)


def _row_infer(op: str, types: Types, attrs: Attrs) -> list[TensorType]:
    require_float(op, types)
    x = at(types, 0)
    inner = x.shape[int_attr(attrs, "axis") :]
    for name, t in (("scale", at(types, 1)), ("bias", optional(types, 2))):
        if t is not None and not broadcasts_to(t.shape, inner):
            raise GraphError(f"{op}: {name} of shape {t.shape} does not broadcast to {inner}")
    return [x.dense]


def _layer_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, scale, bias = at(arrays, 0), at(arrays, 1), optional(arrays, 2)
    axes = tuple(range(int_attr(attrs, "axis"), x.ndim))
    value = _normalise(x, axes, float_attr(attrs, "epsilon")) * scale
    return [value if bias is None else value + bias]


def _layer_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, scale, bias = at(tensors, 0), at(tensors, 1), optional(tensors, 2)
    axes = range(int_attr(attrs, "axis"), x.ndim)

    def finish(value: Expr, index: Sequence[Expr]) -> Expr:
        value = value * read_broadcast(scale, index)
        return value if bias is None else value + read_broadcast(bias, index)

    return [_normalised_stage(x, axes, float_attr(attrs, "epsilon"), names[0], finish)]


def _rms_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, scale = at(arrays, 0), at(arrays, 1)
    axes = tuple(range(int_attr(attrs, "axis"), x.ndim))
    squares = np.square(x).mean(axis=axes, keepdims=True)
    return [np.asarray(x / np.sqrt(squares + x.dtype.type(float_attr(attrs, "epsilon"))) * scale)]


def _rms_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, scale, name = at(tensors, 0), at(tensors, 1), names[0]
    axis, epsilon = int_attr(attrs, "axis"), float_attr(attrs, "epsilon")
    outer, extents = x.shape[:axis], x.shape[axis:]
    rks = reduce_axes(extents)
    share = 1.0 / math.prod(extents)
    squares = stage(outer, lambda *row: te.sum(x(*row, *rks) * x(*row, *rks), axis=rks), f"{name}.sqsum")
    rstd = stage(outer, lambda *row: 1.0 / te.sqrt(squares(*row) * share + epsilon), f"{name}.rstd")

    def result(*index: Expr) -> Expr:
        return x(*index) * rstd(*index[:axis]) * read_broadcast(scale, index)

    return [stage(x.shape, result, name)]


def _instance_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check_channels("InstanceNormalization", types, attrs)
    if at(types, 0).rank < 3:
        raise GraphError(f"InstanceNormalization needs spatial dimensions, got {at(types, 0).shape}")
    return [at(types, 0).dense]


def _spatial_axes(rank: int, attrs: Attrs) -> tuple[int, ...]:
    return tuple(range(1, rank - 1)) if attrs["layout"] == "NHWC" else tuple(range(2, rank))


def _instance_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, scale, bias = (at(arrays, i) for i in range(3))
    axis = channel_axis(x.ndim, attrs)
    value = _normalise(x, _spatial_axes(x.ndim, attrs), float_attr(attrs, "epsilon"))
    return [value * _along(scale, x.ndim, axis) + _along(bias, x.ndim, axis)]


def _instance_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, scale, bias = (at(tensors, i) for i in range(3))
    axis, axes = channel_axis(x.ndim, attrs), _spatial_axes(x.ndim, attrs)

    def finish(value: Expr, index: Sequence[Expr]) -> Expr:
        return value * scale[index[axis]] + bias[index[axis]]

    return [_normalised_stage(x, axes, float_attr(attrs, "epsilon"), names[0], finish)]


def _lrn_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check_channels("LRN", types, attrs)
    if int_attr(attrs, "size") < 1:
        raise GraphError(f"LRN: size = {attrs['size']} must be at least 1")
    return [at(types, 0).dense]


def _lrn_reach(size: int, channels: int) -> tuple[int, int]:
    """Return channels before and after one over which squares are summed; those beyond the tensor are zeros."""
    before = (size - 1) // 2
    return min(before, channels), min(size - 1 - before, channels)


def _lrn_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, size = at(arrays, 0), int_attr(attrs, "size")
    axis = channel_axis(x.ndim, attrs)
    widths = [(0, 0)] * x.ndim
    widths[axis] = _lrn_reach(size, x.shape[axis])
    squares = np.pad(np.square(x), widths)
    windows = np.lib.stride_tricks.sliding_window_view(squares, sum(widths[axis]) + 1, axis)
    scale = float_attr(attrs, "alpha") / size
    base = float_attr(attrs, "bias") + scale * windows.sum(axis=-1)
    return [(x / base ** float_attr(attrs, "beta")).astype(x.dtype)]


def _power(base: Expr, exponent: float) -> Expr:
    """Return base ** exponent; the usual exponents by square roots, which vectorise."""
    if exponent == 0.5:
        return te.sqrt(base)
    if exponent == 0.75:
        return te.sqrt(base) * te.sqrt(te.sqrt(base))
    return te.pow(base, te.const(exponent, base.dtype))


def _lrn_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, size, out = at(tensors, 0), int_attr(attrs, "size"), names[0]
    axis = channel_axis(x.ndim, attrs)
    before, after = [0] * x.ndim, [0] * x.ndim
    before[axis], after[axis] = _lrn_reach(size, x.shape[axis])
    padded = pad_stage(x, before, after, 0.0, f"{out}.pad", lambda value: value * value)
    rc = te.reduce_axis((0, before[axis] + after[axis] + 1), name="rc")

    def window(*index: Expr) -> Expr:
        return te.sum(padded(*index[:axis], index[axis] + rc, *index[axis + 1 :]), axis=rc)

    total = stage(x.shape, window, f"{out}.sqsum")
    scale, bias = float_attr(attrs, "alpha") / size, float_attr(attrs, "bias")

    def result(*index: Expr) -> Expr:
        return x(*index) / _power(total(*index) * scale + bias, float_attr(attrs, "beta"))

    return [stage(x.shape, result, out)]


def _flops(per_element: int) -> Callable[[Types, Sequence[TensorType], Attrs], int]:
    return lambda types, results, attrs: per_element * results[0].size


define_in_float32(
    "BatchNormalization",
    "elementwise",
    (5, 5),
    _batch_infer,
    _batch_reference,
    _batch_compute,
    {"epsilon": _EPSILON, "layout": LAYOUT},
    flops_rule=_flops(2),
    positive_inputs=(1, 4),
)
define_in_float32(
    "LayerNormalization",
    "normalization",
    (2, 3),
    _layer_infer,
    _layer_reference,
    _layer_compute,
    {"axis": Attribute("int", -1), "epsilon": _EPSILON},
    complete_axis,
    _flops(8),
)
define_in_float32(
    "RMSNormalization",
    "normalization",
    (2, 2),
    lambda types, attrs: _row_infer("RMSNormalization", types, attrs),
    _rms_reference,
    _rms_compute,
    {"axis": Attribute("int", -1), "epsilon": _EPSILON},
    complete_axis,
    _flops(4),
)
define_in_float32(
    "InstanceNormalization",
    "normalization",
    (3, 3),
    _instance_infer,
    _instance_reference,
    _instance_compute,
    {"epsilon": _EPSILON, "layout": LAYOUT},
    flops_rule=_flops(8),
)
define_in_float32(
    "LRN",
    "normalization",
    (1, 1),
    _lrn_infer,
    _lrn_reference,
    _lrn_compute,
    {
        "alpha": Attribute("float", 1e-4),
        "beta": Attribute("float", 0.75),
        "bias": Attribute("float", 1.0),
        "layout": LAYOUT,
        "size": Attribute("int", required=True),
    },
    flops_rule=lambda types, results, attrs: results[0].size * (2 * int_attr(attrs, "size") + 4),
)
