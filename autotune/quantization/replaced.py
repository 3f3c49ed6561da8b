"""Products that become another operator: with weights in blocks of four bits, or with activations that become bytes
when the model runs.

Each precision of this kind writes a product (DynamicQuantizeMatMul and MatMulNBits of com.microsoft, which ONNX Runtime
reads as well), and says what its weights are as real numbers, by which the switched model computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.ir import ABSENT, Array
from autotune.quantization.by_blocks import DOMAIN, in_blocks, is_product, rounded
from autotune.quantization.network import Network, attribute
from autotune.quantization.precision import INT4_WEIGHTS, INT8_DYNAMIC
from autotune.quantization.write import quantized_weights, rounded_weights

_BLOCK = 32


@dataclass(frozen=True)
class ReplacedProduct:
    """A function that writes a product, one that returns its weights (rows of the sum first) as real numbers, and
    whether its activations become bytes."""

    write: Callable[[Network, Any], Any]
    weights: Callable[[Array], Array]
    is_dynamic: bool


def is_replaceable(network: Network, node: Any) -> bool:
    """Return whether a product has a constant float32 matrix, of at least a block of rows."""
    weights = network.arrays.get(node.input[1]) if len(node.input) > 1 else None
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32 or not is_product(network, node):
        return False
    return bool(_columns(node, weights).shape[0] >= _BLOCK)


def replace_products(network: Network, wanted: Mapping[str, str]) -> None:
    """Write the products of these outputs in these precisions, in place; those that cannot be stay as they are."""
    network.nodes = [
        REPLACED[wanted[node.output[0]]].write(network, node)
        if node.output[0] in wanted and is_replaceable(network, node)
        else node
        for node in network.nodes
    ]
    domains = {each.domain for each in network.proto.opset_import}
    if DOMAIN not in domains and any(node.domain == DOMAIN for node in network.nodes):
        network.proto.opset_import.add(domain=DOMAIN, version=1)


def real_weights(precision: str, node: Any, weights: Array) -> Array:
    """Return the real numbers of a product's weights in a precision, in their own order of axes."""
    found = REPLACED[precision].weights(_columns(node, weights))
    return found.T if attribute(node, "transB", 0) else found


def _columns(node: Any, weights: Array) -> Array:
    return weights.T if attribute(node, "transB", 0) else weights


def _dynamic(network: Network, node: Any) -> Any:
    """Return DynamicQuantizeMatMul: uint8 activations by their range when the model runs, int8 weights by columns."""
    from onnx import helper

    q, scales = quantized_weights(np.ascontiguousarray(_columns(node, network.arrays[node.input[1]])), 1)
    operands = [network.constant(f"{node.input[1]}.q", q), network.constant(f"{node.input[1]}.scale", scales)]
    bias = [ABSENT, node.input[2]] if len(node.input) > 2 and node.input[2] else []
    inputs = [node.input[0], *operands, *bias]
    return helper.make_node("DynamicQuantizeMatMul", inputs, node.output, name=node.name, domain=DOMAIN)


def _blocked(network: Network, node: Any) -> Any:
    return in_blocks(network, node, 4, _BLOCK, {})


def _of_blocks(columns: Array) -> Array:
    """Return the real numbers of weights [k, n] in blocks of four bits along k."""
    q, scales = rounded(columns.T, 4, _BLOCK)
    halves = np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:2], -1).astype(np.float32) - 8
    whole = halves * scales.reshape(*q.shape[:2], 1)
    real: Array = whole.reshape(len(q), -1)[:, : len(columns)].T
    return real.astype(np.float32)


REPLACED: Mapping[str, ReplacedProduct] = {
    INT4_WEIGHTS: ReplacedProduct(_blocked, _of_blocks, is_dynamic=False),
    INT8_DYNAMIC: ReplacedProduct(
        _dynamic, lambda columns: rounded_weights(columns, 1).astype(np.float32), is_dynamic=True
    ),
}
"""Of each precision whose products become another operator."""

__all__ = ["REPLACED", "ReplacedProduct", "is_replaceable", "real_weights", "replace_products"]
