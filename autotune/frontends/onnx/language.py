"""Operators of com.microsoft that exporters of language models write: activations, norms, products, rotations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
_BLOCKS = f"bits are 4 or 8, blocks powers of two from {_LEAST_BLOCK} on"


def _matmul_nbits(node: ForeignNode) -> None:
    """Compute a product with weights of blocks, (q - zero point) * scale each.

    With zero points that are no integers, the sums of x over blocks are multiplied by what they differ from the middle.
    """
    columns, rows, bits, block = (node.attrs[name] for name in ("K", "N", "bits", "block_size"))
    if bits not in _BITS or block < _LEAST_BLOCK or block & (block - 1):
        raise node.fail(f"bits are {bits}, block_size is {block}; {_BLOCKS}")
    node.absent(4, "which orders the columns (g_idx; act-order)")
    blocks = math.ceil(columns / block)
    node.check(node.type(0).rank > 0 and node.type(0).shape[-1] == columns, 0, f"[..., {columns}]")
    stored = node.known(1)
    node.check(
        stored.dtype == np.uint8 and stored.size == rows * blocks * block * bits // 8,
        1,
        f"uint8[{rows}, {blocks}, {block * bits // 8}]",
    )
    # A column's bytes are its words: the file is read in place, and no whole model is held in another form.
    words = stored.reshape(rows, -1).view("<i4").T
    scale = node.known(2)
    node.check(scale.size == rows * blocks, 2, f"[{rows}, {blocks}]")
    scale = scale.reshape(rows, blocks).T
    zeros, terms, middle = [], [node.input(5)] if node.input(5) else [], 1 << (bits - 1)
    if node.input(3):
        whole = node.type(3).dtype == "uint8"
        zero = unpacked(node, 3, (rows, blocks), bits) if whole else node.known(3)
        node.check(zero.size == rows * blocks, 3, f"uint8, or [{rows}, {blocks}] of floats")
        zero = zero.reshape(rows, blocks).T
        if whole:
            zeros = [node.constant(zero, "uint8")]
        else:
            moved = (np.float32(middle) - zero.astype(np.float32)) * scale.astype(np.float32)
            by = node.constant(moved, node.type(0).dtype)
            terms.append(node("MatMul", _block_sums(node, block), by))
    operands = node.constant(words, "int32"), node.constant(scale, node.type(0).dtype), *zeros
    attrs = {"bits": bits, "rows": columns, "zero_point": 0 if zeros else middle}
    weights = node.of_graph("UnpackBlocks", *operands, **attrs)
    result = node("MatMul", node.input(0), weights, result="" if terms else node.output(0))
    for number, term in enumerate(terms, 1):
        result = node("Add", result, term, result="" if number < len(terms) else node.output(0))


def _block_sums(node: ForeignNode, block: int) -> str:
    """Return the sums of the first input over blocks of its last axis, of which the last may be shorter."""
    rank, columns = node.type(0).rank, node.type(0).shape[-1]
    x, missing = node.input(0), -columns % block
    if missing:
        x = node("Pad", x, node.constant([0] * (2 * rank - 1) + [missing]))
    apart = node.reshape(x, *[0] * (rank - 1), (columns + missing) // block, block)
    return node("ReduceSum", apart, node.constant([-1]), keepdims=0)


def unpacked(node: ForeignNode, index: int, shape: tuple[int, ...], bits: int) -> Array:
    """Return numbers that bytes hold along the last axis; of two in a byte the lower half is the first."""
    stored, count = node.known(index), shape[-1]
    packed = (*shape[:-1], math.ceil(count * bits / 8))
    node.check(stored.dtype == np.uint8 and stored.size == math.prod(packed), index, f"uint8{[*packed]}")
    stored = stored.reshape(packed)
    if bits == 8:
        return stored
    return np.stack([stored & 15, stored >> 4], -1).reshape(*shape[:-1], -1)[..., :count]


def _gather_blocks(node: ForeignNode) -> None:
    """Look rows of integers up, and compute (q - zero point) * scale of their blocks."""
    stored, block = node.type(0), node.attrs["block_size"]
    packed = stored.dtype == "uint8"
    bits, rank = node.attrs["bits"] if packed else 4, stored.rank
    if bits not in _BITS or block < _LEAST_BLOCK or block & (block - 1):
        raise node.fail(f"bits are {bits}, block_size is {block}; {_BLOCKS}")
    if rank < 2 or node.attrs["gather_axis"] % rank or (node.attrs["quantize_axis"] + 1) % rank:
        raise node.fail(
            "gather_axis is not the first, or quantize_axis not the last; others are not supported"
        )
    columns = stored.shape[-1] * (8 // bits if packed else 1)
    blocks, lead = math.ceil(columns / block), stored.shape[:-1]
    q = unpacked(node, 0, (*lead, columns), bits) if packed else node.known(0).astype(np.int8)
    node.check(node.type(2).shape == (*lead, blocks), 2, f"{[*lead, blocks]}")
    zero: Array | None = None
    if node.input(3):
        zero = unpacked(node, 3, (*lead, blocks), bits) if packed else node.known(3).astype(np.int8)
    elif packed:
        zero = np.full((*lead, blocks), 1 << (bits - 1), np.uint8)
    q = np.pad(q, [(0, 0)] * (rank - 1) + [(0, blocks * block - columns)])
    node.real = 2

    def rows(table: str) -> str:
        return node("CastLike", node("Gather", table, node.input(1), axis=0), node.number(0))

    same = [0] * (node.type(1).rank + rank - 2)
    apart = node.reshape(rows(node.constant(q, q.dtype.name)), *same, blocks, block)
    if zero is not None:
        moved = rows(node.constant(zero, zero.dtype.name))
        apart = node("Sub", apart, node("Unsqueeze", moved, node.constant([-1])))
    scale = node("Unsqueeze", rows(node.input(2)), node.constant([-1]))
    whole = blocks * block == columns
    y = node.reshape(node("Mul", apart, scale), *same, -1, result=node.output(0) if whole else "")
    if not whole:
        node(
            "Slice",
            y,
            node.constant([0]),
            node.constant([columns]),
            node.constant([-1]),
            result=node.output(0),
        )


def _embeddings(node: ForeignNode) -> None:
    """Normalise the sum of the embeddings of words, places and segments."""
    ids, node.real = node.input(0), 2
    places = node.input(8) or node.places(node.extent(ids, 1))
    total = node("Gather", node.input(2), ids, axis=0)
    tables = [(node.input(3), places)] + ([(node.input(4), node.input(1))] if node.input(4) else [])
    for n, (table, index) in enumerate(tables):
        last = n == len(tables) - 1
        row = node("Gather", table, index, axis=0)
        total = node("Add", total, row, result=node.output(2) if last else "")
    epsilon = node.attrs["epsilon"]
    node(
        "LayerNormalization",
        total,
        node.input(5),
        node.input(6),
        result=node.output(0),
        axis=-1,
        epsilon=epsilon,
    )
    if node.output(1):
        one = node.constant(1, "int32")
        flags = (
            node.cast(node("Equal", node.input(7), one), "int32")
            if node.input(7)
            else node("Mul", ids, node.constant(0, "int32"))
        )
        node("ReduceSum", flags, node.constant([1]), keepdims=0, result=node.output(1))


def _product_ofunpacked(node: ForeignNode, x: Sequence[str], w: Sequence[str], bias: str) -> None:
    """Compute a product of two operands, each integers, scale and zero point, as numbers."""
    zeros = [each[2] for each in (x, w)] if x[2] or w[2] else []
    product = node.cast(node("MatMulInteger", x[0], w[0], *zeros), "float32")
    steps = node("Mul", x[1], w[1])
    y = node("Mul", product, steps, result="" if bias else node.output(0))
    if bias:
        node("Add", y, bias, result=node.output(0))


def _integers_to_float(node: ForeignNode) -> None:
    x, w = ([node.input(n) for n in places] for places in ((0, 2, 4), (1, 3, 5)))
    _product_ofunpacked(node, x, w, node.input(6))


def _dynamic_matmul(node: ForeignNode) -> None:
    x = node.several("DynamicQuantizeLinear", (node.input(0),), [""] * 3)
    _product_ofunpacked(node, x, [node.input(n) for n in (1, 2, 3)], node.input(4))


def _dynamic_lstm(node: ForeignNode) -> None:
    """Compute an LSTM with weights of integers, rows and columns exchanged, as numbers; activations are not rounded."""
    w, r = (_weights_of_gates(node, *places) for places in ((1, 8, 9), (2, 10, 11)))
    rest = [node.input(n) for n in (3, 4, 5, 6, 7)]
    outputs = [node.output(n) for n in range(3)]
    node.several("LSTM", (node.input(0), w, r, *rest), outputs, **node.given)


def _weights_of_gates(node: ForeignNode, index: int, scale: int, zero: int) -> str:
    """Return [directions, 4 hidden, features] of numbers; scales are those of a direction, or of a gate's rows."""
    stored = node.type(index)
    node.check(stored.rank == 3, index, "[directions, features, 4 hidden]")
    for each in (scale, zero):
        allowed = (stored.shape[:1], (stored.shape[0], stored.shape[2]))
        node.check(node.type(each).shape in allowed, each, f"{[*allowed[0]]} or {[*allowed[1]]}")
    factor, moved = (node.reshape(node.input(each), stored.shape[0], 1, -1) for each in (scale, zero))
    steps = node("Sub", *(node.cast(each, "float32") for each in (node.input(index), moved)))
    return node("Transpose", node("Mul", steps, factor), perm=[0, 2, 1])


