"""The exact meaning of products of tile registers: what hardware gives, bit for bit but for the payloads of NaNs.

The order of sums and the rounding are those of Intel's manual (SDM, TDPBF16PS, TDPFP16PS, TDPBSSD); see
:mod:`autotune.te.tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.codegen.interpreter.evaluator import Array, Env, Evaluator, Memory
from autotune.errors import InternalError
from autotune.lower.ir import Buffer, Intrinsic
from autotune.te.dot_products import TILE_PRODUCTS, DotProduct
from autotune.te.instructions import TileMultiply

_LEAST = np.float32(2.0**-126)
"""The least normal float32."""

_TINY = 2.0**-126 - 2.0**-151
"""Below it a number is subnormal after it was rounded to the 24 bits of a float32."""


def multiplied(node: Intrinsic, evaluator: Evaluator, env: Env, memory: Memory) -> bool:
    """Run an intrinsic that is made of products of tiles; returns False for any other.

    Raises InternalError outside of an array.
    """
    if not node.instructions or not all(isinstance(step, TileMultiply) for step in node.instructions):
        return False
    arrays = [memory[load.buffer] for load in node.operands]
    firsts = [evaluator.place(load.buffer, load.indices, env, memory) for load in node.operands]
    for step in node.instructions:
        assert isinstance(step, TileMultiply)
        _multiply(node, step, arrays, firsts)
    return True


def _multiply(
    node: Intrinsic, step: TileMultiply, arrays: Sequence[Array], firsts: Sequence[tuple[int, ...]]
) -> None:
    """Run a product on the arrays of its operands, which begin at these elements."""
    dot = TILE_PRODUCTS[step.instruction]
    groups, columns = math.prod(step.depth) // dot.group, math.prod(step.columns)
    rows = step.rows if len(node.strides[0]) > 2 else (math.prod(step.rows),)
    extents = (
        (*rows, columns),
        (*rows, *step.window, groups, dot.group),
        (*step.window, groups, columns, dot.group),
    )
    places = [
        _places(load.buffer, first, extent, strides)
        for load, first, extent, strides in zip(node.operands, firsts, extents, node.strides, strict=False)
    ]
    sums = arrays[0][places[0]] if step.accumulates else np.zeros(extents[0], dot.total)
    if groups:
        left = arrays[1][places[1]].reshape(math.prod(rows), -1, dot.group)
        right = arrays[2][places[2]].reshape(-1, columns, dot.group)
        flat = sums.reshape(-1, columns)
        sums = product(dot, flat, left, right, step.depth[1] // dot.group).reshape(sums.shape)
    arrays[0][places[0]] = sums


def product(dot: DotProduct, sums: Array, left: Array, right: Array, depth: int) -> Array:
    """Return ``sums[i, j]`` with the products of ``left[i, group, place]`` and ``right[group, j, place]``, added tile
    by tile of ``depth`` groups."""
    for start in range(0, left.shape[1], depth):
        tile = slice(start, start + depth)
        sums = (_bytes if dot.exact else _floats)(sums, left[:, tile], right[tile])
    return sums


def _bytes(sums: Array, left: Array, right: Array) -> Array:
    total: Array = np.einsum("igp,gjp->ij", left.astype(np.int64), right.astype(np.int64))
    return (sums.astype(np.int64) + total).astype(np.int32)


def _floats(sums: Array, left: Array, right: Array) -> Array:
    a, b = left.astype(np.float32), right.astype(np.float32)
    total = np.zeros((a.shape[2], *sums.shape), np.float32)
    for group in range(a.shape[1]):
        total = fused(a[:, group].T[:, :, None], b[group].T[:, None, :], total)
    one = np.float32(1)
    return fused(sums, one, fused(total[0], one, total[1]))


def fused(a: Array | np.float32, b: Array | np.float32, c: Array) -> Array:
    """Return ``a * b + c`` rounded once to float32, subnormal operands and results as 0.

    The product must fit into 24 bits, as those of bfloat16 and half do. Then a second rounding, of the sum in float64,
    does no harm: if that is not exact, the smaller number is below 2**-28 of the larger one, far from a tie.
    """
    with np.errstate(all="ignore"):
        total = _normal(a).astype(np.float64) * _normal(b) + _normal(c)
        nearest = total.astype(np.float32)
        return np.where(np.abs(total) < _TINY, np.copysign(np.float32(0), nearest), nearest)


def _normal(value: Array | np.float32) -> Array:
    return np.where(np.abs(value) < _LEAST, np.copysign(np.float32(0), value), value)


def _places(
    buffer: Buffer, first: tuple[int, ...], extents: Sequence[int], strides: Sequence[int]
) -> tuple[Array, ...]:
    """Return the indices of elements that are steps of memory from the first one."""
    offset = np.zeros((1,) * len(extents), np.int64) + sum(
        i * s for i, s in zip(first, buffer.strides, strict=True)
    )
    for loop, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        shape = [1] * len(extents)
        shape[loop] = extent
        offset = offset + (np.arange(extent) * stride).reshape(shape)
    found: list[Array] = [np.zeros_like(offset)] * len(buffer.shape)
    for dim in sorted(range(len(buffer.shape)), key=lambda dim: -buffer.strides[dim]):
        if buffer.shape[dim] > 1 and buffer.strides[dim]:
            found[dim], offset = np.divmod(offset, buffer.strides[dim])
            if found[dim].min() < 0 or found[dim].max() >= buffer.shape[dim]:
                raise InternalError(f"a product of tiles leaves {buffer.name} of shape {buffer.shape}")
    return tuple(found)


__all__ = ["fused", "multiplied", "product"]
