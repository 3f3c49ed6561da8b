"""Operators of com.microsoft that exporters of language models write: activations, norms, products, rotations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode, Rule
from autotune.graph.ir import Array


def _gelu(node: ForeignNode) -> None:
    node("Gelu", _biased(node, 0, 1), result=node.output(0))


def _fast_gelu(node: ForeignNode) -> None:
    node("Gelu", _biased(node, 0, 1), result=node.output(0), approximate="tanh")


def _biased(node: ForeignNode, value: int, bias: int) -> str:
    return node("Add", node.input(value), node.input(bias)) if node.input(bias) else node.input(value)


def _quick_gelu(node: ForeignNode) -> None:
    """Compute x * sigmoid(alpha * x)."""
    x = node.input(0)
    gate = node("Sigmoid", node("Mul", x, node.number(node.attrs["alpha"])))
    node("Mul", x, gate, result=node.output(0))


def _fused_matmul(node: ForeignNode) -> None:
    a, b = (_turned(node, index, letter) for index, letter in enumerate("AB"))
    if node.attrs["alpha"] == 1:
        node("MatMul", a, b, result=node.output(0))
        return
    node("Mul", node("MatMul", a, b), node.number(node.attrs["alpha"]), result=node.output(0))


def _turned(node: ForeignNode, index: int, letter: str) -> str:
    """Return an operand with rows and columns exchanged, and the first axis behind those of the batch, as asked for."""
    rank = node.type(index).rank
    axes = [*range(rank)]
    if node.attrs[f"transBatch{letter}"]:
        node.check(rank > 2, index, f"of at least three axes with transBatch{letter}")
        axes = [*axes[1:-1], 0, rank - 1]
    if node.attrs[f"trans{letter}"] and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return node.input(index) if axes == [*range(rank)] else node("Transpose", node.input(index), perm=axes)


def _skip_norm(node: ForeignNode) -> None:
    """Normalise the sum of input, skip and bias; the sum is the last output."""
    simple = node.proto.op_type == "SkipSimplifiedLayerNormalization"
    bias = node.input(3 if simple else 4)
    total = node("Add", node.input(0), node.input(1), result="" if bias else node.output(3))
    if bias:
        total = node("Add", total, bias, result=node.output(3))
    op, beta = ("RMSNormalization", "") if simple else ("LayerNormalization", node.input(3))
    operands = [total, node.input(2), *([beta] if beta else [])]
    node(op, *operands, result=node.output(0), axis=-1, epsilon=node.attrs["epsilon"])


def _simplified_norm(node: ForeignNode) -> None:
    node("RMSNormalization", node.input(0), node.input(1), result=node.output(0), **node.attrs)


def _rotary(node: ForeignNode) -> None:
    x, cache, rotated = node.type(0), node.type(2), node.attrs["rotary_embedding_dim"]
    node.check(x.rank in (3, 4), 0, "[batch, places, hidden] or [batch, heads, places, size]")
    node.check(cache.rank == 2, 2, "[places, half of what is rotated]")
    heads = node.attrs["num_heads"] or x.shape[-1] // max(2 * cache.shape[1], 1)
    if rotated and not node.attrs["num_heads"] and x.rank == 3:
        raise node.fail("rotary_embedding_dim is given without num_heads")
    places = node.input(1)
    if node.type(1).size == 1 and node.type(1).rank < 2:  # of the first one
        count = node.extent(node.input(0), 1 if x.rank == 3 else 2)
        row = node("Unsqueeze", node("Add", node.places(count), places), node.constant([0]))
        batch = node("Shape", node.input(0), start=0, end=1)
        places = node("Expand", row, node("Concat", batch, node.constant([1]), axis=0))
    node(
        "RotaryEmbedding",
        *(node.input(0), node.input(2), node.input(3), places),
        result=node.output(0),
        interleaved=node.attrs["interleaved"],
        rotary_embedding_dim=rotated,
        **({"num_heads": heads} if x.rank == 3 else {}),
    )


_BITS = (4, 8)
_LEAST_BLOCK = 16


def _matmul_nbits(node: ForeignNode) -> None:
    """Compute a product with weights of blocks, (q - zero point) * scale each.

    Zero points that are no integers are subtracted when the model is imported: the weights are float32 then.
    """
    columns, rows, bits, block = (node.attrs[name] for name in ("K", "N", "bits", "block_size"))
    if bits not in _BITS or block < _LEAST_BLOCK or block & (block - 1):
        raise node.fail(
            f"bits are {bits}, block_size is {block}; bits are 4 or 8, blocks powers of two from {_LEAST_BLOCK} on"
        )
    node.absent(4, "which orders the columns (g_idx; act-order)")
    blocks = math.ceil(columns / block)
    node.check(node.type(0).rank > 0 and node.type(0).shape[-1] == columns, 0, f"[..., {columns}]")
    q = _integers(node, 1, (rows, blocks, block), bits).reshape(rows, -1)[:, :columns]
    scale = node.known(2)
    node.check(scale.size == rows * blocks, 2, f"[{rows}, {blocks}]")
    scale = scale.reshape(rows, blocks)
    zero: Array = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if node.input(3):
        whole = node.type(3).dtype == "uint8"
        zero = _integers(node, 3, (rows, blocks), bits) if whole else node.known(3)
        node.check(zero.size == rows * blocks, 3, f"uint8, or [{rows}, {blocks}] of floats")
        zero = zero.reshape(rows, blocks)
    weights = _of_blocks(node, q, scale, zero, block, bits)
    bias = node.input(5)
    result = node("MatMul", node.input(0), weights, result="" if bias else node.output(0))
    if bias:
        node("Add", result, bias, result=node.output(0))


def _of_blocks(node: ForeignNode, q: Array, scale: Array, zero: Array, block: int, bits: int) -> str:
    """Return the name of the weights [k, n] that integers [n, k] stand for."""
    dtype = node.type(0).dtype
    if zero.dtype != np.uint8:
        steps, middle = (np.repeat(a.astype("float32"), block, 1)[:, : q.shape[1]] for a in (scale, zero))
        return node.constant(((q - middle) * steps).T, dtype)
    stored = "uint4" if bits == 4 else "uint8"
    operands = node.constant(q, stored), node.constant(scale, dtype), node.constant(zero, stored)
    return node("Transpose", node("DequantizeLinear", *operands, axis=1, block_size=block), perm=[1, 0])


def _integers(node: ForeignNode, index: int, shape: tuple[int, ...], bits: int) -> Array:
    """Return numbers that bytes hold along the last axis; of two in a byte the lower half is the first."""
    stored, count = node.known(index), shape[-1]
    packed = (*shape[:-1], math.ceil(count * bits / 8))
    node.check(stored.dtype == np.uint8 and stored.size == math.prod(packed), index, f"uint8{[*packed]}")
    stored = stored.reshape(packed)
    if bits == 8:
        return stored
    return np.stack([stored & 15, stored >> 4], -1).reshape(*shape[:-1], -1)[..., :count]


_EPSILON = {"epsilon": 1e-12}
_TRANSPOSED = dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), 0)
_ROTATION = {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0}

LANGUAGE: Mapping[str, Rule] = {
    "BiasGelu": Rule(_gelu, (0, 1), 2),
    "FastGelu": Rule(_fast_gelu, (0,), 2),
    "FusedMatMul": Rule(_fused_matmul, (0, 1), 2, {"alpha": 1.0, **_TRANSPOSED}),
    "Gelu": Rule(_gelu, (0,), 1),
    "MatMulNBits": Rule(
        *(_matmul_nbits, (0, 1, 2), 6, {"K": None, "N": None, "bits": 4, "block_size": None}),
        fixed={"weight_prepacked": 0},
        ignored=("accuracy_level",),
    ),
    "QuickGelu": Rule(_quick_gelu, (0,), 1, {"alpha": 1.702}),
    "RotaryEmbedding": Rule(
        *(_rotary, (0, 1, 2, 3), 4, _ROTATION), fixed={"scale": 1.0, "is_packed_batching": 0}
    ),
    "SimplifiedLayerNormalization": Rule(
        _simplified_norm, (0, 1), 2, {"axis": -1, "epsilon": 1e-5}, ignored=("stash_type",)
    ),
    "SkipLayerNormalization": Rule(_skip_norm, (0, 1, 2), 5, _EPSILON, outputs=(0, 3)),
    "SkipSimplifiedLayerNormalization": Rule(_skip_norm, (0, 1, 2), 4, _EPSILON, outputs=(0, 3)),
}
"""The definition of each operator."""

__all__ = ["LANGUAGE"]
