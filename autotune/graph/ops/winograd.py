"""Winograd's minimal filtering of 3x3 convolutions: its input and output transforms.

A convolution of stride 1 in tiles of m x m outputs (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016), channels last, t = m + 2, th x tw tiles. The transforms are separable and go
along one axis at a time:

    WinogradInputRows(x, b)        x [n, h, w, c]                 -> r [t, n, th, m*tw + 2, c]
    WinogradInputColumns(r, b)                                    -> V [t, t, n, th, tw, c]
    MatMul(V, U)                   position by position           -> M [t, t, n, th, tw, oc]
    WinogradOutputColumns(M, a)                                   -> s [t, n, th, tw, m, oc]
    WinogradOutputRows(s, a)       s as [t, n, th, m*tw, oc]      -> y [n, h', w', oc]

b [t, t] and a [m, t] are constant operands: `input_matrix`, `output_matrix`. U [t*t, c, oc] is
`weight_matrix` [t*t, 9] times the weights [9, c, oc]. Attributes: tile (m: 2, 4 or 6), pads (of the
convolution, as ONNX) for the first, size (h', w') for the last.

te: one reduction each (rk), after "<out>.pad" for the first; axes as above, a for a new t or m.
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
from autotune.graph.ops.registry import (
    Arrays,
    Attribute,
    Compute,
    InferRule,
    OpDef,
    Reference,
    Tensors,
    Types,
    register,
)

# The transforms of F(m, 3): B^T of the input, G of the weights, A^T of the output. The points are 0, 1, -1
# and infinity; 2 and -2 from m = 4 on; 1/2 and -1/2 for m = 6.
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
    6: (
        (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0),
        (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
        (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0),
        (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
        (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0),
        (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
        (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0),
        (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
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
    6: (
        (1, 0, 0),
        (-2 / 9, -2 / 9, -2 / 9),
        (-2 / 9, 2 / 9, -2 / 9),
        (1 / 90, 1 / 45, 2 / 45),
        (1 / 90, -1 / 45, 2 / 45),
        (32 / 45, 16 / 45, 8 / 45),
        (32 / 45, -16 / 45, 8 / 45),
        (0, 0, 1),
    ),
}
_OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    6: (
        (1, 1, 1, 1, 1, 1, 1, 0),
        (0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0),
        (0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0),
        (0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0),
        (0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0),
        (0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1),
    ),
}
TILES = tuple(_INPUT)


def input_matrix(tile: int) -> Array:
    """B^T, float32 [t, t]: the operand b of the input transforms."""
    return np.array(_INPUT[tile], np.float32)


def output_matrix(tile: int) -> Array:
    """A^T, float32 [m, t]: the operand a of the output transforms."""
    return np.array(_OUTPUT[tile], np.float32)


def weight_matrix(tile: int) -> Array:
    """G of both axes, float64 [t*t, 9]: what the weights of a window, flat, are multiplied with."""
    g = np.array(_WEIGHTS[tile], np.float64)
    return np.kron(g, g)


def _tile(attrs: Attrs) -> int:
    tile = int_attr(attrs, "tile")
    if tile not in TILES:
        raise GraphError(f"Winograd tile {tile}; allowed: {', '.join(map(str, TILES))}")
    return tile


def _operand(types: Types, attrs: Attrs, rank: int, output: bool = False) -> TensorType:
    """The type of the first operand, after checking both."""
    x, matrix, tile = at(types, 0), at(types, 1), _tile(attrs)
    wanted = (tile if output else tile + 2, tile + 2)
    if x.rank != rank or matrix.shape != wanted or x.dtype != matrix.dtype:
        raise GraphError(f"a Winograd transform of {x} by {matrix}; tile {tile} needs {wanted}")
    return x


def _windows(array: Array, axis: int, tile: int) -> Array:
    """Windows of t every m along an axis; the window becomes the last axis."""
    windows = np.lib.stride_tricks.sliding_window_view(array, tile + 2, axis=axis)
    return windows[(slice(None),) * axis + (slice(None, None, tile),)]


# --- input: rows, then columns --------------------------------------------------------------------


def _padding(x: Sequence[int], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Amounts before and after each dimension that make the last tiles whole."""
    top, left, bottom, right = ints_attr(attrs, "pads")
    tile = _tile(attrs)
    rows = -(-(x[1] + top + bottom - 2) // tile) * tile + 2
    columns = -(-(x[2] + left + right - 2) // tile) * tile + 2
    return (0, top, left, 0), (0, rows - x[1] - top, columns - x[2] - left, 0)


def _infer_input_rows(types: Types, attrs: Attrs) -> list[TensorType]:
    x, pads = _operand(types, attrs, 4), ints_attr(attrs, "pads")
    if len(pads) != 4 or min(pads) < 0 or x.shape[1] + pads[0] + pads[2] < 3:
        raise GraphError(f"WinogradInputRows of {x} with pads {pads}")
    n, h, w, c = (d + b + a for d, b, a in zip(x.shape, *_padding(x.shape, attrs), strict=True))
    tile = _tile(attrs)
    return [TensorType((tile + 2, n, (h - 2) // tile, w, c), x.dtype)]


def _input_rows(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = array_at(arrays, 0)
    padded = np.pad(x, list(zip(*_padding(x.shape, attrs), strict=True)))
    windows = _windows(padded, 1, _tile(attrs))
    return [np.einsum("ak,nhwck->anhwc", array_at(arrays, 1), windows)]


def _te_input_rows(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, b, tile = tensor_at(tensors, 0), tensor_at(tensors, 1), _tile(attrs)
    padded = pad_stage(x, *_padding(x.shape, attrs), 0.0, f"{names[0]}.pad")
    rk = te.reduce_axis((0, tile + 2), name="rk")

    def element(a: Expr, n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.sum(b[a, rk] * padded[n, h * tile + rk, w, c], axis=rk)

    shape = _infer_input_rows(_types(x, b), attrs)[0].shape
    return [te.compute(shape, named_axes(["a", "n", "h", "w", "c"], element), name=names[0])]


def _infer_input_columns(types: Types, attrs: Attrs) -> list[TensorType]:
    r, tile = _operand(types, attrs, 5), _tile(attrs)
    t, n, h, w, c = r.shape
    if t != tile + 2 or (w - 2) % tile:
        raise GraphError(f"WinogradInputColumns of {r} in tiles of {tile}")
    return [TensorType((t, t, n, h, (w - 2) // tile, c), r.dtype)]


def _input_columns(arrays: Arrays, attrs: Attrs) -> list[Array]:
    windows = _windows(array_at(arrays, 0), 3, _tile(attrs))
    return [np.einsum("ak,xnhwck->xanhwc", array_at(arrays, 1), windows)]


def _te_input_columns(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    r, b, tile = tensor_at(tensors, 0), tensor_at(tensors, 1), _tile(attrs)
    rk = te.reduce_axis((0, tile + 2), name="rk")

    def element(x: Expr, a: Expr, n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.sum(b[a, rk] * r[x, n, h, w * tile + rk, c], axis=rk)

    shape = _infer_input_columns(_types(r, b), attrs)[0].shape
    return [te.compute(shape, named_axes(["x", "a", "n", "h", "w", "c"], element), name=names[0])]


# --- output: columns, then rows -------------------------------------------------------------------


def _infer_output_columns(types: Types, attrs: Attrs) -> list[TensorType]:
    m, tile = _operand(types, attrs, 6, output=True), _tile(attrs)
    t, other, n, h, w, c = m.shape
    if t != tile + 2 or other != t:
        raise GraphError(f"WinogradOutputColumns of {m} in tiles of {tile}")
    return [TensorType((t, n, h, w, tile, c), m.dtype)]


def _output_columns(arrays: Arrays, attrs: Attrs) -> list[Array]:
    del attrs
    return [np.einsum("ak,xknhwc->xnhwac", array_at(arrays, 1), array_at(arrays, 0))]


def _te_output_columns(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    m, a = tensor_at(tensors, 0), tensor_at(tensors, 1)
    rk = te.reduce_axis((0, m.shape[1]), name="rk")

    def element(x: Expr, n: Expr, h: Expr, w: Expr, i: Expr, c: Expr) -> Expr:
        return te.sum(a[i, rk] * m[x, rk, n, h, w, c], axis=rk)

    shape = _infer_output_columns(_types(m, a), attrs)[0].shape
    return [te.compute(shape, named_axes(["x", "n", "h", "w", "a", "c"], element), name=names[0])]


def _infer_output_rows(types: Types, attrs: Attrs) -> list[TensorType]:
    s, tile = _operand(types, attrs, 5, output=True), _tile(attrs)
    rows, columns = ints_attr(attrs, "size")
    t, n, h, w, c = s.shape
    if t != tile + 2 or not 0 < rows <= tile * h or not 0 < columns <= w:
        raise GraphError(f"WinogradOutputRows of {s} in tiles of {tile} to {rows} x {columns}")
    return [TensorType((n, rows, columns, c), s.dtype)]


def _output_rows(arrays: Arrays, attrs: Attrs) -> list[Array]:
    s, (rows, columns) = array_at(arrays, 0), ints_attr(attrs, "size")
    n, w, c = s.shape[1], *s.shape[3:]
    whole = np.einsum("ak,knhwc->nhawc", array_at(arrays, 1), s).reshape(n, -1, w, c)
    return [np.ascontiguousarray(whole[:, :rows, :columns])]


def _te_output_rows(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    s, a, tile = tensor_at(tensors, 0), tensor_at(tensors, 1), _tile(attrs)
    rk = te.reduce_axis((0, s.shape[0]), name="rk")

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.sum(a[h % tile, rk] * s[rk, n, h // tile, w, c], axis=rk)

    shape = _infer_output_rows(_types(s, a), attrs)[0].shape
    return [te.compute(shape, named_axes(["n", "h", "w", "c"], element), name=names[0])]


def _types(*tensors: te.Tensor) -> list[TensorType]:
    return [TensorType(tensor.shape, tensor.dtype) for tensor in tensors]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """A multiply-add for each of t values."""
    del types
    return 2 * results[0].size * (_tile(attrs) + 2)


def _transform(
    name: str, infer: InferRule, reference: Reference, compute: Compute, *attributes: str
) -> OpDef:
    declared = {"tile": Attribute("int", required=True)}
    declared |= {key: Attribute("ints", required=True) for key in attributes}
    return register(
        OpDef(name, "convolution", (2, 2), infer, reference, compute, declared, flops_rule=_flops)
    )


_transform("WinogradInputRows", _infer_input_rows, _input_rows, _te_input_rows, "pads")
_transform("WinogradInputColumns", _infer_input_columns, _input_columns, _te_input_columns)
_transform("WinogradOutputColumns", _infer_output_columns, _output_columns, _te_output_columns)
_transform("WinogradOutputRows", _infer_output_rows, _output_rows, _te_output_rows, "size")
