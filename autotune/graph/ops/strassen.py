"""Strassen's algorithm for products of matrices by constant ones: the sums before and after its products.

Of matrices in quarters seven products make what eight make otherwise (Strassen, "Gaussian Elimination is not Optimal",
1969; Huang, Smith, Henry and van de Geijn, "Strassen's Algorithm Reloaded", 2016):

    StrassenInput(x)               x [..., m, k]                  -> A [7, ..., m/2, k/2]
    MatMul(A, B)                   product by product             -> M [7, ..., m/2, n/2]
    StrassenOutput(M)                                             -> y [..., m, n]

B [7, k/2, n/2] is `right_matrix` [7, 4] times the quarters of the weights. m, k and n are even.

te: one stage each, written out as sums of quarters without the zeros and ones of the matrices. Which sum it is, is a
select over the number of the product, or over the quarter: loops that a schedule unrolls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, named_axes, stage
from autotune.graph.ops.definition import Arrays, Compute, Flops, InferRule, OpDef, Reference, Tensors, Types
from autotune.graph.ops.minimal_filtering import one_of
from autotune.graph.ops.registry import define

PRODUCTS = 7

# Quarters of a matrix are numbered 11, 12, 21, 22.
_LEFT = ((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
_RIGHT = ((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
_RESULT = (
    (1, 0, 0, 1, -1, 0, 1),
    (0, 0, 1, 0, 1, 0, 0),
    (0, 1, 0, 1, 0, 0, 0),
    (1, -1, 1, 0, 0, 1, 0),
)
GROWTH = 2
"""Quarters of the left operand in a sum, at most."""

Row = Sequence[int]


def right_matrix() -> Array:
    """Return the quarters of the right operand in each product, two at most, float32 [7, 4]."""
    return np.array(_RIGHT, np.float32)


def _sum(row: Row, values: Sequence[Expr]) -> Expr:
    """Return the sum of values times 1, -1 or 0, one that is added first."""
    total, *others = [value for sign, value in zip(row, values, strict=True) if sign > 0]
    for value in others:
        total = total + value
    for sign, value in zip(row, values, strict=True):
        if sign < 0:
            total = total - value
    return total


def _quarters(x: Array) -> Array:
    """Return [..., m, n] as [4, ..., m/2, n/2]."""
    rows = np.split(x, 2, axis=-2)
    return np.stack([quarter for row in rows for quarter in np.split(row, 2, axis=-1)])


# --- input ----------------------------------------------------------------------------------------


def _infer_input(types: Types, _: Attrs) -> list[TensorType]:
    x = at(types, 0)
    if x.rank < 2 or x.dtype != "float32" or any(d % 2 for d in x.shape[-2:]):
        raise GraphError(f"StrassenInput of {x}; it takes float32 [..., m, k], m and k even")
    *lead, m, k = x.shape
    return [TensorType((PRODUCTS, *lead, m // 2, k // 2), x.dtype)]


def _input(arrays: Arrays, _: Attrs) -> list[Array]:
    sums = np.tensordot(np.array(_LEFT, np.float64), _quarters(at(arrays, 0)), axes=1)
    return [sums.astype(np.float32)]


def _te_input(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    *lead, m, k = x.shape
    m, k = m // 2, k // 2

    def element(r: Expr, *index: Expr) -> Expr:
        *batch, row, column = index
        quarters = [x[(*batch, row + i * m, column + j * k)] for i in (0, 1) for j in (0, 1)]
        return one_of(r, [_sum(line, quarters) for line in _LEFT])

    axes = named_axes(["r", *_batch(lead), "i", "k"], element)
    return [stage((PRODUCTS, *lead, m, k), axes, names[0])]


# --- output ---------------------------------------------------------------------------------------


def _infer_output(types: Types, _: Attrs) -> list[TensorType]:
    products = at(types, 0)
    if products.rank < 3 or products.dtype != "float32" or products.shape[0] != PRODUCTS:
        raise GraphError(f"StrassenOutput of {products}; it takes float32 [7, ..., m/2, n/2]")
    *lead, m, n = products.shape[1:]
    return [TensorType((*lead, 2 * m, 2 * n), products.dtype)]


def _output(arrays: Arrays, _: Attrs) -> list[Array]:
    c = np.tensordot(np.array(_RESULT, np.float64), at(arrays, 0), axes=1).astype(np.float32)
    rows = [np.concatenate([c[i], c[i + 1]], axis=-1) for i in (0, 2)]
    return [np.concatenate(rows, axis=-2)]


def _te_output(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    products = at(tensors, 0)
    *lead, m, n = products.shape[1:]

    def element(*index: Expr) -> Expr:
        *batch, row, column = index
        values = [products[(r, *batch, row % m, column % n)] for r in range(PRODUCTS)]
        return one_of(row // m * 2 + column // n, [_sum(line, values) for line in _RESULT])

    axes = named_axes([*_batch(lead), "i", "j"], element)
    return [stage((*lead, 2 * m, 2 * n), axes, names[0])]


def _batch(lead: Sequence[int]) -> list[str]:
    return [f"b{n}" for n in range(len(lead))]


# --- registration ---------------------------------------------------------------------------------


def _operations(matrix: Sequence[Row]) -> int:
    return sum(sum(c != 0 for c in row) - 1 for row in matrix)


def _input_flops(_: Types, results: Sequence[TensorType], __: Attrs) -> int:
    return _operations(_LEFT) * (results[0].size // PRODUCTS)


def _output_flops(types: Types, _: Sequence[TensorType], __: Attrs) -> int:
    return _operations(_RESULT) * (at(types, 0).size // PRODUCTS)


def _sums(name: str, infer: InferRule, reference: Reference, compute: Compute, flops: Flops) -> OpDef:
    return define(name, "strassen", (1, 1), infer, reference, compute, flops_rule=flops, in_onnx=False)


_sums("StrassenInput", _infer_input, _input, _te_input, _input_flops)
_sums("StrassenOutput", _infer_output, _output, _te_output, _output_flops)
