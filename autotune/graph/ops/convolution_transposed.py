"""ConvTranspose(x, w[, bias]): 1-D to 3-D transposed convolution, the adjoint of Conv.

Input element i and tap t meet in output element i*stride + t*dilation - pad; what the taps do not reach is 0.
Attributes: layout "NCHW" (x [n, c, spatial...], w [c, oc/group, kernel...]) or "NHWC" (x [n, spatial..., c],
w [kernel..., c, oc/group]); kernel_shape (from w if absent), strides, dilations, pads (begins then ends, as
ONNX), output_padding (elements added at the ends), group. The frontend resolves auto_pad and output_shape.

te stages: "<out>.spread" (the input with zeros between and around its elements), the sum over the taps from the
last to the first, and with a bias "<out>.acc" is the sum and "<out>" adds the bias. Axes as for Conv. This is the
definition; the pass split_phases replaces it by what has no multiplication by zeros.
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
    at,
    int_attr,
    ints_attr,
    named_axes,
    optional,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.convolution import GroupedChannels, complete_kernel, spatial_rank
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.facts import Weights
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, check_window


@dataclass(frozen=True)
class TransposedGeometry(GroupedChannels):
    """All sizes of a transposed convolution; tuples are outermost first."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pad_begin: tuple[int, ...]
    out_size: tuple[int, ...]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the output in its layout."""
        return self.shape_of(self.out_size)


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    complete_kernel("ConvTranspose", types, attrs)
    attrs.setdefault("output_padding", (0,) * spatial_rank("ConvTranspose", types))


def transposed_geometry(types: Types, attrs: Attrs) -> TransposedGeometry:
    """Return the sizes of a ConvTranspose node from its input types and complete attributes.

    Raises GraphError if channels, groups or padding do not fit.
    """
    rank = spatial_rank("ConvTranspose", types)
    x, w = at(types, 0).shape, at(types, 1).shape
    last = attrs["layout"] == "NHWC"
    check_window("ConvTranspose", attrs, rank)
    extra = ints_attr(attrs, "output_padding")
    if len(extra) != rank or any(e < 0 for e in extra):
        raise GraphError(f"ConvTranspose: output_padding = {extra}; it takes {rank} ints, each >= 0")
    groups, size = int_attr(attrs, "group"), x[1:-1] if last else x[2:]
    inputs, weight_inputs = (x[-1], w[-2]) if last else (x[1], w[0])
    if groups < 1 or inputs % groups:
        raise GraphError(f"ConvTranspose: group = {groups} does not divide {inputs} input channels")
    if weight_inputs != inputs:
        raise GraphError(
            f"ConvTranspose: w of shape {w} has {weight_inputs} input channels, x of shape {x} has "
            f"{inputs} (layout {attrs['layout']})"
        )
    pads = ints_attr(attrs, "pads")
    kernel, strides = ints_attr(attrs, "kernel_shape"), ints_attr(attrs, "strides")
    dilations = ints_attr(attrs, "dilations")
    out = tuple(
        (size[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i] - pads[i] - pads[rank + i]
        for i in range(rank)
    )
    if min(out) < 1:
        raise GraphError(f"ConvTranspose: pads {pads} leave nothing of the output: its size would be {out}")
    return TransposedGeometry(
        channels_last=last,
        batch=x[0],
        in_channels=inputs,
        out_channels=groups * (w[-1] if last else w[1]),
        groups=groups,
        size=tuple(size),
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pad_begin=pads[:rank],
        out_size=out,
    )


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("ConvTranspose", types)
    geo = transposed_geometry(types, attrs)
    return geo.result("ConvTranspose", types, geo.out_size)


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    """Scatter the product of the input with each tap's matrix, then crop."""
    x, w, bias = at(arrays, 0), at(arrays, 1), optional(arrays, 2)
    geo = transposed_geometry([TensorType.of(x), TensorType.of(w)], attrs)
    if not geo.channels_last:
        x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-2, -1))
    g, ci, co = geo.groups, geo.group_inputs, geo.group_outputs
    whole = [
        p + o + (k - 1) * d + s
        for p, o, k, d, s in zip(
            geo.pad_begin, geo.out_size, geo.kernel, geo.dilations, geo.strides, strict=True
        )
    ]
    full = np.zeros(
        (
            geo.batch,
            *[
                max(a, (i - 1) * s + (k - 1) * d + 1)
                for a, i, s, k, d in zip(whole, geo.size, geo.strides, geo.kernel, geo.dilations, strict=True)
            ],
            geo.out_channels,
        ),
        x.dtype,
    )
    pixels = x.reshape(-1, g, ci).swapaxes(0, 1)
    for tap in np.ndindex(*geo.kernel):
        part = pixels @ w[tap].reshape(g, ci, co)
        where = tuple(
            slice(t * d, t * d + (i - 1) * s + 1, s)
            for t, d, i, s in zip(tap, geo.dilations, geo.size, geo.strides, strict=True)
        )
        full[(slice(None), *where)] += part.swapaxes(0, 1).reshape(geo.batch, *geo.size, -1)
    kept = tuple(slice(p, p + o) for p, o in zip(geo.pad_begin, geo.out_size, strict=True))
    out = full[(slice(None), *kept)]
    if bias is not None:
        out = out + bias
    return [np.ascontiguousarray(out if geo.channels_last else np.moveaxis(out, -1, 1))]


