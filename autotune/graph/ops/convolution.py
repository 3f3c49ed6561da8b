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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    array_at,
    at,
    int_attr,
    ints_attr,
    named_axes,
    optional,
    pad_stage,
    require_float,
    spatial_names,
    stage,
    tensor_at,
)
from autotune.graph.ops.registry import (
    LAYOUT,
    Arrays,
    Attribute,
    OpDef,
    Tensors,
    Types,
    register,
)


@dataclass(frozen=True)
class ConvGeometry:
    """All sizes of a convolution, the same for both layouts. Spatial tuples are outermost first."""

    channels_last: bool
    batch: int
    in_channels: int
    out_channels: int
    groups: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pad_begin: tuple[int, ...]
    pad_end: tuple[int, ...]

    @property
    def group_inputs(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial extents of the output."""
        return tuple(
            (d + b + e - (k - 1) * dil - 1) // s + 1
            for d, b, e, k, s, dil in zip(
                self.size,
                self.pad_begin,
                self.pad_end,
                self.kernel,
                self.strides,
                self.dilations,
                strict=True,
            )
        )

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the output in its layout."""
        if self.channels_last:
            return (self.batch, *self.out_size, self.out_channels)
        return (self.batch, self.out_channels, *self.out_size)

    @property
    def padded(self) -> bool:
        """Whether any pad is not zero."""
        return any(self.pad_begin) or any(self.pad_end)

    def around(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Per-dimension amounts of the activations' shape: `spatial`, and 0 for batch, channels."""
        return (0, *spatial, 0) if self.channels_last else (0, 0, *spatial)


def _spatial_rank(types: Types) -> int:
    x, w = at(types, 0).shape, at(types, 1).shape
    if not 3 <= len(x) <= 5:
        raise GraphError(f"Conv takes 3 to 5 dimensions, got x of shape {x}")
    if len(w) != len(x):
        raise GraphError(f"Conv: x of shape {x} and w of shape {w} have different ranks")
    return len(x) - 2


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    rank = _spatial_rank(types)
    w = at(types, 1).shape
    kernel = w[:rank] if attrs["layout"] == "NHWC" else w[2:]
    if attrs.setdefault("kernel_shape", kernel) != kernel:
        raise GraphError(f"Conv: kernel_shape {attrs['kernel_shape']} but w has kernel {kernel}")
    attrs.setdefault("strides", (1,) * rank)
    attrs.setdefault("dilations", (1,) * rank)
    attrs.setdefault("pads", (0,) * 2 * rank)


def check_window(op: str, attrs: Attrs, rank: int) -> None:
    """Raise GraphError unless kernel_shape, strides, dilations and pads fit `rank` dimensions."""
    for key, length, least in (
        ("kernel_shape", rank, 1),
        ("strides", rank, 1),
        ("dilations", rank, 1),
        ("pads", 2 * rank, 0),
    ):
        value = ints_attr(attrs, key)
        if len(value) != length or any(v < least for v in value):
            raise GraphError(f"{op}: {key} = {value}; it takes {length} ints, each >= {least}")


def geometry(types: Types, attrs: Attrs) -> ConvGeometry:
    """The sizes of a Conv node from its input types and complete attributes.

    Raises GraphError if channels, groups, kernel or padding do not fit.
    """
    rank = _spatial_rank(types)
    check_window("Conv", attrs, rank)
    x, w = at(types, 0).shape, at(types, 1).shape
    last = attrs["layout"] == "NHWC"
    pads = ints_attr(attrs, "pads")
    geo = ConvGeometry(
        channels_last=last,
        batch=x[0],
        in_channels=x[-1] if last else x[1],
        out_channels=w[-1] if last else w[0],
        groups=int_attr(attrs, "group"),
        size=x[1:-1] if last else x[2:],
        kernel=ints_attr(attrs, "kernel_shape"),
        strides=ints_attr(attrs, "strides"),
        dilations=ints_attr(attrs, "dilations"),
        pad_begin=pads[:rank],
        pad_end=pads[rank:],
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
    if any(d < 1 for d in geo.out_size):
        raise GraphError(f"Conv: the kernel {geo.kernel} does not fit into x of shape {x}")
    return geo


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("Conv", types)
    geo = geometry(types, attrs)
    bias = optional(types, 2)
    if bias is not None and bias.shape != (geo.out_channels,):
        raise GraphError(f"Conv: bias of shape {bias.shape}, expected {(geo.out_channels,)}")
    return [TensorType(geo.out_shape, at(types, 0).dtype)]


def _taps(geo: ConvGeometry) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each kernel position with the slice of the padded input that it multiplies."""
    for tap in product(*(range(k) for k in geo.kernel)):
        yield (
            tap,
            tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, geo.dilations, geo.out_size, geo.strides, strict=True)
            ),
        )


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    """Sum over kernel positions of a shifted input times a [channels, out channels] matrix."""
    x, w, bias = array_at(arrays, 0), array_at(arrays, 1), optional(arrays, 2)
    geo = geometry([TensorType.of(x), TensorType.of(w)], attrs)
    if not geo.channels_last:
        x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-1, -2))
    widths = [(0, 0), *zip(geo.pad_begin, geo.pad_end, strict=True), (0, 0)]
    x = np.pad(x, widths) if geo.padded else x
    pixels = geo.batch * math.prod(geo.out_size)
    g, ci, co = geo.groups, geo.group_inputs, geo.group_outputs
    total = np.zeros((g, pixels, co), x.dtype)
    for tap, window in _taps(geo):
        part = x[(slice(None), *window)].reshape(pixels, g, ci).swapaxes(0, 1)
        matrix = w[tap].reshape(ci, g, co).swapaxes(0, 1)
        total += part * matrix if ci == 1 else part @ matrix
    out = total.swapaxes(0, 1).reshape(geo.batch, *geo.out_size, geo.out_channels)
    if bias is not None:
        out = out + bias
    return [np.ascontiguousarray(out if geo.channels_last else np.moveaxis(out, -1, 1))]


def _input_channel(geo: ConvGeometry, oc: Expr, rc: Expr) -> Expr:
    if geo.groups == 1:
        return rc
    group = oc // geo.group_outputs
    return group if geo.group_inputs == 1 else group * geo.group_inputs + rc


def _sum_stage(geo: ConvGeometry, x: te.Tensor, w: te.Tensor, name: str) -> te.Tensor:
    spatial = spatial_names(len(geo.size))
    window = [te.reduce_axis((0, k), name=f"r{n}") for n, k in zip(spatial, geo.kernel, strict=True)]
    rc = te.reduce_axis((0, geo.group_inputs), name="rc")

    def element(*index: Expr) -> Expr:
        n, oc = index[0], index[-1 if geo.channels_last else 1]
        position = index[1:-1] if geo.channels_last else index[2:]
        source = [
            p * s + r * d for p, s, r, d in zip(position, geo.strides, window, geo.dilations, strict=True)
        ]
        ic = _input_channel(geo, oc, rc)
        if geo.channels_last:
            return te.sum(x(n, *source, ic) * w(*window, rc, oc), axis=[*window, rc])
        return te.sum(x(n, ic, *source) * w(oc, rc, *window), axis=[rc, *window])

    axes = ["n", *spatial, "oc"] if geo.channels_last else ["n", "oc", *spatial]
    return stage(geo.out_shape, named_axes(axes, element), name)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, w, bias = tensor_at(tensors, 0), tensor_at(tensors, 1), optional(tensors, 2)
    geo = geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    out = names[0]
    if geo.padded:
        x = pad_stage(x, geo.around(geo.pad_begin), geo.around(geo.pad_end), 0, f"{out}.pad")
    if bias is None:
        return [_sum_stage(geo, x, w, out)]
    acc = _sum_stage(geo, x, w, f"{out}.acc")
    channel = len(geo.out_shape) - 1 if geo.channels_last else 1
    return [stage(geo.out_shape, lambda *i: acc(*i) + bias(i[channel]), out)]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    geo = geometry(types, attrs)
    adds = results[0].size if optional(types, 2) is not None else 0
    return 2 * results[0].size * geo.group_inputs * math.prod(geo.kernel) + adds


register(
    OpDef(
        "Conv",
        "convolution",
        (2, 3),
        _infer,
        _reference,
        _compute,
        {
            "dilations": Attribute("ints"),
            "group": Attribute("int", 1),
            "kernel_shape": Attribute("ints"),
            "layout": LAYOUT,
            "pads": Attribute("ints"),
            "strides": Attribute("ints"),
        },
        complete=_complete,
        flops_rule=_flops,
    )
)
