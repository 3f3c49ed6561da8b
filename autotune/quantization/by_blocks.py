"""Weights of products in few bits, with a scale for each block of the sum: no samples are needed, activations stay.

Each weight is rounded to the nearest of its block's steps, of which the block's greatest magnitude is the last one on
its side of zero. Products become MatMulNBits of com.microsoft, which ONNX Runtime reads as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.errors import UsageError
from autotune.frontends.onnx.read import ModelSource
from autotune.graph.ir import ABSENT, Array
from autotune.quantization.network import Network, Quantization, attribute

BITS = {"int4": 4, "int8": 8}
BLOCKS = (16, 32, 64, 128, 256)
DOMAIN = "com.microsoft"


def quantize_weights(
    source: ModelSource, dtype: str = "int4", block: int = 32, leave_out: tuple[str, ...] = ()
) -> Quantization:
    """Store constant float32 matrices of MatMul and Gemm in ``dtype``, a scale for ``block`` weights of a column.

    Matrices of fewer rows than a block stay, as do nodes and operators that ``leave_out`` names.

    Raises:
        UsageError: an unknown type or size of blocks; nothing in the model can be quantised.
    """
    if dtype not in BITS or block not in BLOCKS:
        raise UsageError(
            f"weights of {dtype} in blocks of {block}: weights are {' or '.join(BITS)}, blocks of "
            f"{', '.join(map(str, BLOCKS))}"
        )
    network = Network.read(source)
    made: dict[tuple[str, bool], list[str]] = {}
    nodes = [
        node
        if {node.name, node.op_type} & {*leave_out}
        else in_blocks(network, node, BITS[dtype], block, made)
        for node in network.nodes
    ]
    count = sum(new is not old for new, old in zip(nodes, network.nodes, strict=True))
    if not count:
        raise UsageError(
            f"nothing to quantise: no MatMul or Gemm with a constant float32 matrix of {block} rows"
        )
    network.nodes = nodes
    model = network.model()
    if all(each.domain != DOMAIN for each in model.opset_import):
        model.opset_import.add(domain=DOMAIN, version=1)
    return Quantization(model, count, 0)


def in_blocks(
    network: Network, node: Any, bits: int, block: int, made: dict[tuple[str, bool], list[str]]
) -> Any:
    """Return a product with its weights in few bits; the node itself where it is none. ``made`` has the constants of
    weights that were rounded before."""
    from onnx import helper

    weights = network.arrays.get(node.input[1]) if len(node.input) > 1 else None
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32:
        return node
    if not is_product(network, node):
        return node
    turned = bool(attribute(node, "transB", 0))
    columns = weights if turned else weights.T
    if columns.shape[1] < block:
        return node
    key = (str(node.input[1]), turned)
    if key not in made:
        q, scale = rounded(columns, bits, block)
        made[key] = [network.constant(f"{key[0]}.q", q), network.constant(f"{key[0]}.scale", scale)]
    bias = [ABSENT, ABSENT, node.input[2]] if len(node.input) > 2 and node.input[2] else []
    return helper.make_node(
        "MatMulNBits",
        [node.input[0], *made[key], *bias],
        node.output,
        name=node.name,
        domain=DOMAIN,
        N=columns.shape[0],
        K=columns.shape[1],
        bits=bits,
        block_size=block,
    )


def is_product(network: Network, node: Any) -> bool:
    """Return whether a node is a product of rows, with at most a bias of its columns."""
    if node.op_type == "MatMul":
        return True
    if node.op_type != "Gemm" or attribute(node, "transA", 0):
        return False
    bias = network.arrays.get(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(0)
    scaled = {attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)} != {1.0}
    return not scaled and bias is not None and bias.ndim == 1 and bias.size != 1


def rounded(columns: Array, bits: int, block: int) -> tuple[Array, Array]:
    """Return weights [n, k] as bytes [n, blocks, block * bits / 8], of two in a byte the first in its lower half, and
    scales [n * blocks].

    >>> rounded(np.float32([[-8, 7, 3, 0] * 4]), 4, 16)[0][0, 0, :2], rounded(np.ones((1, 16), np.float32), 4, 16)[1]
    (array([240, 139], dtype=uint8), array([-0.125], dtype=float32))
    """
    middle, n = 1 << (bits - 1), len(columns)
    blocks = math.ceil(columns.shape[1] / block)
    whole = np.pad(columns, ((0, 0), (0, blocks * block - columns.shape[1]))).reshape(n, blocks, block)
    at = np.abs(whole).argmax(-1, keepdims=True)
    scale = (np.take_along_axis(whole, at, -1) / -middle).astype(np.float32)
    steps = np.rint(whole / np.where(scale == 0, np.float32(1), scale))
    q: Array = (np.clip(steps, -middle, middle - 1) + middle).astype(np.uint8)
    if bits == 4:
        q = q[..., ::2] | q[..., 1::2] << 4
    return q, scale.reshape(-1)


__all__ = ["BITS", "BLOCKS", "DOMAIN", "in_blocks", "is_product", "quantize_weights", "rounded"]
