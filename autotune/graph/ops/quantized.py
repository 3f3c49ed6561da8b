"""ONNX's quantised operators: real = (q - zero) * scale.

They have references only: the pass ``integer_products`` expresses them by IntegerMatMul, IntegerConv
and elementwise operators. Scales are float32; zero points (0 if absent) have the type of what they
belong to. Scale and zero point are one value or, where an axis is said below, one an index of it.

QuantizeLinear(x, scale[, zero]), DequantizeLinear(q, scale[, zero]): attribute axis (1), and to: the
dtype of the result (that of zero, else uint8; float32). Constant weights of four and eight bits have a scale and a
zero point for each block of ``block_size`` indices of the axis (:mod:`autotune.passes.quantized.block_weights`).
MatMulInteger(a, b[, a_zero, b_zero]), ConvInteger(x, w[, x_zero, w_zero]): int32. a_zero may be one a
row, b_zero one a column, each for all matrices or, of shapes [..., rows, 1] and [..., 1, columns], for every
one; w_zero one an output channel. So below, with the scales; those of a product's result are one or one a row.
QLinearMatMul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero), QLinearConv(x, x_scale, x_zero,
w, w_scale, w_zero, y_scale, y_zero[, bias]): y of y_zero's type; bias is int32 in steps of
x_scale * w_scale. A sum is multiplied by x_scale * w_scale / y_scale in float32 and rounded to even.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import FLOATS, at, int_attr, optional, positive_axis, str_attr
from autotune.graph.ops.contraction import matmul_flops, matmul_shape
from autotune.graph.ops.convolution import CONV_ATTRIBUTES, complete_conv, conv_array, geometry
from autotune.graph.ops.definition import Arrays, Attribute, Kind, Types
from autotune.graph.ops.integer import conv_flops, wrapped
from autotune.graph.ops.registry import define
from autotune.te.conversion import converted

QUANTIZED = ("int8", "uint8")
BLOCKED = ("int4", "uint4", *QUANTIZED)
"""Types of weights in blocks."""
ROWS, COLUMNS = -2, -1


def along(values: Array, rank: int, axis: int) -> Array:
    """Return scalars, or values along one axis of a tensor of ``rank`` dimensions, so that they broadcast to it."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if d == axis % rank else 1 for d in range(rank)])


def _zero(arrays: Arrays, i: int) -> Array:
    found = optional(arrays, i)
    return np.zeros((), np.int8) if found is None else np.asarray(found)


def _check(op: str, types: Types, *positions: int) -> None:
    for i in positions:
        if at(types, i).dtype not in QUANTIZED:
            raise GraphError(f"{op}: input {i} is {at(types, i).dtype}, not {' or '.join(QUANTIZED)}")


def _check_sizes(op: str, types: Types, sizes: Mapping[int, tuple[int, ...]]) -> None:
    """Refuse scales, zero points and biases, by input, that have none of the numbers of elements allowed."""
    for i, allowed in sizes.items():
        found = optional(types, i)
        if found is not None and found.size not in allowed:
            wanted = " or ".join(map(str, dict.fromkeys(allowed)))
            raise GraphError(f"{op}: input {i} has {found.size} elements, shape {found.shape}, not {wanted}")


def _check_steps(op: str, types: Types, attrs: Attrs) -> None:
    """Refuse a scale or zero point that is neither one value nor one for each index of the axis."""
    x, axis = at(types, 0), int_attr(attrs, "axis")
    extent = x.shape[axis] if -x.rank <= axis < x.rank else 1
    _check_sizes(op, types, {1: (1, extent), 2: (1, extent)})


def _complete_quantize(types: Types, attrs: dict[str, Attr]) -> None:
    zero = optional(types, 2)
    attrs.setdefault("to", "uint8" if zero is None else zero.dtype)


def _quantize_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    if attrs["to"] not in QUANTIZED:
        raise GraphError(f"QuantizeLinear to {attrs['to']}; supported: {', '.join(QUANTIZED)}")
    _check_steps("QuantizeLinear", types, attrs)
    return [TensorType(at(types, 0).shape, str_attr(attrs, "to"))]


def _quantize(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0).astype(np.float32)
    axis, to = int_attr(attrs, "axis"), str_attr(attrs, "to")
    scale = along(at(arrays, 1), x.ndim, axis)
    return [saturated(np.rint(x / scale) + along(_zero(arrays, 2), x.ndim, axis), to)]


def saturated(values: Array, dtype: str) -> Array:
    """Return whole numbers in floating point as integers, clipped to their range; NaN as 0."""
    return converted(values, dtype)


def _complete_dequantize(types: Types, attrs: dict[str, Attr]) -> None:
    if attrs["block_size"]:
        attrs["axis"] = positive_axis(int_attr(attrs, "axis"), at(types, 0).rank)


