"""Writing QuantizeLinear and DequantizeLinear into a model (QDQ), or casts to bfloat16 and back: every runtime of ONNX
reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autotune.graph.ir import ABSENT, Array
from autotune.quantization.choice import KEEPING, QuantizationChoice, weight_axis
from autotune.quantization.network import Network
from autotune.quantization.ranges import QuantizedRange

_MOST = 127
_MOST_BIAS = 2**30


def write(
    network: Network,
    choice: QuantizationChoice,
    found: Mapping[str, QuantizedRange],
    short: QuantizationChoice,
) -> None:
    """Quantise the chosen values and products in place, and round those of ``short`` to bfloat16.

    Activations are uint8 with a zero point, weights int8 with a scale an output channel, biases int32 in steps of the
    products. A value of both choices is in eight bits.
    """
    steps = steps_of(choice, found)
    weights = dict[tuple[str, int], tuple[str, Array]]()
    before: dict[int, list[Any]] = {}
    for node in choice.products:
        before[id(node)] = _product(network, node, float(steps[node.input[0]][0]), weights)
    _round_weights(network, short.products)
    made = {value: short_activation(network, value) for value in _rounded(network, short)}
    made |= {value: activation(network, value, *each) for value, each in steps.items()}
    splice(network, made, before)


def _rounded(network: Network, short: QuantizationChoice) -> list[str]:
    """Return the values that are to be rounded: not those that have numbers of a rounded one."""
    makers = network.producers()
    return [
        value
        for value in short.values
        if value not in makers
        or makers[value].op_type not in KEEPING
        or makers[value].input[0] not in short.values
    ]


def _round_weights(network: Network, products: Iterable[Any]) -> None:
    """Round the weights of products to numbers of bfloat16."""
    done = dict[str, str]()
    for node in products:
        weights = node.input[1]
        if weights not in done:
            rounded = network.arrays[weights].astype("bfloat16").astype(np.float32)
            done[weights] = network.constant(f"{weights}.bfloat16", rounded)
        node.input[1] = done[weights]


def steps_of(
    choice: QuantizationChoice, found: Mapping[str, QuantizedRange]
) -> dict[str, tuple[np.float32, np.uint8]]:
    """Return scale and zero point of each value; those of one range have the same."""
    shared = dict[str, QuantizedRange]()
    for value, root in choice.values.items():
        shared[root] = shared[root].hull(found[value]) if root in shared else found[value]
    return {value: shared[root].steps for value, root in choice.values.items()}


def splice(
    network: Network, made: Mapping[str, tuple[str, list[Any]]], before: Mapping[int, list[Any]]
) -> None:
    """Let readers of values read others, whose nodes follow those that make the values; and put nodes ``before`` those
    of the given identities."""
    nodes = [node for value in network.inputs if value in made for node in made[value][1]]
    for node in network.nodes:
        for i, value in enumerate(node.input):
            if value in made:
                node.input[i] = made[value][0]
        nodes += before.get(id(node), [])
        nodes.append(node)
        for value in node.output:
            nodes += made[value][1] if value in made else []
    network.nodes = nodes


def activation(network: Network, value: str, scale: np.float32, zero: np.uint8) -> tuple[str, list[Any]]:
    """Return the name of a value after QuantizeLinear and DequantizeLinear, and these nodes."""
    from onnx import helper

    q, real = network.fresh(f"{value}.q"), network.fresh(f"{value}.dq")
    parameters = [
        network.constant(f"{value}.scale", np.asarray(scale)),
        network.constant(f"{value}.zero", np.asarray(zero)),
    ]
    return real, [
        helper.make_node("QuantizeLinear", [value, *parameters], [q], name=q),
        helper.make_node("DequantizeLinear", [q, *parameters], [real], name=real),
    ]


def short_activation(network: Network, value: str) -> tuple[str, list[Any]]:
    """Return the name of a value after Cast to bfloat16 and back, and these nodes."""
    from onnx import TensorProto, helper

    short, real = network.fresh(f"{value}.bfloat16"), network.fresh(f"{value}.float32")
    return real, [
        helper.make_node("Cast", [value], [short], name=short, to=TensorProto.BFLOAT16),
        helper.make_node("Cast", [short], [real], name=real, to=TensorProto.FLOAT),
    ]


def _product(
    network: Network, node: Any, scale: float, done: dict[tuple[str, int], tuple[str, Array]]
) -> list[Any]:
    """Quantise weights and bias of a product; the new nodes, which come before it."""
    from onnx import helper

    axis = weight_axis(network, node)
    assert axis is not None, "chosen as a product"
    made, key = [], (str(node.input[1]), axis)
    if key not in done:
        q, scales = quantized_weights(network.arrays[key[0]], axis)
        real = network.fresh(f"{key[0]}.dq")
        zeros = np.zeros(scales.shape, np.int8)
        operands = [network.constant(f"{key[0]}.q", q)]
        operands += [network.constant(f"{key[0]}.scale", scales), network.constant(f"{key[0]}.zero", zeros)]
        made.append(helper.make_node("DequantizeLinear", operands, [real], name=real, axis=axis))
        done[key] = real, scales
    node.input[1], scales = done[key]
    bias = network.arrays.get(node.input[2]) if len(node.input) > 2 and node.input[2] != ABSENT else None
    if bias is None or bias.size != scales.size:
        return made
    unit = (np.float32(scale) * scales).astype(np.float32)
    whole = np.rint(bias.reshape(-1).astype(np.float64) / unit)
    if np.abs(whole).max(initial=0) >= _MOST_BIAS:
        return made  # as it is, in float32
    name, real = node.input[2], network.fresh(f"{node.output[0]}.bias.dq")
    operands = [
        network.constant(f"{name}.q", whole.astype(np.int32)),
        network.constant(f"{name}.scale", unit),
    ]
    made.append(helper.make_node("DequantizeLinear", operands, [real], name=real, axis=0))
    node.input[2] = real
    return made


def quantized_weights(weights: Array, axis: int) -> tuple[Array, Array]:
    """Return weights as int8, and the scale of each index of ``axis``: a 127th of the greatest magnitude there.

    >>> quantized_weights(np.float32([[1.27, -0.5], [0.0, 0.0]]), 0)[0].tolist()
    [[127, -50], [0, 0]]
    """
    others = tuple(i for i in range(weights.ndim) if i != axis)
    most = np.abs(weights).max(axis=others, initial=0)
    scales = np.where(most > 0, np.maximum(most / _MOST, 1e-30), 1).astype(np.float32)
    along = scales.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    return np.clip(np.rint(weights / along), -_MOST, _MOST).astype(np.int8), scales


def rounded_weights(weights: Array, axis: int) -> Array:
    """Return the real numbers of quantised weights, in float64."""
    q, scales = quantized_weights(weights, axis)
    rounded: Array = q * np.expand_dims(
        scales.astype(np.float64), tuple(i for i in range(weights.ndim) if i != axis)
    )
    return rounded


def stored_weights(weights: Array, axis: int, dtype: str) -> Array:
    """Return the real numbers of weights that are stored in a shorter type (docs/weights.md)."""
    if dtype == "int8":
        return rounded_weights(weights, axis).astype(np.float32)
    if dtype == "bfloat16":
        return weights.astype(dtype).astype(np.float32)
    others = tuple(i for i in range(weights.ndim) if i != axis)
    largest = np.abs(weights).max(axis=others, keepdims=True, initial=0)
    scales = np.exp2(np.floor(np.log2(np.maximum(largest, np.finfo(np.float32).tiny))))
    stored: Array = (weights / scales).astype(dtype).astype(np.float32) * scales.astype(np.float32)
    return stored


__all__ = [
    "activation",
    "quantized_weights",
    "rounded_weights",
    "short_activation",
    "splice",
    "steps_of",
    "stored_weights",
    "write",
]
