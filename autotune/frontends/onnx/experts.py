"""Mixtures of experts of com.microsoft: MoE, and QMoE with weights of few bits.

Few tokens look up the weights of the experts that they go to. Many go through all experts, whose products are then
dense, and the results are weighted by zeros elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode, Rule
from autotune.frontends.onnx.language import unpacked
from autotune.graph.ir import Array

_BITS = (4, 8)


@dataclass(frozen=True)
class _Layer:
    """A product of each expert: weights [experts, columns, rows], bias [experts, columns] or ""."""

    weights: str
    bias: str


def _moe(node: ForeignNode) -> None:
    layers = [_Layer(_turned(node, index), node.input(index + 1)) for index in (2, 4, 6) if node.input(index)]
    _mix(node, layers)


def _turned(node: ForeignNode, index: int) -> str:
    node.check(node.type(index).rank == 3, index, "[experts, columns, rows]")
    return node("Transpose", node.input(index), perm=[0, 2, 1])


def _quantised(node: ForeignNode) -> None:
    for index, what in enumerate(_LATER, 14):
        node.absent(index, what)
    layers = [
        _Layer(_unpacked(node, index, zero), node.input(index + 2))
        for index, zero in ((2, 11), (5, 12), (8, 13))
        if node.input(index)
    ]
    _mix(node, layers)


_LATER = ("weights of the router", "a global scale", "a global scale", *("scales of activations",) * 4)


def _unpacked(node: ForeignNode, index: int, zero: int) -> str:
    """Return weights, (q - zero point) * scale of a row or of its blocks, as numbers."""
    bits, block = node.attrs["expert_weight_bits"], node.attrs["block_size"]
    if bits not in _BITS:
        raise node.fail(f"expert_weight_bits are {bits}; they are 4 or 8")
    stored, scale = node.type(index), node.known(index + 1).astype("float32")
    node.check(stored.rank == 3, index, "[experts, columns, rows]")
    experts, columns, size = *stored.shape[:2], stored.shape[2] * 8 // bits
    q = unpacked(node, index, (experts, columns, size), bits).astype("float32")
    blocks = math.ceil(size / block) if block else 1
    node.check(scale.size == experts * columns * blocks, index + 1, f"[{experts}, {columns}, {blocks}]")
    moved: Array = np.full((), 1 << (bits - 1), "float32")
    if node.input(zero):
        moved = unpacked(node, zero, (experts, columns, blocks), bits).astype("float32")
        moved = np.repeat(moved, block or size, -1)[..., :size]
    factor = np.repeat(scale.reshape(experts, columns, blocks), block or size, -1)[..., :size]
    return node.constant(((q - moved) * factor).transpose(0, 2, 1), node.type(0).dtype)


def _mix(node: ForeignNode, layers: list[_Layer]) -> None:
    """Add the weighted results of the best experts of each token."""
    shape, k, experts = node.type(0).shape, int(node.attrs["k"]), node.type(1).shape[-1]
    node.check(len(shape) in (2, 3), 0, "[tokens, hidden] or [batch, places, hidden]")
    if not 1 <= k <= experts:
        raise node.fail(f"k is {k} of {experts} experts")
    tokens = math.prod(shape[:-1])
    x = node.reshape(node.input(0), tokens, shape[-1])
    weights, chosen = node.several(
        "TopK", (node("Softmax", node.input(1), axis=-1), node.constant([k])), ["", ""]
    )
    if node.attrs["normalize_routing_weights"]:
        weights = node("Div", weights, node("ReduceSum", weights, node.constant([-1]), keepdims=1))
    if tokens * k < experts:
        y = _looked_up(node, layers, x, weights, chosen)
    else:
        y = _through_all(node, layers, x, weights, chosen)
    node.reshape(y, *shape, result=node.output(0))


def _looked_up(node: ForeignNode, layers: list[_Layer], x: str, weights: str, chosen: str) -> str:
    """Return the sum over [tokens, k] of experts whose weights are looked up."""

    def product(value: str, layer: _Layer) -> str:
        y = node("MatMul", value, node("Gather", layer.weights, chosen, axis=0))
        if not layer.bias:
            return y
        return node(
            "Add", y, node("Unsqueeze", node("Gather", layer.bias, chosen, axis=0), node.constant([2]))
        )

    hidden = _hidden(
        node, layers, [product(node("Unsqueeze", x, node.constant([1, 2])), each) for each in _first(layers)]
    )
    y = node("Squeeze", product(hidden, layers[1]), node.constant([2]))
    return node(
        "ReduceSum",
        node("Mul", y, node("Unsqueeze", weights, node.constant([2]))),
        node.constant([1]),
        keepdims=0,
    )


def _through_all(node: ForeignNode, layers: list[_Layer], x: str, weights: str, chosen: str) -> str:
    """Return the sum over [experts, tokens], of which most have no weight."""

    def product(value: str, layer: _Layer) -> str:
        y = node("MatMul", value, layer.weights)
        return node("Add", y, node("Unsqueeze", layer.bias, node.constant([1]))) if layer.bias else y

    hidden = _hidden(
        node, layers, [product(node("Unsqueeze", x, node.constant([0])), each) for each in _first(layers)]
    )
    y = product(hidden, layers[1])
    experts = node.type(1).shape[-1]
    one_hot = node("OneHot", chosen, node.constant(experts), node.constant([0, 1], node.type(0).dtype))
    spread = node(
        "ReduceSum",
        node("Mul", one_hot, node("Unsqueeze", weights, node.constant([2]))),
        node.constant([1]),
        keepdims=0,
    )
    factor = node("Unsqueeze", node("Transpose", spread, perm=[1, 0]), node.constant([2]))
    return node("ReduceSum", node("Mul", y, factor), node.constant([0]), keepdims=0)


def _first(layers: list[_Layer]) -> list[_Layer]:
    return [layers[0], *layers[2:]]


def _hidden(node: ForeignNode, layers: list[_Layer], products: list[str]) -> str:
    """Return what the first products become before the second layer."""
    kind = node.attrs["activation_type"]
    if kind == "swiglu":
        return _swiglu(node, *(products if len(products) == 2 else _halves(node, products[0])))
    if kind not in _ACTIVATIONS:
        raise node.fail(f"activation_type is {kind!r}; it is one of {', '.join((*_ACTIVATIONS, 'swiglu'))}")
    first = products[0]
    if kind == "silu":
        y = node("Mul", first, node("Sigmoid", first))
    else:
        y = node(_ACTIVATIONS[kind], first, **({"approximate": "tanh"} if kind == "gelu" else {}))
    return node("Mul", y, products[1]) if len(products) == 2 else y


_ACTIVATIONS = {"relu": "Relu", "gelu": "Gelu", "silu": "", "identity": "Identity"}


def _halves(node: ForeignNode, value: str) -> tuple[str, str]:
    """Return the gate and the rest: alternating along the last axis, or one behind the other."""
    fusion, width = node.attrs["swiglu_fusion"], node.type(2).shape[1]
    if fusion not in (1, 2):
        raise node.fail("activation_type swiglu takes weights fc3, or swiglu_fusion 1 or 2")
    starts, step = ((0, 1), 2) if fusion == 1 else ((0, width // 2), 1)
    first, second = (
        node(
            "Slice",
            value,
            *(node.constant([n]) for n in (start, width if step == 2 else start + width // 2, -1, step)),
        )
        for start in starts
    )
    return first, second


def _swiglu(node: ForeignNode, gate: str, rest: str) -> str:
    """Compute G sigmoid(alpha G) (L + beta), of both within the limit."""
    limit = node.attrs["swiglu_limit"]
    if limit > 0:
        high, low = node.number(limit), node.number(-limit)
        gate, rest = node("Clip", gate, "", high), node("Clip", rest, low, high)
    swish = node("Mul", gate, node("Sigmoid", node("Mul", gate, node.number(node.attrs["activation_alpha"]))))
    return node("Mul", swish, node("Add", rest, node.number(node.attrs["activation_beta"])))


_MIX = {
    "activation_alpha": 1.0,
    "activation_beta": 0.0,
    "activation_type": "relu",
    "k": 1,
    "normalize_routing_weights": 0,
    "swiglu_fusion": 0,
    "swiglu_limit": 0.0,
}
_WHOLE = {"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0}

EXPERTS: Mapping[str, Rule] = {
    "MoE": Rule(_moe, (0, 1, 2, 4), 8, _MIX, _WHOLE),
    "QMoE": Rule(
        *(_quantised, (0, 1, 2, 3, 5, 6), 21, {**_MIX, "expert_weight_bits": 4, "block_size": 0}),
        fixed={**_WHOLE, "quant_type": "int", "weights_prepacked": -1},
        ignored=("accuracy_level",),
    ),
}
"""The definition of each operator."""

__all__ = ["EXPERTS"]
