"""OverlapAdd(x): the second half of a transposed convolution that is computed as a matrix product first.

``x[n, i..., t...*c]`` holds, channels last, for each input element i and each tap t the contribution to output
element ``i*stride + t - pad``; contributions to the same element are added (Caffe's col2im). Attributes:
kernel_shape (multiples of the strides), strides, pads (begins only), size (spatial extents of the result).

te stages: "<out>.pad", "<out>.sum" with an element for each quotient and remainder of an output position by its
stride (the innermost remainder together with the channel, so that both are contiguous), and "<out>", which renames
them. Axes n, h, ph, w, c for two dimensions; reduce axes rh, rw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    ints_attr,
    linear,
    named_axes,
    pad_stage,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define


@dataclass(frozen=True)
class _Frames:
    """Sizes along the spatial axes, outermost first; ``first`` and ``count`` are of the quotients needed."""

    inputs: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    size: tuple[int, ...]
    channels: int

    @property
    def overlap(self) -> tuple[int, ...]:
        """Input elements that meet in one output element."""
        return tuple(k // s for k, s in zip(self.kernel, self.strides, strict=True))

    @property
    def first(self) -> tuple[int, ...]:
        return tuple(p // s for p, s in zip(self.pads, self.strides, strict=True))

    @property
    def count(self) -> tuple[int, ...]:
        steps = zip(self.size, self.pads, self.strides, self.first, strict=True)
        return tuple((o - 1 + p) // s + 1 - f for o, p, s, f in steps)


def _geometry(x: Sequence[int], attrs: Attrs) -> _Frames:
    rank = len(x) - 2
    keys = ("kernel_shape", "strides", "pads", "size")
    kernel, strides, pads, size = (ints_attr(attrs, key) for key in keys)
    lengths = {len(kernel), len(strides), len(pads), len(size)} == {rank}
    if not lengths or any(k % s for k, s in zip(kernel, strides, strict=True)) or x[-1] % math.prod(kernel):
        raise GraphError(
            f"OverlapAdd of x of shape {tuple(x)} with kernel_shape {kernel}, strides {strides}, pads {pads}, size "
            f"{size}; it takes {rank} of each, strides that divide the kernel, and channels for each tap"
        )
    return _Frames(tuple(x[1:-1]), kernel, strides, pads, size, x[-1] // math.prod(kernel))


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("OverlapAdd", types)
    x = at(types, 0)
    geo = _geometry(x.shape, attrs)
    return [TensorType((x.shape[0], *geo.size, geo.channels), x.dtype)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    """Add the contributions of each tap to a strided slice."""
    x = at(arrays, 0)
    geo = _geometry(x.shape, attrs)
    whole = [
        max(p + o, (i - 1) * s + k)
        for p, o, i, s, k in zip(geo.pads, geo.size, geo.inputs, geo.strides, geo.kernel, strict=True)
    ]
    full = np.zeros((x.shape[0], *whole, geo.channels), x.dtype)
    parts = x.reshape(*x.shape[:-1], *geo.kernel, geo.channels)
    for tap in np.ndindex(*geo.kernel):
        where = tuple(
            slice(t, t + (i - 1) * s + 1, s) for t, i, s in zip(tap, geo.inputs, geo.strides, strict=True)
        )
        full[(slice(None), *where)] += parts[(..., *tap, slice(None))]
    kept = tuple(slice(p, p + o) for p, o in zip(geo.pads, geo.size, strict=True))
    return [np.ascontiguousarray(full[(slice(None), *kept)])]


def _sum_stage(geo: _Frames, batch: int, x: te.Tensor, name: str) -> te.Tensor:
    """Return the sums by quotient and remainder of the output position; x is padded."""
    rank, names = len(geo.size), spatial_names(len(geo.size))
    meets = [te.reduce_axis((0, m), name=f"r{n}") for m, n in zip(geo.overlap, names, strict=True)]
    inner = geo.strides[-1] * geo.channels

    def element(*index: Expr) -> Expr:
        quotients, remainders = index[1::2], index[2::2]
        source = [q + m - 1 - r for q, m, r in zip(quotients, geo.overlap, meets, strict=True)]
        taps = [p + r * s for p, r, s in zip(remainders[:-1], meets, geo.strides, strict=False)]
        # The innermost tap and the channel are one contiguous run: its remainder is part of the last axis.
        group = linear([*taps, meets[-1]], [*geo.kernel[:-1], geo.overlap[-1]])
        return te.sum(x(index[0], *source, group * inner + index[-1]), axis=meets)

    axes, shape = ["n"], [batch]
    for i, n in enumerate(names):
        last = i == rank - 1
        axes += [n, "c"] if last else [n, f"p{n}"]
        shape += [geo.count[i], inner if last else geo.strides[i]]
    return stage(shape, named_axes(axes, element), name)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    geo = _geometry(x.shape, attrs)
    # Quotient a (counted from `first`) reads the inputs first + a - r for 0 <= r < overlap.
    before = [m - 1 - f for m, f in zip(geo.overlap, geo.first, strict=True)]
    after = [f + n - i for f, n, i in zip(geo.first, geo.count, geo.inputs, strict=True)]
    if any(before) or any(after):
        x = pad_stage(x, (0, *before, 0), (0, *after, 0), 0.0, f"{names[0]}.pad")
    total = _sum_stage(geo, x.shape[0], x, f"{names[0]}.sum")

    def renamed(*index: Expr) -> Expr:
        cell: list[Expr] = [index[0]]
        for o, p, s, f in zip(index[1:-2], geo.pads, geo.strides, geo.first, strict=False):
            cell += [(o + p) // s - f, (o + p) % s]
        # A line of results is a stretch of a line of sums: elements of both are counted.
        element, inner = (index[-2] + geo.pads[-1]) * geo.channels + index[-1], geo.strides[-1] * geo.channels
        return total(*cell, element // inner - geo.first[-1], element % inner)

    return [stage((x.shape[0], *geo.size, geo.channels), renamed, names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    return at(types, 0).size


define(
    "OverlapAdd",
    "pool",
    (1, 1),
    _infer,
    _reference,
    _compute,
    {
        "kernel_shape": Attribute("ints", required=True),
        "pads": Attribute("ints", required=True),
        "size": Attribute("ints", required=True),
        "strides": Attribute("ints", required=True),
    },
    flops_rule=_flops,
    in_onnx=False,
)
