"""Winograd's minimal filtering of 3x3 convolutions: its input and output transforms.

A convolution of stride 1 in tiles of m x m outputs (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016), channels last, t = m + 2:

    V = WinogradInput(x, b)      x [n, h, w, c], b [t*t, t, t]     -> [t*t, n, th, tw, c]
    M = MatMul(V, U)             U [t*t, c, oc], transformed weights, position by position
    y = WinogradOutput(M, a)     M [t*t, n, th, tw, oc], a [m, m, t*t] -> [n, h', w', oc]

The matrices are constant operands: `input_matrix`, `output_matrix`, and `transformed_weights` for U.
Attributes: tile (m: 2 or 4), pads (of the convolution, as ONNX) and size (h', w').

te stages: "<out>.pad", then one reduction (axes a, n, h, w, c; reduce rh, rw) for the input, one
(axes n, h, w, c; reduce rk) for the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    array_at,
    at,
    int_attr,
    ints_attr,
    named_axes,
    pad_stage,
    tensor_at,
)
from autotune.graph.ops.registry import Arrays, Attribute, OpDef, Tensors, Types, register

# The transforms of F(2, 3) and F(4, 3): B^T of the input, G of the weights, A^T of the output.
_INPUT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
_WEIGHTS = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
_OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
TILES = tuple(_INPUT)


def input_matrix(tile: int) -> Array:
    """The operand b of WinogradInput, float32 [t*t, t, t]: B^T on both axes of a window."""
    b = np.array(_INPUT[tile], np.float64)
    both: Array = np.einsum("xi,yj->xyij", b, b).reshape(-1, *b.shape)
    return both.astype(np.float32)


def output_matrix(tile: int) -> Array:
    """The operand a of WinogradOutput, float32 [m, m, t*t]: A^T on both axes of a tile."""
    a = np.array(_OUTPUT[tile], np.float64)
    both: Array = np.einsum("ix,jy->ijxy", a, a).reshape(tile, tile, -1)
    return both.astype(np.float32)


def transformed_weights(weights: Array, tile: int) -> Array:
    """U [t*t, c, oc] of convolution weights [3, 3, c, oc], worked out in float64."""
    g = np.array(_WEIGHTS[tile], np.float64)
    u: Array = np.einsum("xi,yj,ijco->xyco", g, g, weights.astype(np.float64), optimize=True)
    return u.reshape(-1, *weights.shape[2:]).astype(weights.dtype)


def _tile(attrs: Attrs) -> int:
    tile = int_attr(attrs, "tile")
    if tile not in TILES:
        raise GraphError(f"Winograd tile {tile}; allowed: {', '.join(map(str, TILES))}")
    return tile


def _tiles(x: Sequence[int], attrs: Attrs) -> tuple[int, int]:
    """Tiles in a column and in a row."""
    top, left, bottom, right = ints_attr(attrs, "pads")
    tile = _tile(attrs)
    return -(-(x[1] + top + bottom - 2) // tile), -(-(x[2] + left + right - 2) // tile)


def _padding(x: Sequence[int], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Amounts before and after each dimension that make the last tiles whole."""
    top, left = ints_attr(attrs, "pads")[:2]
    rows, columns = (_tile(attrs) * count + 2 for count in _tiles(x, attrs))
    return (0, top, left, 0), (0, rows - x[1] - top, columns - x[2] - left, 0)


def _infer_input(types: Types, attrs: Attrs) -> list[TensorType]:
    x, b = at(types, 0), at(types, 1)
    window = _tile(attrs) + 2
    if x.rank != 4 or len(ints_attr(attrs, "pads")) != 4 or min(ints_attr(attrs, "pads")) < 0:
        raise GraphError(f"WinogradInput: x of shape {x.shape} with pads {attrs['pads']}")
    if b.shape != (window * window, window, window):
        raise GraphError(f"WinogradInput: matrix of shape {b.shape} for tile {attrs['tile']}")
    rows, columns = _tiles(x.shape, attrs)
    return [TensorType((window * window, x.shape[0], rows, columns, x.shape[3]), x.dtype)]


