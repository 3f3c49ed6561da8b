"""Conv(x, w[, bias]): 1-D to 3-D convolution with groups, dilation, strides, asymmetric padding.

Attributes: layout "NCHW" (x [n, c, spatial...], w [oc, c/group, kernel...]) or "NHWC"
(x [n, spatial..., c], w [kernel..., c/group, oc]); kernel_shape (from w if absent), strides,
dilations, pads (begins then ends, as ONNX; auto_pad is resolved by the frontend), group.

te stages: "<out>.pad" (only if a pad is not zero), the sum, and with a bias "<out>.acc" is the sum
and "<out>" adds the bias. Data axes n, spatial..., oc (NHWC) or n, oc, spatial... (NCHW); reduce
axes rh, rw, rc (NHWC; rd first in 3-D) or rc, rh, rw (NCHW), also where their extent is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    accumulated_in,
    as_read,
    at,
    int_attr,
    named_axes,
    narrowed,
    optional,
    require_columns,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.definition import COLUMNS, LAYOUT, Arrays, Attribute, Tensors, Types, WorkloadKind
from autotune.graph.ops.facts import Weights
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, Window, complete_window, window_of


@dataclass(frozen=True)
class GroupedChannels:
    """Batch and channels of a convolution or a transposed one, the same for both layouts."""

    channels_last: bool
    batch: int
    in_channels: int
    out_channels: int
    groups: int

    @property
    def group_inputs(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    def shape_of(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an output of such a spatial size in its layout."""
        if self.channels_last:
            return (self.batch, *size, self.out_channels)
        return (self.batch, self.out_channels, *size)

    def result(self, op: str, types: Types, size: Sequence[int]) -> list[TensorType]:
        """Return the type of the output; raises GraphError for a bias that does not fit."""
        bias = optional(types, 2)
        if bias is not None and bias.shape != (self.out_channels,):
            raise GraphError(f"{op}: bias of shape {bias.shape}, expected {(self.out_channels,)}")
        return [TensorType(self.shape_of(size), at(types, 0).dtype)]


