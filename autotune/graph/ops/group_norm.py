"""GroupNormalization(x, scale, bias): num_groups, epsilon (1e-5), layout.

x is [n, c, spatial...] (layout "NCHW") or [n, spatial..., c] ("NHWC"); scale and bias are [c]. Statistics are of
c / num_groups channels that follow one another, at all places.

te stages: "<out>.first" (an element of the group, so that values far from zero are summed as differences), "<out>.sum"
(of a channel's differences from it, reduce rk or rk0, rk1, ...), "<out>.total" (of a group's channels, reduce rc),
"<out>.mean", "<out>.sqsum" and "<out>.squares" (of differences from the mean, likewise), "<out>.factor" (scale over the
standard deviation), "<out>.offset" (bias, less what the rounded mean lacks), then the output. What is not a sum over a
group has an element a channel, so that images whose channels are last are read in whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, channel_axis, float_attr, int_attr, require_float, stage
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.reduction import reduce_axes
from autotune.graph.ops.wide import define_in_float32


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("GroupNormalization", types)
    x, groups = at(types, 0), int_attr(attrs, "num_groups")
    if x.rank < 3:
        raise GraphError(f"GroupNormalization needs spatial dimensions, got shape {x.shape}")
    channels = x.shape[channel_axis(x.rank, attrs)]
    if groups < 1 or channels % groups:
        raise GraphError(f"GroupNormalization: {channels} channels do not make {groups} groups of one size")
    for i in (1, 2):
        if at(types, i).shape != (channels,):
            raise GraphError(
                f"GroupNormalization: input {i} has shape {at(types, i).shape}, expected {(channels,)}"
            )
    return [x.dense]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, scale, bias = (at(arrays, i) for i in range(3))
    axis, groups = channel_axis(x.ndim, attrs), int_attr(attrs, "num_groups")
    first = np.moveaxis(x, axis, 1)
    grouped = first.reshape(first.shape[0], groups, -1)
    centred = grouped - grouped.mean(axis=2, keepdims=True)
    variance = np.square(centred).mean(axis=2, keepdims=True)
    value = centred / np.sqrt(variance + x.dtype.type(float_attr(attrs, "epsilon")))
    normed = np.moveaxis(value.reshape(first.shape), 1, axis)
    along = [-1 if d == axis else 1 for d in range(x.ndim)]
    return [np.ascontiguousarray(normed * scale.reshape(along) + bias.reshape(along))]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, scale, bias, name = at(tensors, 0), at(tensors, 1), at(tensors, 2), names[0]
    axis, epsilon = channel_axis(x.ndim, attrs), float_attr(attrs, "epsilon")
    channels, groups = x.shape[axis], int_attr(attrs, "num_groups")
    size, spatial = channels // groups, [d for d in range(1, x.ndim) if d != axis]
    extents, per_channel, per_group = (
        [x.shape[d] for d in spatial],
        (x.shape[0], channels),
        (x.shape[0], groups),
    )
    share = 1.0 / (size * math.prod(extents))

    def element(n: Expr, c: Expr, place: Sequence[Expr]) -> Expr:
        rest = list(place)
        return x(n, *(c if d == axis else rest.pop(0) for d in range(1, x.ndim)))

    def over_places(value: Callable[[Expr, Expr, Expr], Expr], suffix: str) -> te.Tensor:
        rks = reduce_axes(extents)
        return stage(
            per_channel,
            lambda n, c: te.sum(value(element(n, c, rks), n, c), axis=rks),
            f"{name}.{suffix}",
        )

    def over_group(sums: te.Tensor, suffix: str) -> te.Tensor:
        rc = te.reduce_axis((0, size), name="rc")
        return stage(per_group, lambda n, g: te.sum(sums(n, g * size + rc), axis=rc), f"{name}.{suffix}")

    def of_channel(value: Callable[[Expr, Expr], Expr], suffix: str) -> te.Tensor:
        return stage(per_channel, value, f"{name}.{suffix}")

    first = of_channel(lambda n, c: element(n, c // size * size, [0] * len(spatial)), "first")
    sums = over_places(lambda value, n, c: value - first(n, c), "sum")
    total = over_group(sums, "total")
    mean = of_channel(lambda n, c: first(n, c) + total(n, c // size) * share, "mean")
    sqsum = over_places(lambda value, n, c: (value - mean(n, c)) * (value - mean(n, c)), "sqsum")
    squares = over_group(sqsum, "squares")
    factor = of_channel(
        lambda n, c: scale[c] * (1.0 / te.sqrt(squares(n, c // size) * share + epsilon)), "factor"
    )

    def lacking(n: Expr, c: Expr) -> Expr:
        """Return the rounding error of the mean (the error of a sum, by Dekker)."""
        return (first(n, c) - mean(n, c)) + total(n, c // size) * share

    offset = of_channel(lambda n, c: bias[c] - lacking(n, c) * factor(n, c), "offset")

    def result(*index: Expr) -> Expr:
        n, c = index[0], index[axis]
        return (x(*index) - mean(n, c)) * factor(n, c) + offset(n, c)

    return [stage(x.shape, result, name)]


define_in_float32(
    "GroupNormalization",
    "normalization",
    (3, 3),
    _infer,
    _reference,
    _compute,
    {
        "epsilon": Attribute("float", 1e-5),
        "layout": LAYOUT,
        "num_groups": Attribute("int", required=True),
    },
    flops_rule=lambda types, results, attrs: 8 * results[0].size,
    in_onnx=False,  # its definition there changed: it is expanded, and recognised (canonical forms)
)