def _spread(geo: TransposedGeometry, x: te.Tensor, name: str) -> te.Tensor:
    """Return the input at every stride-th place of an array that a plain convolution turns into the output."""
    before = [(k - 1) * d - p for k, d, p in zip(geo.kernel, geo.dilations, geo.pad_begin, strict=True)]
    size = [o + (k - 1) * d for o, k, d in zip(geo.out_size, geo.kernel, geo.dilations, strict=True)]
    shape = (geo.batch, *size, geo.in_channels) if geo.channels_last else (geo.batch, geo.in_channels, *size)

    def element(*index: Expr) -> Expr:
        position = index[1:-1] if geo.channels_last else index[2:]
        places = [p - b for p, b in zip(position, before, strict=True)]
        inside = []
        for place, extent, stride in zip(places, geo.size, geo.strides, strict=True):
            inside += [place >= 0, place < (extent - 1) * stride + 1]
            inside += [place % stride < 1] if stride > 1 else []
        source = [p // s if s > 1 else p for p, s in zip(places, geo.strides, strict=True)]
        cell = (index[0], *source, index[-1]) if geo.channels_last else (*index[:2], *source)
        return te.if_then_else(te.all(*inside), x(*cell), te.const(0, x.dtype))

    return stage(shape, element, name)


def _sum_stage(geo: TransposedGeometry, x: te.Tensor, w: te.Tensor, name: str) -> te.Tensor:
    names = spatial_names(len(geo.size))
    window = [te.reduce_axis((0, k), name=f"r{n}") for n, k in zip(names, geo.kernel, strict=True)]
    rc = te.reduce_axis((0, geo.group_inputs), name="rc")
    taps = [k - 1 - r for k, r in zip(geo.kernel, window, strict=True)]

    def element(*index: Expr) -> Expr:
        n, oc = index[0], index[-1 if geo.channels_last else 1]
        position = index[1:-1] if geo.channels_last else index[2:]
        source = [p + r * d for p, r, d in zip(position, window, geo.dilations, strict=True)]
        ic, column = rc, oc
        if geo.groups > 1:
            ic = oc // geo.group_outputs * geo.group_inputs + rc
            column = oc % geo.group_outputs
        if geo.channels_last:
            return te.sum(x(n, *source, ic) * w(*taps, ic, column), axis=[*window, rc])
        return te.sum(x(n, ic, *source) * w(ic, column, *taps), axis=[rc, *window])

    axes = ["n", *names, "oc"] if geo.channels_last else ["n", "oc", *names]
    return stage(geo.out_shape, named_axes(axes, element), name)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, w, bias = at(tensors, 0), at(tensors, 1), optional(tensors, 2)
    geo = transposed_geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    out = names[0]
    spread = _spread(geo, x, f"{out}.spread")
    if bias is None:
        return [_sum_stage(geo, spread, w, out)]
    acc = _sum_stage(geo, spread, w, f"{out}.acc")
    channel = len(geo.out_shape) - 1 if geo.channels_last else 1
    return [stage(geo.out_shape, lambda *i: acc(*i) + bias(i[channel]), out)]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Count the operations: each input element meets each tap once; what padding cuts off is counted."""
    geo = transposed_geometry(types, attrs)
    adds = results[0].size if optional(types, 2) is not None else 0
    return 2 * at(types, 0).size * geo.group_outputs * math.prod(geo.kernel) + adds


define(
    "ConvTranspose",
    "convolution",
    (2, 3),
    _infer,
    _reference,
    _compute,
    {
        **WINDOW_ATTRIBUTES,
        "group": Attribute("int", 1),
        "kernel_shape": Attribute("ints"),
        "layout": LAYOUT,
        "output_padding": Attribute("ints"),
    },
    complete=_complete,
    flops_rule=_flops,
    weights=Weights(inputs=0, outputs=1),
    bias_input=2,
)