def _reference_input(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, b = array_at(arrays, 0), array_at(arrays, 1)
    tile, before_after = _tile(attrs), _padding(x.shape, attrs)
    padded = np.pad(x, list(zip(*before_after, strict=True)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (tile + 2, tile + 2), axis=(1, 2))
    return [np.einsum("aij,nhwcij->anhwc", b, windows[:, ::tile, ::tile], optimize=True)]


def _compute_input(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, b = tensor_at(tensors, 0), tensor_at(tensors, 1)
    tile, before_after = _tile(attrs), _padding(x.shape, attrs)
    padded = pad_stage(x, *before_after, 0.0, f"{names[0]}.pad")
    types = [TensorType(t.shape, t.dtype) for t in (x, b)]
    rh, rw = (te.reduce_axis((0, tile + 2), name=name) for name in ("rh", "rw"))

    def element(a: Expr, n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.sum(b[a, rh, rw] * padded[n, h * tile + rh, w * tile + rw, c], axis=[rh, rw])

    shape = _infer_input(types, attrs)[0].shape
    return [te.compute(shape, named_axes(["a", "n", "h", "w", "c"], element), name=names[0])]


def _infer_output(types: Types, attrs: Attrs) -> list[TensorType]:
    m, a = at(types, 0), at(types, 1)
    tile, size = _tile(attrs), ints_attr(attrs, "size")
    if m.rank != 5 or m.shape[0] != (tile + 2) ** 2 or a.shape != (tile, tile, m.shape[0]):
        raise GraphError(f"WinogradOutput: {m.shape} and {a.shape} do not fit tile {tile}")
    if any(not 0 < s <= tile * t for s, t in zip(size, m.shape[2:4], strict=True)):
        raise GraphError(f"WinogradOutput: {m.shape[2:4]} tiles of {tile} for size {size}")
    return [TensorType((m.shape[1], *size, m.shape[4]), m.dtype)]


def _reference_output(arrays: Arrays, attrs: Attrs) -> list[Array]:
    m, a = array_at(arrays, 0), array_at(arrays, 1)
    tile, (rows, columns) = _tile(attrs), ints_attr(attrs, "size")
    whole = np.einsum("ija,anhwc->nhiwjc", a, m, optimize=True)
    image = whole.reshape(m.shape[1], tile * m.shape[2], tile * m.shape[3], m.shape[4])
    return [np.ascontiguousarray(image[:, :rows, :columns])]


def _compute_output(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    m, a = tensor_at(tensors, 0), tensor_at(tensors, 1)
    tile = _tile(attrs)
    types = [TensorType(t.shape, t.dtype) for t in (m, a)]
    rk = te.reduce_axis((0, m.shape[0]), name="rk")

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.sum(a[h % tile, w % tile, rk] * m[rk, n, h // tile, w // tile, c], axis=rk)

    shape = _infer_output(types, attrs)[0].shape
    return [te.compute(shape, named_axes(["n", "h", "w", "c"], element), name=names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """A multiply-add for each element of a window (input) or position (output)."""
    del types
    return 2 * results[0].size * (_tile(attrs) + 2) ** 2


_TILE = Attribute("int", required=True)
register(
    OpDef(
        "WinogradInput",
        "convolution",
        (2, 2),
        _infer_input,
        _reference_input,
        _compute_input,
        {"tile": _TILE, "pads": Attribute("ints", required=True)},
        flops_rule=_flops,
    )
)
register(
    OpDef(
        "WinogradOutput",
        "convolution",
        (2, 2),
        _infer_output,
        _reference_output,
        _compute_output,
        {"tile": _TILE, "size": Attribute("ints", required=True)},
        flops_rule=_flops,
    )
)
