"""Patches(x): what a window sees at each of its positions, as one row (im2col).

x [n, spatial..., c], channels last, to [n * positions, taps * c]: row by row of the image, and in a row tap by tap of
the window, outermost axes first, zeros where it sees padding. A convolution is the matrix product of its patches with
its weights [kernel..., c, oc] as [taps * c, oc] (Chellapilla et al., "High Performance Convolutional Neural
Networks for Document Processing", 2006).

Attributes: kernel_shape (required), strides, dilations, pads (begins then ends, as ONNX). te: "<out>.pad" (only if a
pad is not zero), then one stage, axes i, k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, delinear
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, Window, complete_window, window_of


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    rank = at(types, 0).rank - 2
    if rank < 1:
        raise GraphError(f"Patches takes 3 dimensions or more, got shape {at(types, 0).shape}")
    complete_window(rank, attrs)


def _window(x: Sequence[int], attrs: Attrs) -> Window:
    return window_of("Patches", x, {**attrs, "layout": "NHWC"})


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    window = _window(x.shape, attrs)
    rows = x.shape[0] * math.prod(window.out_size)
    return [TensorType((rows, math.prod(window.kernel) * x.shape[-1]), x.dtype)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    window = _window(x.shape, attrs)
    padded = window.pad_array(x, 0)
    parts = [padded[(slice(None), *shifted)] for _, shifted in window.taps()]
    rows = x.shape[0] * math.prod(window.out_size)
    return [np.stack(parts, axis=-2).reshape(rows, len(parts) * x.shape[-1])]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    window = _window(x.shape, attrs)

    padded = window.pad_tensor(x, True, 0.0, f"{names[0]}.pad")

    def element(i: Expr, k: Expr) -> Expr:
        n, *position = delinear(i, (x.shape[0], *window.out_size))
        *tap, c = delinear(k, (*window.kernel, x.shape[-1]))
        return padded(n, *window.source(position, tap), c)

    (shape,) = (t.shape for t in _infer([TensorType(x.shape, x.dtype)], attrs))
    return [te.compute(shape, element, name=names[0])]


define(
    "Patches",
    "movement",
    (1, 1),
    _infer,
    _reference,
    _compute,
    {**WINDOW_ATTRIBUTES, "kernel_shape": Attribute("ints", required=True)},
    _complete,
    moves="patches",
    prologue=("rearrangement", "blend", "elementwise"),
    in_onnx=False,
)