def _blocked_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    q, axis, block = at(types, 0), int_attr(attrs, "axis"), int_attr(attrs, "block_size")
    if q.dtype not in BLOCKED or attrs["to"] not in FLOATS or block < 0:
        raise GraphError(
            f"DequantizeLinear of {q.dtype} in blocks of {block} to {attrs['to']} is not supported"
        )
    wanted = (*q.shape[:axis], math.ceil(q.shape[axis] / block), *q.shape[axis + 1 :])
    for steps in (t for t in types[1:] if t is not None):
        if steps.shape != wanted:
            raise GraphError(
                f"DequantizeLinear of {q}: scales of blocks of {block} are {wanted}, not {steps.shape}"
            )
    return [TensorType(q.shape, str_attr(attrs, "to"))]


def _dequantize_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    if attrs["block_size"]:
        return _blocked_infer(types, attrs)
    if at(types, 0).dtype not in (*QUANTIZED, "int32", "int16") or attrs["to"] != "float32":
        raise GraphError(f"DequantizeLinear of {at(types, 0).dtype} to {attrs['to']} is not supported")
    _check_steps("DequantizeLinear", types, attrs)
    return [TensorType(at(types, 0).shape, "float32")]


def _dequantize(arrays: Arrays, attrs: Attrs) -> list[Array]:
    q, axis, block = at(arrays, 0), int_attr(attrs, "axis"), int_attr(attrs, "block_size")
    if block:
        scale, zero = (
            _of_blocks(each, q.shape[axis], axis, block) for each in (at(arrays, 1), _zero(arrays, 2))
        )
        real = (q.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
        return [real.astype(str_attr(attrs, "to"))]
    centred = q.astype(np.int32) - along(_zero(arrays, 2), q.ndim, axis).astype(np.int32)
    return [centred.astype(np.float32) * along(at(arrays, 1), q.ndim, axis)]


def _of_blocks(values: Array, extent: int, axis: int, block: int) -> Array:
    """Return the value of its block for each index of an axis; scalars as they are."""
    return np.repeat(values, block, axis)[(slice(None),) * axis + (slice(extent),)] if values.ndim else values


def matrices(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the shape of a product's operand as matrices, of which a vector is one row (``axis`` -2) or
    one column (-1)."""
    if len(shape) > 1:
        return tuple(shape)
    return (1, shape[0]) if axis == ROWS else (shape[0], 1)


def spread(steps: Sequence[int], operand: Sequence[int], axis: int) -> tuple[int, ...] | None:
    """Return the shape by which scales or zero points broadcast to matrices; None for a shape that none may have.

    ``axis`` is that along which there is one each, for all matrices or for every one.

    >>> spread((3,), (2, 3, 4), ROWS), spread((2, 1, 4), (2, 3, 4), COLUMNS), spread((2,), (2, 3, 4), ROWS)
    ((3, 1), (2, 1, 4), None)
    """
    extent, size = operand[axis], math.prod(steps)
    one = (extent, 1) if axis == ROWS else (1, extent)
    if size == 1:
        return ()
    if tuple(steps) == (*operand[:-2], *one):
        return tuple(steps)
    return one if size == extent else None


def _spread(steps: Array, operand: Sequence[int], axis: int) -> Array:
    shape = spread(steps.shape, operand, axis)
    assert shape is not None, "checked where types are inferred"
    return steps.reshape(shape)


def _matmul_sums(a: Array, a_zero: Array, b: Array, b_zero: Array) -> Array:
    """Return sums of the operands as matrices."""
    left, right = a.reshape(matrices(a.shape, ROWS)), b.reshape(matrices(b.shape, COLUMNS))
    centred = (
        left.astype(np.float64) - _spread(a_zero, left.shape, ROWS),
        right.astype(np.float64) - _spread(b_zero, right.shape, COLUMNS),
    )
    return wrapped(np.asarray(np.matmul(*centred)))


def _matmul_integer(arrays: Arrays, _: Attrs) -> list[Array]:
    a, b = at(arrays, 0), at(arrays, 1)
    sums = _matmul_sums(a, _zero(arrays, 2), b, _zero(arrays, 3))
    return [sums.reshape(matmul_shape(a.shape, b.shape))]


def _conv_sums(x: Array, x_zero: Array, w: Array, w_zero: Array, attrs: Attrs) -> Array:
    weights = w.astype(np.float64) - along(w_zero, w.ndim, 0)
    return wrapped(conv_array(x.astype(np.float64) - x_zero.reshape(()), weights, attrs))


def _matmul_integer_infer(types: Types, _: Attrs) -> list[TensorType]:
    _check("MatMulInteger", types, 0, 1)
    a, b = at(types, 0).shape, at(types, 1).shape
    shape = matmul_shape(a, b)
    _check_spread("MatMulInteger", types, matrices(a, ROWS), ROWS, 2)
    _check_spread("MatMulInteger", types, matrices(b, COLUMNS), COLUMNS, 3)
    return [TensorType(shape, "int32")]


def _check_spread(op: str, types: Types, operand: Sequence[int], axis: int, *positions: int) -> None:
    """Refuse scales and zero points that do not belong to matrices."""
    for i in positions:
        found = optional(types, i)
        if found is not None and spread(found.shape, operand, axis) is None:
            _check_sizes(op, types, {i: (1, operand[axis])})


def product_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a product whose vectors are matrices."""
    return matmul_shape(matrices(a, ROWS), matrices(b, COLUMNS))


def _conv_integer_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check("ConvInteger", types, 0, 1)
    sizes = geometry(types, attrs)
    _check_sizes("ConvInteger", types, {2: (1,), 3: (1, sizes.out_channels)})
    return [TensorType(sizes.out_shape, "int32")]


def _qlinear_matmul_infer(types: Types, _: Attrs) -> list[TensorType]:
    _check("QLinearMatMul", types, 0, 3, 7)
    a, b = at(types, 0).shape, at(types, 3).shape
    shape = matmul_shape(a, b)
    _check_spread("QLinearMatMul", types, matrices(a, ROWS), ROWS, 1, 2)
    _check_spread("QLinearMatMul", types, matrices(b, COLUMNS), COLUMNS, 4, 5)
    _check_spread("QLinearMatMul", types, product_shape(a, b), ROWS, 6, 7)
    return [TensorType(shape, at(types, 7).dtype)]


def _operands(types: Types) -> Types:
    return [at(types, 0), at(types, 3)]


def _qlinear_conv_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _check("QLinearConv", types, 0, 3, 7)
    sizes, one = geometry(_operands(types), attrs), (1,)
    channels = (1, sizes.out_channels)
    _check_sizes(
        "QLinearConv",
        types,
        {1: one, 2: one, 4: channels, 5: channels, 6: one, 7: one, 8: (sizes.out_channels,)},
    )
    return [TensorType(sizes.out_shape, at(types, 7).dtype)]


def _rescaled(sums: Array, left: Array, right: Array, out: Array, zero: Array) -> Array:
    """Return sums as the result's type, by scales and a zero point that broadcast to them."""
    factor = left.astype(np.float32) * right.astype(np.float32) / out.astype(np.float32)
    real = sums.astype(np.float32) * factor
    return saturated(np.rint(real) + zero.astype(np.float32), str(zero.dtype))


def _qlinear_matmul(arrays: Arrays, _: Attrs) -> list[Array]:
    a, a_zero, b, b_zero = (at(arrays, i) for i in (0, 2, 3, 5))
    sums = _matmul_sums(a, a_zero, b, b_zero)
    sides = {1: (matrices(a.shape, ROWS), ROWS), 4: (matrices(b.shape, COLUMNS), COLUMNS)}
    sides |= {6: (sums.shape, ROWS), 7: (sums.shape, ROWS)}
    steps = [_spread(at(arrays, i), operand, axis) for i, (operand, axis) in sides.items()]
    return [_rescaled(sums, *steps).reshape(matmul_shape(a.shape, b.shape))]


def _qlinear_conv(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, x_zero, w, w_zero = (at(arrays, i) for i in (0, 2, 3, 5))
    sums, bias = _conv_sums(x, x_zero, w, w_zero, attrs), optional(arrays, 8)
    sums = sums if bias is None else sums + along(bias, sums.ndim, 1)
    return [_rescaled(sums, *(along(at(arrays, i), sums.ndim, 1) for i in (1, 4, 6, 7)))]


_AXIS = {"axis": Attribute("int", 1)}
_CONV = {k: v for k, v in CONV_ATTRIBUTES.items() if k != "layout"} | {"layout": Attribute("str", "NCHW")}


def _register_quantized() -> None:
    to_quantized = {**_AXIS, "to": Attribute("str")}
    to_real = {**_AXIS, "to": Attribute("str", "float32"), "block_size": Attribute("int", 0)}
    elementwise: Kind = "elementwise"
    define(
        "QuantizeLinear",
        elementwise,
        (2, 3),
        _quantize_infer,
        _quantize,
        None,
        to_quantized,
        _complete_quantize,
    )
    define(
        "DequantizeLinear",
        elementwise,
        (2, 3),
        _dequantize_infer,
        _dequantize,
        None,
        to_real,
        _complete_dequantize,
    )
    define(
        "MatMulInteger",
        "contraction",
        (2, 4),
        _matmul_integer_infer,
        _matmul_integer,
        flops_rule=matmul_flops,
    )
    define(
        "ConvInteger",
        "convolution",
        (2, 4),
        _conv_integer_infer,
        lambda a, attrs: [_conv_sums(at(a, 0), _zero(a, 2), at(a, 1), _zero(a, 3), attrs)],
        None,
        _CONV,
        complete_conv,
        conv_flops,
    )
    define(
        "QLinearMatMul",
        "contraction",
        (8, 8),
        _qlinear_matmul_infer,
        _qlinear_matmul,
        flops_rule=lambda types, results, attrs: matmul_flops(_operands(types), results, attrs),
    )
    define(
        "QLinearConv",
        "convolution",
        (8, 9),
        _qlinear_conv_infer,
        _qlinear_conv,
        None,
        _CONV,
        lambda types, attrs: complete_conv(_operands(types), attrs),
        lambda types, results, attrs: conv_flops(_operands(types), results, attrs),
    )


_register_quantized()


__all__ = ["BLOCKED", "COLUMNS", "ROWS", "along", "matrices", "product_shape", "saturated", "spread"]
