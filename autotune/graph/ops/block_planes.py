"""Products with weights of four bits by dot products of bytes: rows are integers of three bytes, with a factor a block.

BlockFactors(x) are powers of two, float32 [m, k / block]: x [m, k] over that of its block is less than 2**22. Where a
block of x is not finite its factor is NaN. BlockPlanes(x, factors) are the integers nearest to those quotients as
planes of their bytes, int8 [3, m, k], the highest byte first, each with a sign. The steps of a word of weights are in
the order in which masks take them out of it: 0, 2, 4, 6, 1, 3, 5, 7. PlaneSums(x, factors) are the sums of those
integers over blocks, times factors, float32 [m, k / block].

BlockDot(planes, factors, sums, words, scale[, zero]) is the product of those rows with weights [k, n] that stand in
words as BlockMatMul has them. Sums over a block are exact; x is rounded by 2**-22 of the largest of its block at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.block_products import block_weights
from autotune.graph.ops.common import Expr, at, int_attr, optional, stage
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.facts import Domain
from autotune.graph.ops.registry import define
from autotune.te.nibbles import PLACES, nibble

PLANES = 3
MOST_BLOCK = 256
"""Steps of a block at most: sums of two planes, and of all, stay within 31 bits."""
BITS = 4
"""Of a weight."""
_MANTISSA, _BIAS, _HELD, _SPECIAL = 23, 127, 22, 255
_LEAST = 30
"""The exponent of a block of zeros, so that factors are no subnormal numbers."""
_NAN = 0x7FC00000


def _factors_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, block = at(types, 0), int_attr(attrs, "block")
    if x.rank != 2 or x.dtype != "float32" or not 0 < block <= MOST_BLOCK or x.shape[1] % block:
        raise GraphError(f"BlockFactors takes float32 rows of whole blocks, got {x} and blocks of {block}")
    return [TensorType((x.shape[0], x.shape[1] // block), "float32")]


def _factors(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    sizes = np.ascontiguousarray(x).view(np.int32) & 0x7FFFFFFF
    most = sizes.reshape(len(x), -1, int_attr(attrs, "block")).max(2) >> _MANTISSA
    fields = np.maximum(most, _LEAST) - (_HELD - 1)
    return [np.where(most == _SPECIAL, _NAN, fields << _MANTISSA).astype(np.int32).view(np.float32)]


def _factors_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, block = at(tensors, 0), int_attr(attrs, "block")
    rb = te.reduce_axis((0, block), name="rb")
    shape = (x.shape[0], x.shape[1] // block)

    def size(i: Expr, b: Expr) -> Expr:
        return te.bitwise_and(te.bitcast(x(i, b * block + rb), "int32"), te.const(0x7FFFFFFF, "int32"))

    most = stage(shape, lambda i, b: te.max(size(i, b), axis=rb), f"{names[0]}.most")

    def factor(i: Expr, b: Expr) -> Expr:
        exponent = te.right_shift(most(i, b), te.const(_MANTISSA, "int32"))
        field = te.maximum(exponent, te.const(_LEAST, "int32")) - (_HELD - 1)
        bits = te.left_shift(field, te.const(_MANTISSA, "int32"))
        whole = te.if_then_else(exponent < _SPECIAL, bits, te.const(_NAN, "int32"))
        return te.bitcast(whole, "float32")

    return [stage(shape, factor, names[0])]


def _planes_infer(types: Types, _: Attrs) -> list[TensorType]:
    x, factors = at(types, 0), at(types, 1)
    if x.rank != 2 or factors.rank != 2 or x.dtype != "float32" or x.shape[1] % (PLACES * factors.shape[1]):
        raise GraphError(f"BlockPlanes of {x}: it has no blocks of whole words with factors {factors}")
    return [TensorType((PLANES, *x.shape), "int8")]


def _planes_domain(_: Types, __: Attrs, index: int) -> Domain | None:
    """Return for factors those that fit rows of numbers near 1, which stay below 8."""
    return Domain("power", 3 - _HELD + 2) if index == 1 else None


def _step(k: Any) -> Any:
    """Return the step that stands at a place: even ones of a word first."""
    return k // PLACES * PLACES + k % 4 * 2 + k % PLACES // 4


def _planes(arrays: Arrays, _: Attrs) -> list[Array]:
    x, factors = at(arrays, 0), at(arrays, 1)
    whole = _whole(x, factors)
    low = ((whole + 128) & 255) - 128
    upper = (whole - low) >> 8
    middle = ((upper + 128) & 255) - 128
    planes = np.stack([(upper - middle) >> 8, middle, low]).astype(np.int8)
    return [np.ascontiguousarray(planes[:, :, _step(np.arange(x.shape[1]))])]


def _planes_compute(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, factors = at(tensors, 0), at(tensors, 1)
    (rows, steps), block = x.shape, x.shape[1] // factors.shape[1]

    inverse = _inverse(factors)

    def whole(i: Expr, k: Expr) -> Expr:
        return te.cast(te.round(x(i, _step(k)) * inverse(i, k // block)), "int32")

    def byte(q: Expr, i: Expr, k: Expr) -> Expr:
        number, eight = whole(i, k), te.const(8, "int32")
        upper = te.right_shift(number + 128, eight)
        high = te.right_shift(upper + 128, eight)
        return te.cast(
            te.if_then_else(q < 1, high, te.if_then_else(q < 2, _signed(upper), _signed(number))), "int8"
        )

    return [stage((PLANES, rows, steps), byte, names[0])]


def _signed(number: Expr) -> Expr:
    """Return the lowest byte with its sign."""
    return te.bitwise_and(number + 128, te.const(255, "int32")) - 128


def _sums_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    _planes_infer(types, attrs)
    return [at(types, 1)]


def _sums(arrays: Arrays, _: Attrs) -> list[Array]:
    x, factors = at(arrays, 0), at(arrays, 1)
    return [_whole(x, factors).reshape(*factors.shape, -1).sum(2).astype(np.float32) * factors]


def _whole(x: Array, factors: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.rint(x / np.repeat(factors, x.shape[1] // factors.shape[1], 1)).astype(np.int32))


def _sums_compute(tensors: Tensors, _: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, factors = at(tensors, 0), at(tensors, 1)
    block = x.shape[1] // factors.shape[1]
    rb = te.reduce_axis((0, block), name="rb")
    inverse = _inverse(factors)

    def whole(i: Expr, b: Expr) -> Expr:
        return te.cast(te.round(x(i, b * block + rb) * inverse(i, b)), "int32")

    sums = stage(factors.shape, lambda i, b: te.sum(whole(i, b), axis=rb), f"{names[0]}.whole")
    return [stage(factors.shape, lambda i, b: te.cast(sums(i, b), "float32") * factors(i, b), names[0])]


def _inverse(factors: te.Tensor) -> Callable[[Expr, Expr], Expr]:
    """Return the powers of two that factors are divisors of."""

    def inverse(i: Expr, b: Expr) -> Expr:
        field = te.const(2 * _BIAS << _MANTISSA, "int32")
        return te.bitcast(field - te.bitcast(factors(i, b), "int32"), "float32")

    return inverse


def _joined(planes: Any) -> Any:
    return planes[0] * 65536 + planes[1] * 256 + planes[2]


def _infer(types: Types, _: Attrs) -> list[TensorType]:
    planes, factors, sums, words, scale = (at(types, i) for i in range(5))
    zero = optional(types, 5)
    (rows, steps), (blocks, columns) = planes.shape[1:], scale.shape
    if planes.dtype != "int8" or factors != sums or factors != TensorType((rows, blocks), "float32"):
        raise GraphError(
            f"BlockDot of {planes}: factors and sums of {blocks} blocks are not {factors} and {sums}"
        )
    if words != TensorType((steps // PLACES, columns), "int32") or steps % (blocks * PLACES):
        raise GraphError(f"BlockDot of {planes}: words of {BITS} bits in {blocks} blocks are not {words}")
    if zero is not None and zero != TensorType(scale.shape, "uint8"):
        raise GraphError(f"BlockDot: zero is {zero}, not uint8 of the shape of scale, {scale.shape}")
    return [TensorType((rows, columns), "float32")]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    planes, factors = at(arrays, 0), at(arrays, 1)
    order = np.argsort(_step(np.arange(planes.shape[2])))
    whole = _joined(planes.astype(np.int32))[:, order].astype(np.float32)
    x = whole * np.repeat(factors, whole.shape[1] // factors.shape[1], 1)
    unsigned = block_weights([None, *arrays[3:5], None], {"bits": BITS, "zero_point": 0})
    zero = optional(arrays, 5)
    middle = np.float32(int_attr(attrs, "zero_point")) if zero is None else zero.astype(np.float32)
    return [x @ unsigned - at(arrays, 2) @ (middle * at(arrays, 4).astype(np.float32))]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    planes, factors, sums, words, scale = (at(tensors, i) for i in range(5))
    zero = optional(tensors, 5)
    (_, rows, steps), (blocks, columns) = planes.shape, scale.shape
    block = steps // blocks
    rw, rp = te.reduce_axis((0, block // PLACES), name="rw"), te.reduce_axis((0, PLACES), name="rp")
    rk = te.reduce_axis((0, blocks), name="rk")

    def term(b: Expr, q: Expr, i: Expr, j: Expr) -> Expr:
        word = words(b * (block // PLACES) + rw, j)
        return te.cast(planes(q, i, b * block + rw * PLACES + rp), "int32") * nibble(word, rp)

    products = stage(
        (blocks, PLANES, rows, columns),
        lambda b, q, i, j: te.sum(term(b, q, i, j), axis=[rw, rp]),
        f"{names[0]}.blocks",
    )

    def total(i: Expr, j: Expr) -> Expr:
        middle = te.const(int_attr(attrs, "zero_point"), "float32")
        middle = middle if zero is None else te.cast(zero(rk, j), "float32")
        upper = te.cast(products(rk, 0, i, j) * 256 + products(rk, 1, i, j), "float32")
        whole = upper * 256.0 + te.cast(products(rk, 2, i, j), "float32")
        return te.sum(
            te.cast(scale(rk, j), "float32") * (whole * factors(i, rk) - sums(i, rk) * middle), axis=rk
        )

    return [stage((rows, columns), total, names[0])]


def _flops(types: Types, results: Sequence[TensorType], _: Attrs) -> int:
    return 2 * results[0].size * at(types, 0).shape[-1]


define(
    "BlockFactors",
    "reduction",
    (1, 1),
    _factors_infer,
    _factors,
    _factors_compute,
    {"block": Attribute("int", 32)},
    in_onnx=False,
)
define(
    "BlockPlanes",
    "movement",
    (2, 2),
    _planes_infer,
    _planes,
    _planes_compute,
    domain_rule=_planes_domain,
    in_onnx=False,
)
define(
    "PlaneSums",
    "reduction",
    (2, 2),
    _sums_infer,
    _sums,
    _sums_compute,
    domain_rule=_planes_domain,
    in_onnx=False,
)
define(
    "BlockDot",
    "contraction",
    (5, 6),
    _infer,
    _reference,
    _compute,
    {"zero_point": Attribute("int", 0)},
    flops_rule=_flops,
    in_onnx=False,
    bits_input=3,
)

__all__ = ["MOST_BLOCK", "PLANES"]
