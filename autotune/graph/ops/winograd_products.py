"""WinogradProducts(v, u): the products of Winograd's algorithm where axes beside those with tiles have a window.

v [p, n, outer..., tiles, c], the transformed windows by positions, and u [p, kernel..., c, oc] to [p, n, outer...,
tiles, oc]: for each position a convolution of the outer axes (the depth of a volume), which sums over their window and
the channels. Attributes: strides, dilations of the outer axes; their padding is in v already. te: one stage, axes p, n,
d, tile, oc, reduce axes rd, rc (names as of spatial axes; the last outer one is w).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, named_axes, spatial_names, stage
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import Window, window_of


def _window(types: Types, attrs: Attrs) -> Window:
    v, u = at(types, 0), at(types, 1)
    outer = v.rank - 4
    if outer < 1 or u.rank != outer + 3 or v.shape[0] != u.shape[0] or v.shape[-1] != u.shape[-2]:
        raise GraphError(f"WinogradProducts of {v} and {u}")
    kernel = u.shape[1:-2]
    own = {**attrs, "kernel_shape": kernel, "pads": (0,) * 2 * outer, "layout": "NHWC"}
    return window_of("WinogradProducts", (*v.shape[1:-2], 1), own)


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    for key in ("strides", "dilations"):
        attrs.setdefault(key, (1,) * (at(types, 0).rank - 4))


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    v, u = at(types, 0), at(types, 1)
    if v.dtype != "float32" or u.dtype != "float32":
        raise GraphError(f"WinogradProducts of {v} and {u}; it takes float32")
    size = _window(types, attrs).out_size
    return [TensorType((*v.shape[:2], *size, v.shape[-2], u.shape[-1]), v.dtype)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    v, u = at(arrays, 0), at(arrays, 1)
    types = [TensorType.of(v), TensorType.of(u)]
    window = _window(types, attrs)
    total = np.zeros(_infer(types, attrs)[0].shape, np.float32)
    for tap, shifted in window.taps():
        matrix = np.expand_dims(np.moveaxis(u, 0, -3)[tap], tuple(range(1, v.ndim - 2)))
        total += v[(slice(None), slice(None), *shifted)] @ matrix
    return [total]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    v, u = at(tensors, 0), at(tensors, 1)
    types = [TensorType(t.shape, t.dtype) for t in (v, u)]
    window = _window(types, attrs)
    taps, rc = window.reduce_axes(), te.reduce_axis((0, v.shape[-1]), name="rc")

    def element(p: Expr, n: Expr, *index: Expr) -> Expr:
        *position, tile, oc = index
        return te.sum(
            v(p, n, *window.source(position, taps), tile, rc) * u(p, *taps, rc, oc), axis=[*taps, rc]
        )

    axes = ["p", "n", *spatial_names(len(taps)), "tile", "oc"]
    (result,) = _infer(types, attrs)
    return [stage(result.shape, named_axes(axes, element), names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    del attrs
    return 2 * results[0].size * math.prod(at(types, 1).shape[1:-1])


define(
    "WinogradProducts",
    "convolution",
    (2, 2),
    _infer,
    _reference,
    _compute,
    {"strides": Attribute("ints"), "dilations": Attribute("ints")},
    _complete,
    flops_rule=_flops,
    in_onnx=False,
)
