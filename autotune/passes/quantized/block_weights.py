"""Weights that have a scale for each block of a sum stay in few bits: their products unpack them.

    MatMul(x, DQ(q, scale, zero, block))             -> BlockMatMul(x, words of q, scale, zero)
    MatMul(x, Transpose(DQ(...))), Gemm(x, DQ(...))  -> the same, of the transposed weights
    MatMul(x, UnpackBlocks(words, scale, zero))      -> BlockMatMul(x, words, scale, zero)

where the blocks lie along the axis that is summed over, and are whole words of 32 bits. What has no product like that
is a constant of real numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.graph.ops.block_products import BITS, STORED_WEIGHTS, WORD, packed_words
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite
from autotune.te.dtypes import integer_limits

_WIDTHS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


@dataclass(frozen=True)
class BlockWeights(GraphPass):
    """Make products with DequantizeLinear of blocks BlockMatMul, and fold the others of it."""

    name: ClassVar[str] = "block_weights"

    def apply(self, graph: Graph) -> Graph:
        if not any(_is_blocked(node) for node in graph.nodes):
            return graph
        return rewrite(rewrite(graph, _product), _fold)


@dataclass(frozen=True)
class _Weights:
    """Words of ``steps`` rows of weights without a sign, and scale and zero point [k / block, n]; None is the middle of
    all blocks that ``middle`` says."""

    words: Array
    steps: int
    scale: Array
    zero: Array | None
    middle: int
    bits: int
    block: int


def _is_blocked(node: Node | None) -> bool:
    if node is None or node.op not in STORED_WEIGHTS:
        return False
    return node.op == "UnpackBlocks" or bool(node.attrs["block_size"])


def _product(rewriter: Rewriter, node: Node) -> bool:
    """Rewrite a product of matrices with such weights."""
    if node.op not in ("MatMul", "Gemm"):
        return False
    x, w = (rewriter.current(value) for value in node.inputs[:2])
    turned = node.op == "Gemm" and bool(integer(node, "transB"))
    found = None if rewriter.constant_of(x) is not None else _weights(rewriter, w, turned)
    if found is None or (node.op == "Gemm" and not _is_plain(node)):
        return False
    (output,) = node.outputs
    result = _multiplied(rewriter, x, found, output)
    added = node.inputs[2] if len(node.inputs) > 2 else ABSENT
    if added != ABSENT:
        result = rewriter.emit("Add", [result, rewriter.current(added)], name=f"{output}.added")
    rewriter.replace(output, result)
    return True


def _is_plain(node: Node) -> bool:
    return node.attrs["alpha"] == node.attrs["beta"] == 1 and not integer(node, "transA")


def _weights(rewriter: Rewriter, value: str, turned: bool) -> _Weights | None:
    """Return the weights that a value is, of which ``turned`` ones are [n, k]; None for any other value."""
    node = rewriter.producer(value)
    while node is not None and node.op in ("Transpose", "Identity"):
        turned ^= node.attrs.get("perm") == (1, 0)
        node = rewriter.producer(node.inputs[0])
    if node is None or not _is_blocked(node):
        return None
    return _stored(rewriter, node, turned) if node.op == "UnpackBlocks" else _packed(rewriter, node, turned)


def _stored(rewriter: Rewriter, node: Node, turned: bool) -> _Weights | None:
    """Return weights that a model stores as words: they stay where they lie."""
    words, scale, *zeros = (rewriter.constant_of(v) for v in node.inputs)
    if turned or words is None or scale is None or any(each is None for each in zeros):
        return None
    bits, steps = integer(node, "bits"), rewriter.type_of(node.outputs[0]).shape[0]
    block = len(words) * WORD // bits // len(scale)
    if block * bits % WORD or 0 in words.shape:
        return None
    return _Weights(
        words, steps, scale, zeros[0] if zeros else None, integer(node, "zero_point"), bits, block
    )


def _packed(rewriter: Rewriter, node: Node, turned: bool) -> _Weights | None:
    """Return weights of which each is a number, packed to words."""
    q, scale = (rewriter.constant_of(v) for v in node.inputs[:2])
    zero = rewriter.constant_of(node.inputs[2]) if len(node.inputs) > 2 else np.zeros((), np.int8)
    if q is None or scale is None or zero is None or q.ndim != 2:
        return None
    bits, block, axis = _WIDTHS[str(q.dtype)], integer(node, "block_size"), integer(node, "axis") % 2
    if axis != int(turned) or bits not in BITS or block * bits % WORD or 0 in q.shape:
        return None
    wide = [_unsigned(array, str(q.dtype)) for array in (q, np.broadcast_to(zero, scale.shape))]
    arrays = [array.T if turned else array for array in (wide[0], scale, wide[1])]
    dense, scales, zeros = (np.ascontiguousarray(array) for array in arrays)
    whole = np.pad(dense, ((0, -len(dense) % block), (0, 0)))
    middle = int(zeros.flat[0])
    each = zeros if (zeros != middle).any() else None
    return _Weights(
        packed_words(whole, bits), len(dense), scales, each, 0 if each is not None else middle, bits, block
    )


def _unsigned(array: Array, dtype: str) -> Array:
    """Return integers less the least one of their type, as uint8."""
    return (array.astype(np.int16) - integer_limits(dtype)[0]).astype(np.uint8)


def _multiplied(rewriter: Rewriter, x: str, weights: _Weights, output: str) -> str:
    """Return the product of the rows of x with weights, of which a last block may be filled up."""
    shape, steps, columns = rewriter.type_of(x).shape, weights.steps, weights.words.shape[1]
    rows = math.prod(shape[:-1])
    if len(shape) != 2:
        x = rewriter.emit("Reshape", [x], {"shape": (rows, steps)}, name=f"{output}.rows")
    missing = -steps % weights.block
    if missing:
        x = rewriter.emit("Pad", [x], {"pads": (0, 0, 0, missing)}, name=f"{output}.filled")
    words = rewriter.constant(f"{output}.words", weights.words)
    operands = [x, words, rewriter.constant(f"{output}.scale", weights.scale)]
    if weights.zero is not None:
        operands.append(rewriter.constant(f"{output}.zero", weights.zero))
    attrs = {"bits": weights.bits, "zero_point": weights.middle}
    made = rewriter.emit("BlockMatMul", operands, attrs, name=f"{output}.product")
    wanted = (*shape[:-1], columns)
    return (
        made
        if len(shape) == 2
        else rewriter.emit("Reshape", [made], {"shape": wanted}, name=f"{output}.shaped")
    )


def _fold(rewriter: Rewriter, node: Node) -> bool:
    """Replace what is left of blocks by real numbers, unless nothing reads them any more."""
    if not _is_blocked(node):
        return False
    arrays = [None if v == ABSENT else rewriter.constant_of(rewriter.current(v)) for v in node.inputs]
    (real,) = ops.get(node.op).reference(arrays, node.attrs)
    rewriter.replace(node.outputs[0], rewriter.constant(f"{node.outputs[0]}.folded", real))
    return True


__all__ = ["BlockWeights"]
