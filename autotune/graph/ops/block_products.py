"""Products with weights of few bits that have a scale for each block of the sum.

BlockMatMul(x, words, scale[, zero]): x [m, k] times weights [k, n] that stand in ``words``, int32 [k * bits / 32, n]:
row r has those of the steps r * 32 / bits and on, the first one in its lowest bits. A weight q without a sign means
(q - zero) * scale of its block; scale is [k / block, n], and zero, uint8, likewise; without it ``zero_point`` is that
of all blocks. Sums are taken in float32 and rounded once to the type of x.

UnpackBlocks(words, scale[, zero]) are the weights themselves, the first ``rows`` of them (0: all), of the type of
scale: what models store by words, until passes find the products that read it.

te of BlockMatMul: the sums of x over blocks "<out>.sums"; x over the power of two that the place of its weight in a
word has, "<out>.placed"; the sums of that times weights as they stand in words, over blocks, "<out>.blocks", axes (b,
i, j), reduce axes (rw, rp), words and places in them; and what they add up to, axes (i, j), reduce axis rk. So a
scale is multiplied once a block, and a weight costs a mask, a conversion and a multiply-add: it is shifted in the
last place of a word alone, where it would be negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    FLOATS,
    Expr,
    accumulated_in,
    at,
    int_attr,
    narrowed,
    optional,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define

WORD = 32
"""Bits of an element of the stored weights."""
BITS = (4, 8)
"""Of a weight."""
STORED_WEIGHTS = ("DequantizeLinear", "UnpackBlocks")
"""Operators of constants that importers leave as they are: passes know stored weights by them."""
_ONE, _MANTISSA = 127, 23
"""The exponent of the float32 number 1, and the bits below exponents."""


def packed_words(q: Array, bits: int) -> Array:
    """Return integers [k, n] without a sign as words, int32 [k * bits / 32, n].

    >>> packed_words(np.arange(8, dtype=np.uint8).reshape(8, 1), 4)
    array([[1985229328]], dtype=int32)
    """
    count = WORD // bits
    words = np.zeros((len(q) // count, *q.shape[1:]), np.uint32)
    for place in range(count):
        words |= q[place::count].astype(np.uint32) << np.uint32(bits * place)
    return words.view(np.int32)


def unpacked_words(words: Array, bits: int) -> Array:
    """Return the integers that :func:`packed_words` was given, as uint8."""
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)[:, None]
    apart = (words.view(np.uint32)[:, None] >> shifts) & np.uint32((1 << bits) - 1)
    return apart.astype(np.uint8).reshape(-1, *words.shape[1:])


def _unpack_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    words, scale, zero = at(types, 0), at(types, 1), optional(types, 2)
    bits, rows = int_attr(attrs, "bits"), int_attr(attrs, "rows")
    if bits not in BITS or words.rank != 2 or scale.rank != 2 or scale.dtype not in FLOATS:
        raise GraphError(f"UnpackBlocks of {words} and {scale} with {bits} bits is not supported")
    steps, blocks = words.shape[0] * WORD // bits, scale.shape[0]
    if not blocks or steps % blocks or words.shape[1] != scale.shape[1] or not 0 <= rows <= steps:
        raise GraphError(f"UnpackBlocks of {words}: they are not {rows} rows of blocks with scales {scale}")
    if zero is not None and zero != TensorType(scale.shape, "uint8"):
        raise GraphError(f"UnpackBlocks: zero is {zero}, not uint8 of the shape of scale, {scale.shape}")
    return [TensorType((rows or steps, words.shape[1]), scale.dtype)]


def _unpack(arrays: Arrays, attrs: Attrs) -> list[Array]:
    scale = at(arrays, 1)
    weights = block_weights([None, *arrays], attrs).astype(scale.dtype)
    return [weights[: int_attr(attrs, "rows") or None]]


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, words, scale, zero = at(types, 0), at(types, 1), at(types, 2), optional(types, 3)
    bits = int_attr(attrs, "bits")
    if bits not in BITS:
        raise GraphError(f"BlockMatMul: bits = {bits}; allowed: {', '.join(map(str, BITS))}")
    if x.rank != 2 or words.rank != 2 or scale.rank != 2 or x.dtype not in FLOATS or x.dtype == "float64":
        raise GraphError(
            f"BlockMatMul takes matrices, x of float32 or two bytes, got {x}, {words} and {scale}"
        )
    (rows, steps), (blocks, columns) = x.shape, scale.shape
    if words != TensorType((steps * bits // WORD, columns), "int32") or steps * bits % WORD:
        raise GraphError(f"BlockMatMul of {x}: words of {bits} bits and {columns} columns are not {words}")
    if not blocks or steps % blocks or steps // blocks * bits % WORD:
        raise GraphError(
            f"BlockMatMul of {x}: its rows are not {blocks} blocks of whole words of {bits} bits"
        )
    if zero is not None and zero != TensorType(scale.shape, "uint8"):
        raise GraphError(f"BlockMatMul: zero is {zero}, not uint8 of the shape of scale, {scale.shape}")
    return [TensorType((rows, columns), x.dtype)]


def block_weights(arrays: Arrays, attrs: Attrs) -> Array:
    """Return the weights [k, n] in float32."""
    q = unpacked_words(at(arrays, 1), int_attr(attrs, "bits")).astype(np.float32)
    scale, zero = at(arrays, 2).astype(np.float32), optional(arrays, 3)
    zero = np.full(scale.shape, int_attr(attrs, "zero_point")) if zero is None else zero
    return np.asarray((q - _repeated(zero.astype(np.float32), len(q))) * _repeated(scale, len(q)))


def _repeated(array: Array, rows: int) -> Array:
    return np.repeat(array, rows // len(array), axis=0)


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    return [np.asarray(x.astype(np.float32) @ block_weights(arrays, attrs)).astype(x.dtype)]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, words, scale, zero = at(tensors, 0), at(tensors, 1), at(tensors, 2), optional(tensors, 3)
    (rows, steps), (blocks, columns) = x.shape, scale.shape
    bits, wide = int_attr(attrs, "bits"), accumulated_in(x.dtype)
    result = names[0] if wide == x.dtype else f"{names[0]}.acc"
    block, places = steps // blocks, WORD // bits
    rb = te.reduce_axis((0, block), name="rb")
    rw, rp = te.reduce_axis((0, block // places), name="rw"), te.reduce_axis((0, places), name="rp")
    rk = te.reduce_axis((0, blocks), name="rk")

    def read(i: Expr, k: Expr) -> Expr:
        return te.cast(x(i, k), wide)

    def weight(b: Expr, j: Expr) -> Expr:
        word, mask = words(b * (block // places) + rw, j), te.const((1 << bits) - 1, "int32")
        first = te.bitwise_and(word, te.left_shift(mask, te.cast(rp * bits, "int32")))
        last = te.bitwise_and(te.right_shift(word, te.const(WORD - bits, "int32")), mask)
        return te.cast(te.if_then_else(rp < places - 1, first, last), wide)

    def over_place(i: Expr, k: Expr) -> Expr:
        place = te.cast(k % places, "int32")
        shifted = te.if_then_else(place < places - 1, place, te.const(0, "int32"))
        return read(i, k) * te.bitcast(te.left_shift(_ONE - shifted * bits, _MANTISSA), "float32")

    sums = stage((rows, blocks), lambda i, b: te.sum(read(i, b * block + rb), axis=rb), f"{names[0]}.sums")
    placed = stage((rows, steps), over_place, f"{names[0]}.placed")
    products = stage(
        (blocks, rows, columns),
        lambda b, i, j: te.sum(placed(i, b * block + rw * places + rp) * weight(b, j), axis=[rw, rp]),
        f"{names[0]}.blocks",
    )

    def total(i: Expr, j: Expr) -> Expr:
        middle = te.const(int_attr(attrs, "zero_point"), wide) if zero is None else te.cast(zero(rk, j), wide)
        return te.sum(te.cast(scale(rk, j), wide) * (products(rk, i, j) - sums(i, rk) * middle), axis=rk)

    acc = stage((rows, columns), total, result)
    return [acc if wide == x.dtype else narrowed(acc, x.dtype, names[0])]


def _flops(types: Types, results: Sequence[TensorType], _: Attrs) -> int:
    return 2 * results[0].size * at(types, 0).shape[-1]


define(
    "BlockMatMul",
    "contraction",
    (3, 4),
    _infer,
    _reference,
    _compute,
    {"bits": Attribute("int", 4), "zero_point": Attribute("int", 0)},
    flops_rule=_flops,
    in_onnx=False,
    bits_input=1,
)
define(
    "UnpackBlocks",
    "elementwise",
    (2, 3),
    _unpack_infer,
    _unpack,
    None,
    {"bits": Attribute("int", 4), "zero_point": Attribute("int", 0), "rows": Attribute("int", 0)},
    in_onnx=False,
)


__all__ = ["BITS", "STORED_WEIGHTS", "WORD", "block_weights", "packed_words", "unpacked_words"]
