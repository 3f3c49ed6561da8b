"""Matrix products.

MatMul(a, b): NumPy's matmul: a [..., m, k], b [..., k, n], leading dimensions broadcast; a 1-D
operand is a row (a) or a column (b) whose dimension is dropped from the result. b may be stored in a shorter type
(:func:`autotune.graph.ops.common.as_read`).
``columns`` says what was put side by side in b (:data:`autotune.graph.ops.definition.COLUMNS`).
te: one stage, axes (b0, b1, ..., i, j), reduce axis rk.

Gemm(a, b[, c]): alpha * A @ B + beta * c with A = a [m, k] (transA=1: [k, m]), B = b [k, n]
(transB=1: [n, k]), c broadcast to [m, n]. te: the product is the stage "<out>.acc" when something
is left to do after it (c, or alpha != 1), else it is the output itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    Index,
    accumulated_in,
    as_read,
    at,
    broadcast_shapes,
    broadcasts_to,
    float_attr,
    int_attr,
    named_axes,
    narrowed,
    optional,
    read_broadcast,
    require_columns,
    require_same_dtype,
    stage,
)
from autotune.graph.ops.definition import COLUMNS, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define


def matmul_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a MatMul; raises GraphError if the operands do not fit."""
    if not a or not b:
        raise GraphError("MatMul takes no scalars")
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise GraphError(f"MatMul of {tuple(a)} and {tuple(b)}: inner dimensions differ")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return (*broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)


def _numeric_dtype(name: str, types: Types) -> str:
    dtype = require_same_dtype(name, types)
    if dtype == "bool":
        raise GraphError(f"{name} does not take bool")
    return dtype


def _matmul_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    dtype = _numeric_dtype("MatMul", as_read(types))
    a, b = at(types, 0).shape, at(types, 1).shape
    shape = matmul_shape(a, b)
    require_columns("MatMul", attrs, b[-1] if len(b) > 1 else 1)
    return [TensorType(shape, dtype)]


def _matmul_reference(arrays: Arrays, _: Attrs) -> list[Array]:
    a, b = at(arrays, 0), at(arrays, 1)
    wide = accumulated_in(str(a.dtype))
    return [np.asarray(np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))).astype(a.dtype)]