_LSTM = {
    **dict.fromkeys(("activation_alpha", "activation_beta", "activations"), ()),
    "clip": 0.0,
    "direction": "forward",
    "hidden_size": 0,
    "input_forget": 0,
}
_EPSILON = {"epsilon": 1e-12}
_LOOKUP = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1}
_TRANSPOSED = dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), 0)
_ROTATION = {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0}

LANGUAGE: Mapping[str, Rule] = {
    "BiasGelu": Rule(_gelu, (0, 1), 2),
    "DynamicQuantizeLSTM": Rule(*(_dynamic_lstm, (0, 1, 2, 8, 9, 10, 11), 12, _LSTM), outputs=(0, 1, 2)),
    "DynamicQuantizeMatMul": Rule(_dynamic_matmul, (0, 1, 2), 5),
    "EmbedLayerNormalization": Rule(
        *(_embeddings, (0, 2, 3, 5, 6), 9, _EPSILON), ignored=("mask_index_type",), outputs=(0, 1, 2)
    ),
    "FastGelu": Rule(_fast_gelu, (0,), 2),
    "FusedMatMul": Rule(_fused_matmul, (0, 1), 2, {"alpha": 1.0, **_TRANSPOSED}),
    "GatherBlockQuantized": Rule(_gather_blocks, (0, 1, 2), 4, _LOOKUP),
    "Gelu": Rule(_gelu, (0,), 1),
    "MatMulIntegerToFloat": Rule(_integers_to_float, (0, 1, 2, 3), 7),
    "MatMulNBits": Rule(
        *(_matmul_nbits, (0, 1, 2), 6, {"K": int, "N": int, "bits": 4, "block_size": int}),
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

__all__ = ["LANGUAGE", "unpacked"]