@dataclass(frozen=True)
class ConvGeometry(GroupedChannels):
    """All sizes of a convolution."""

    window: Window

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the output in its layout."""
        return self.shape_of(self.window.out_size)


def spatial_rank(op: str, types: Types) -> int:
    """Return the number of spatial axes of the inputs of a convolution or transposed one; raises
    GraphError if they differ."""
    x, w = at(types, 0).shape, at(types, 1).shape
    if not 3 <= len(x) <= 5:
        raise GraphError(f"{op} takes 3 to 5 dimensions, got x of shape {x}")
    if len(w) != len(x):
        raise GraphError(f"{op}: x of shape {x} and w of shape {w} have different ranks")
    return len(x) - 2


def complete_kernel(op: str, types: Types, attrs: dict[str, Attr]) -> None:
    """Fill in kernel_shape, strides, dilations and pads of a convolution or transposed one."""
    rank = spatial_rank(op, types)
    w = at(types, 1).shape
    kernel = w[:rank] if attrs["layout"] == "NHWC" else w[2:]
    if attrs.setdefault("kernel_shape", kernel) != kernel:
        raise GraphError(f"{op}: kernel_shape {attrs['kernel_shape']} but w has kernel {kernel}")
    complete_window(rank, attrs)


def complete_conv(types: Types, attrs: dict[str, Attr]) -> None:
    """Fill in kernel_shape, strides, dilations and pads."""
    complete_kernel("Conv", types, attrs)


def geometry(types: Types, attrs: Attrs) -> ConvGeometry:
    """Return the sizes of a Conv node from its input types and complete attributes.

    Raises GraphError if channels, groups, kernel or padding do not fit.
    """
    spatial_rank("Conv", types)
    x, w = at(types, 0).shape, at(types, 1).shape
    last = attrs["layout"] == "NHWC"
    geo = ConvGeometry(
        channels_last=last,
        batch=x[0],
        in_channels=x[-1] if last else x[1],
        out_channels=w[-1] if last else w[0],
        groups=int_attr(attrs, "group"),
        window=window_of("Conv", x, attrs),
    )
    weight_inputs = w[-2] if last else w[1]
    if geo.groups < 1 or geo.in_channels % geo.groups or geo.out_channels % geo.groups:
        raise GraphError(
            f"Conv: group = {geo.groups} does not divide {geo.in_channels} input and "
            f"{geo.out_channels} output channels"
        )
    if weight_inputs != geo.group_inputs:
        raise GraphError(
            f"Conv: w of shape {w} has {weight_inputs} input channels a group, x of shape {x} has "
            f"{geo.group_inputs} (layout {attrs['layout']}, group {geo.groups})"
        )
    return geo


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("Conv", as_read(types))
    geo = geometry(types, attrs)
    require_columns("Conv", attrs, geo.out_channels)
    return geo.result("Conv", types, geo.window.out_size)


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, w, bias = at(arrays, 0), at(arrays, 1), optional(arrays, 2)
    wide = accumulated_in(str(x.dtype))
    out = conv_array(x.astype(wide, copy=False), w.astype(wide, copy=False), attrs)
    if bias is not None:
        channel = out.ndim - 1 if attrs["layout"] == "NHWC" else 1
        out = out + bias.astype(wide, copy=False).reshape(
            [-1 if d == channel else 1 for d in range(out.ndim)]
        )
    return [out.astype(x.dtype, copy=False)]


def conv_array(x: Array, w: Array, attrs: Attrs, fill: float = 0) -> Array:
    """Return the sum over kernel positions of a shifted input times a [channels, out channels] matrix."""
    geo = geometry([TensorType.of(x), TensorType.of(w)], attrs)
    if not geo.channels_last:
        x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-1, -2))
    window = geo.window
    x = window.pad_array(x, fill)
    pixels = geo.batch * math.prod(window.out_size)
    g, ci, co = geo.groups, geo.group_inputs, geo.group_outputs
    total = np.zeros((g, pixels, co), x.dtype)
    for tap, shifted in window.taps():
        part = x[(slice(None), *shifted)].reshape(pixels, g, ci).swapaxes(0, 1)
        matrix = w[tap].reshape(ci, g, co).swapaxes(0, 1)
        total += part * matrix if ci == 1 else part @ matrix
    out = total.swapaxes(0, 1).reshape(geo.batch, *window.out_size, geo.out_channels)
    return np.ascontiguousarray(out if geo.channels_last else np.moveaxis(out, -1, 1))


def _input_channel(geo: ConvGeometry, oc: Expr, rc: Expr) -> Expr:
    if geo.groups == 1:
        return rc
    group = oc // geo.group_outputs
    return group if geo.group_inputs == 1 else group * geo.group_inputs + rc


def sum_stage(geo: ConvGeometry, x: te.Tensor, w: te.Tensor, name: str, dtype: str) -> te.Tensor:
    """Return the sums of products of a convolution, converted to ``dtype`` before they are multiplied."""
    spatial = spatial_names(geo.window.rank)
    window = geo.window.reduce_axes()
    rc = te.reduce_axis((0, geo.group_inputs), name="rc")

    def element(*index: Expr) -> Expr:
        n, oc = index[0], index[-1 if geo.channels_last else 1]
        position = index[1:-1] if geo.channels_last else index[2:]
        source = geo.window.source(position, window)
        ic = _input_channel(geo, oc, rc)
        if geo.channels_last:
            left, right, axes = x(n, *source, ic), w(*window, rc, oc), [*window, rc]
        else:
            left, right, axes = x(n, ic, *source), w(oc, rc, *window), [rc, *window]
        return te.sum(te.cast(left, dtype) * te.cast(right, dtype), axis=axes)

    axes = ["n", *spatial, "oc"] if geo.channels_last else ["n", "oc", *spatial]
    return stage(geo.out_shape, named_axes(axes, element), name)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, w, bias = at(tensors, 0), at(tensors, 1), optional(tensors, 2)
    geo = geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    out = names[0]
    x = geo.window.pad_tensor(x, geo.channels_last, 0.0, f"{out}.pad")
    wide = accumulated_in(x.dtype)
    if bias is None and wide == x.dtype:
        return [sum_stage(geo, x, w, out, wide)]
    acc = sum_stage(geo, x, w, f"{out}.acc", wide)
    if bias is None:
        return [narrowed(acc, x.dtype, out)]
    channel = len(geo.out_shape) - 1 if geo.channels_last else 1
    return [
        stage(
            geo.out_shape,
            lambda *i: te.cast(acc(*i) + te.cast(bias(i[channel]), wide), x.dtype),
            out,
        )
    ]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    geo = geometry(types, attrs)
    adds = results[0].size if optional(types, 2) is not None else 0
    return 2 * results[0].size * geo.group_inputs * math.prod(geo.window.kernel) + adds


def conv_workload(types: Types, attrs: Attrs) -> WorkloadKind:
    """Return Convolutions of one input channel a group have schedules of their own."""
    per_group = at(types, 1).shape[-2 if attrs["layout"] == "NHWC" else 1]
    return "depthwise" if int_attr(attrs, "group") > 1 and per_group == 1 else "convolution"


CONV_ATTRIBUTES = {
    **WINDOW_ATTRIBUTES,
    "group": Attribute("int", 1),
    "kernel_shape": Attribute("ints"),
    "layout": LAYOUT,
}
CONV_WEIGHTS = Weights(inputs=1, outputs=0)

define(
    "Conv",
    "convolution",
    (2, 3),
    _infer,
    _reference,
    _compute,
    {**CONV_ATTRIBUTES, "columns": COLUMNS},
    complete=complete_conv,
    flops_rule=_flops,
    workload_rule=conv_workload,
    prologue=("rearrangement", "blend", "elementwise"),
    weights=CONV_WEIGHTS,
    bias_input=2,
)