def _matmul_compute(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    a, b = at(tensors, 0), at(tensors, 1)
    wide = accumulated_in(a.dtype)
    if wide == a.dtype:
        return [matmul_stage(a, b, names[0], a.dtype)]
    return [narrowed(matmul_stage(a, b, f"{names[0]}.acc", wide), a.dtype, names[0])]


def matmul_stage(a: te.Tensor, b: te.Tensor, name: str, dtype: str) -> te.Tensor:
    """Return the sums of products of a MatMul, its operands converted to ``dtype`` before they are multiplied."""
    shape = matmul_shape(a.shape, b.shape)
    rows, columns = min(a.ndim - 1, 1), min(b.ndim - 1, 1)
    batch_rank = len(shape) - rows - columns
    rk = te.reduce_axis((0, a.shape[-1]), name="rk")

    def batched(tensor: te.Tensor, batch: Index, *matrix: Expr) -> Expr:
        own = tensor.shape[: -len(matrix)]
        lead = batch[batch_rank - len(own) :]
        return tensor(*(0 if d == 1 else i for i, d in zip(lead, own, strict=True)), *matrix)

    def element(*index: Expr) -> Expr:
        batch, inner = index[:batch_rank], index[batch_rank:]
        left = batched(a, batch, *inner[:rows], rk)
        right = batched(b, batch, rk, *inner[rows:])
        return te.sum(te.cast(left, dtype) * te.cast(right, dtype), axis=rk)

    axes = [f"b{n}" for n in range(batch_rank)] + ["i"] * rows + ["j"] * columns
    return stage(shape, named_axes(axes, element), name)


def matmul_flops(types: Types, results: Sequence[TensorType], _: Attrs) -> int:
    """Return a multiplication and an addition an element of the result and step of the sum."""
    return 2 * results[0].size * at(types, 0).shape[-1]


def _gemm_sizes(types: Types, attrs: Attrs) -> tuple[int, int, int]:
    a, b = at(types, 0).shape, at(types, 1).shape
    if len(a) != 2 or len(b) != 2:
        raise GraphError(f"Gemm takes matrices, got shapes {a} and {b}")
    m, k = reversed(a) if int_attr(attrs, "transA") else a
    k2, n = reversed(b) if int_attr(attrs, "transB") else b
    if k != k2:
        flags = f"transA={attrs['transA']}, transB={attrs['transB']}"
        raise GraphError(f"Gemm of {a} and {b} with {flags}: inner dimensions {k} and {k2} differ")
    return m, n, k


def _gemm_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    dtype = _numeric_dtype("Gemm", types)
    m, n, _ = _gemm_sizes(types, attrs)
    c = optional(types, 2)
    if c is not None and not broadcasts_to(c.shape, (m, n)):
        raise GraphError(f"Gemm: c of shape {c.shape} does not broadcast to {(m, n)}")
    return [TensorType((m, n), dtype)]


def _added(operands: Sequence[Any], attrs: Attrs) -> Any:
    """Return the operand that is added to the product; with beta = 0 none, whatever c holds, as in BLAS."""
    return optional(operands, 2) if float_attr(attrs, "beta") != 0 else None


def _gemm_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    dtype = at(arrays, 0).dtype
    wide = accumulated_in(str(dtype))
    a, b = (at(arrays, i).astype(wide, copy=False) for i in range(2))
    c = _added(arrays, attrs)
    c = None if c is None else c.astype(wide, copy=False)
    product = (a.T if int_attr(attrs, "transA") else a) @ (b.T if int_attr(attrs, "transB") else b)
    if float_attr(attrs, "alpha") != 1:
        product = product * a.dtype.type(attrs["alpha"])
    if c is not None:
        product = product + (c if float_attr(attrs, "beta") == 1 else c * a.dtype.type(attrs["beta"]))
    return [product.astype(dtype, copy=False)]


def _gemm_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    a, b, c = at(tensors, 0), at(tensors, 1), _added(tensors, attrs)
    types = [TensorType(t.shape, t.dtype) for t in (a, b)]
    m, n, k = _gemm_sizes(types, attrs)
    trans_a, trans_b = int_attr(attrs, "transA"), int_attr(attrs, "transB")
    wide = accumulated_in(a.dtype)
    alpha = te.const(float_attr(attrs, "alpha"), wide)
    beta = te.const(float_attr(attrs, "beta"), wide)
    scaled, shifted = float_attr(attrs, "alpha") != 1, float_attr(attrs, "beta") != 1
    rk = te.reduce_axis((0, k), name="rk")

    def product(i: Expr, j: Expr) -> Expr:
        left = a[rk, i] if trans_a else a[i, rk]
        right = b[j, rk] if trans_b else b[rk, j]
        return te.sum(te.cast(left, wide) * te.cast(right, wide), axis=rk)

    if c is None and not scaled and wide == a.dtype:
        return [stage((m, n), product, names[0])]
    acc = stage((m, n), product, f"{names[0]}.acc")

    def finish(i: Expr, j: Expr) -> Expr:
        value = acc[i, j] * alpha if scaled else acc[i, j]
        if c is not None:
            added = te.cast(read_broadcast(c, (i, j)), wide)
            value = value + (added * beta if shifted else added)
        return te.cast(value, a.dtype)

    return [stage((m, n), finish, names[0])]


def _gemm_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    m, n, k = _gemm_sizes(types, attrs)
    return 2 * m * n * k + (m * n if _added(types, attrs) is not None else 0)


define(
    "MatMul",
    "contraction",
    (2, 2),
    _matmul_infer,
    _matmul_reference,
    _matmul_compute,
    {"columns": COLUMNS},
    flops_rule=matmul_flops,
    prologue=("patches",),
    sum_length=lambda types, attrs: at(types, 0).shape[-1],
)
define(
    "Gemm",
    "contraction",
    (2, 3),
    _gemm_infer,
    _gemm_reference,
    _gemm_compute,
    {
        "alpha": Attribute("float", 1.0),
        "beta": Attribute("float", 1.0),
        "transA": Attribute("int", 0),
        "transB": Attribute("int", 0),
    },
    flops_rule=_gemm_flops,
    sum_length=lambda types, attrs: at(types, 0).shape[0 if attrs["transA"] else 1],
)
