"""Winograd's minimal filtering of 3x3 convolutions: its input and output transforms.

A convolution of stride 1 in tiles of m x m outputs (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016), channels last, t = m + 2, th x tw tiles:

    WinogradInput(x)               x [n, h, w, c]                 -> V [t, t, n, th, tw, c]
    MatMul(V, U)                   position by position           -> M [t, t, n, th, tw, oc]
    WinogradOutput(M)                                             -> y [n, h', w', oc]

U [t*t, c, oc] is `weight_matrix` [t*t, 9] times the weights [9, c, oc]. Attributes: tile (m: 2, 4 or 6), pads (of
the convolution, as ONNX) for the first, size (h', w') for the last.

te: one axis a stage, written out as sums without the zeros and ones of the matrices: "<out>.pad" and "<out>.rows"
[t, n, th, w, c] before V (axes x, a, n, h, w, c), "<out>.columns" [t, n, th, tw, m, oc] before y (axes n, h, w, c).
A position of a window is a loop that a schedule unrolls; which sum it takes is a select over that loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, int_attr, ints_attr, named_axes, pad_stage
from autotune.graph.ops.definition import (
    Arrays,
    Attribute,
    Compute,
    Flops,
    InferRule,
    OpDef,
    Reference,
    Tensors,
    Types,
)
from autotune.graph.ops.registry import define

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
    """B^T, float64 [t, t]: what a window is multiplied with along each axis."""
    return np.array(_INPUT[tile], np.float64)


def output_matrix(tile: int) -> Array:
    """A^T, float64 [m, t]: what the products are multiplied with along each axis."""
    return np.array(_OUTPUT[tile], np.float64)


def weight_matrix(tile: int) -> Array:
    """G of both axes, float64 [t*t, 9]: what the weights of a window, flat, are multiplied with."""
    g = np.array(_WEIGHTS[tile], np.float64)
    return np.kron(g, g)


def _tile(attrs: Attrs) -> int:
    tile = int_attr(attrs, "tile")
    if tile not in TILES:
        raise GraphError(f"Winograd tile {tile}; allowed: {', '.join(map(str, TILES))}")
    return tile


# --- sums -----------------------------------------------------------------------------------------

Row = Sequence[float]


def _sum(row: Row, values: Sequence[Expr]) -> Expr:
    """The sum of values times their coefficients: ones first, so that the others are fused multiply-adds."""
    terms = [(c, value) for c, value in zip(row, values, strict=True) if c]
    terms.sort(key=lambda term: (term[0] != 1, abs(term[0]) != 1))
    (c, first), *others = terms
    total: Expr = first if c == 1 else first * te.const(c, "float32")
    for c, value in others:
        part = value if abs(c) == 1 else value * te.const(abs(c), "float32")
        total = total + part if c > 0 else total - part
    return total


def _input_sum(row: Row, values: Sequence[Expr]) -> Expr:
    """One row of B^T: the even values and the odd ones apart, as two rows share either up to the sign."""
    even = [c if k % 2 == 0 else 0 for k, c in enumerate(row)]
    odd = [c if k % 2 else 0 for k, c in enumerate(row)]
    if not any(even) or not any(odd):
        return _sum(row, values)
    if next(c for c in odd if c) > 0:
        return _sum(even, values) + _sum(odd, values)
    return _sum(even, values) - _sum([-c for c in odd], values)


def _output_sum(row: Row, values: Sequence[Expr]) -> Expr:
    """One row of A^T: sums and differences of neighbours, which all rows share, times their coefficients."""
    coefficients, parts = [row[0], row[-1]], [values[0], values[-1]]
    for k in range(1, len(row) - 1, 2):
        coefficients.append(row[k])
        parts.append(values[k] + values[k + 1] if row[k] == row[k + 1] else values[k] - values[k + 1])
    return _sum(coefficients, parts)


def _one_of(index: Expr, values: Sequence[Expr]) -> Expr:
    """``values[index]``, decided where the loop of ``index`` is unrolled."""
    found = values[-1]
    for number in range(len(values) - 2, -1, -1):
        found = te.if_then_else(index == number, values[number], found)
    return found


# --- input ----------------------------------------------------------------------------------------


def _padding(x: Sequence[int], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Amounts before and after each dimension that make the last tiles whole."""
    top, left, bottom, right = ints_attr(attrs, "pads")
    tile = _tile(attrs)
    rows = -(-(x[1] + top + bottom - 2) // tile) * tile + 2
    columns = -(-(x[2] + left + right - 2) // tile) * tile + 2
    return (0, top, left, 0), (0, rows - x[1] - top, columns - x[2] - left, 0)


def _infer_input(types: Types, attrs: Attrs) -> list[TensorType]:
    x, pads, tile = at(types, 0), ints_attr(attrs, "pads"), _tile(attrs)
    if x.rank != 4 or x.dtype != "float32":
        raise GraphError(f"WinogradInput of {x}; it takes float32 [n, h, w, c]")
    if (
        len(pads) != 4
        or min(pads) < 0
        or min(x.shape[1] + pads[0] + pads[2], x.shape[2] + pads[1] + pads[3]) < 3
    ):
        raise GraphError(f"WinogradInput of {x} with pads {pads}")
    n, h, w, c = (d + b + a for d, b, a in zip(x.shape, *_padding(x.shape, attrs), strict=True))
    return [TensorType((tile + 2, tile + 2, n, (h - 2) // tile, (w - 2) // tile, c), x.dtype)]


def _input(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, tile = at(arrays, 0), _tile(attrs)
    padded = np.pad(x, list(zip(*_padding(x.shape, attrs), strict=True)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (tile + 2, tile + 2), axis=(1, 2))
    matrix = input_matrix(tile)
    v = np.einsum("xi,aj,nhwcij->xanhwc", matrix, matrix, windows[:, ::tile, ::tile], optimize=True)
    return [v.astype(np.float32)]


def _te_input(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, tile = at(tensors, 0), _tile(attrs)
    padded = pad_stage(x, *_padding(x.shape, attrs), 0.0, f"{names[0]}.pad")
    matrix, window = _INPUT[tile], range(tile + 2)

    def row(a: Expr, n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        values = [padded[n, h * tile + k, w, c] for k in window]
        return _one_of(a, [_input_sum(line, values) for line in matrix])

    t, _, n, th, tw, c = _infer_input([TensorType(x.shape, x.dtype)], attrs)[0].shape
    axes = named_axes(["a", "n", "h", "w", "c"], row)
    rows = te.compute((t, n, th, padded.shape[2], c), axes, name=f"{names[0]}.rows")

    def element(x: Expr, a: Expr, n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        values = [rows[x, n, h, w * tile + k, c] for k in window]
        return _one_of(a, [_input_sum(line, values) for line in matrix])

    axes = named_axes(["x", "a", "n", "h", "w", "c"], element)
    return [te.compute((t, t, n, th, tw, c), axes, name=names[0])]


# --- output ---------------------------------------------------------------------------------------


def _infer_output(types: Types, attrs: Attrs) -> list[TensorType]:
    m, tile = at(types, 0), _tile(attrs)
    rows, columns = ints_attr(attrs, "size")
    if m.rank != 6 or m.dtype != "float32" or m.shape[:2] != (tile + 2, tile + 2):
        raise GraphError(f"WinogradOutput of {m} in tiles of {tile}")
    _, _, n, h, w, c = m.shape
    if not (h - 1) * tile < rows <= h * tile or not (w - 1) * tile < columns <= w * tile:
        raise GraphError(f"WinogradOutput of {m} in tiles of {tile} to {rows} x {columns}")
    return [TensorType((n, rows, columns, c), m.dtype)]


def _output(arrays: Arrays, attrs: Attrs) -> list[Array]:
    m, (rows, columns) = at(arrays, 0), ints_attr(attrs, "size")
    matrix, (_, _, n, h, w, c) = output_matrix(_tile(attrs)), m.shape
    y = np.einsum("ix,ja,xanhwc->nhiwjc", matrix, matrix, m, optimize=True)
    tile = len(matrix)
    return [np.ascontiguousarray(y.reshape(n, h * tile, w * tile, c)[:, :rows, :columns], np.float32)]


def _te_output(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    m, tile = at(tensors, 0), _tile(attrs)
    matrix, window = _OUTPUT[tile], range(tile + 2)
    t, _, n, th, tw, oc = m.shape

    def column(x: Expr, n: Expr, h: Expr, w: Expr, i: Expr, c: Expr) -> Expr:
        values = [m[x, k, n, h, w, c] for k in window]
        return _one_of(i, [_output_sum(line, values) for line in matrix])

    axes = named_axes(["x", "n", "h", "w", "i", "c"], column)
    columns = te.compute((t, n, th, tw, tile, oc), axes, name=f"{names[0]}.columns")

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        values = [columns[k, n, h // tile, w // tile, w % tile, c] for k in window]
        return _one_of(h % tile, [_output_sum(line, values) for line in matrix])

    shape = (n, *ints_attr(attrs, "size"), oc)
    return [te.compute(shape, named_axes(["n", "h", "w", "c"], element), name=names[0])]


# --- registration ---------------------------------------------------------------------------------


def _input_operations(matrix: Sequence[Row]) -> int:
    """Vector instructions of B^T along one axis: what two rows share is counted once."""
    shared, total = set[tuple[int, tuple[float, ...]]](), 0
    for row in matrix:
        halves = [(parity, row[parity::2]) for parity in (0, 1) if any(row[parity::2])]
        total += len(halves) - 1
        for parity, half in halves:
            sign = 1 if next(c for c in half if c) > 0 else -1
            shared.add((parity, tuple(sign * c for c in half)))
    return total + sum(sum(c != 0 for c in half) - 1 for _, half in shared)


def _output_operations(matrix: Sequence[Row]) -> int:
    """Vector instructions of A^T along one axis: sums and differences of neighbours, then the rows."""
    pairs = len(matrix[0]) // 2 - 1
    terms = [sum(c != 0 for c in (row[0], *row[1:-1:2], row[-1])) for row in matrix]
    return 2 * pairs + sum(count - 1 for count in terms)


def _input_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Instructions along both axes of every window, each counted as a multiply-add."""
    del types
    t = _tile(attrs) + 2
    return 2 * _input_operations(_INPUT[t - 2]) * 2 * t * (results[0].size // t**2)


def _output_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Instructions along both axes of every window, each counted as a multiply-add."""
    del results
    m = _tile(attrs)
    return 2 * _output_operations(_OUTPUT[m]) * (2 * m + 2) * (at(types, 0).size // (m + 2) ** 2)


def _transform(
    name: str, infer: InferRule, reference: Reference, compute: Compute, flops: Flops, attribute: str
) -> OpDef:
    declared = {
        "tile": Attribute("int", required=True),
        attribute: Attribute("ints", required=True),
    }
    return define(
        name,
        "winograd",
        (1, 1),
        infer,
        reference,
        compute,
        declared,
        flops_rule=flops,
        in_onnx=False,
    )


_transform("WinogradInput", _infer_input, _input, _te_input, _input_flops, "pads")
_transform("WinogradOutput", _infer_output, _output, _te_output, _output_flops, "size")
