"""The quantised part of a model: products with constant weights, and the operations between them.

Values that a quantised operator reads become eight bits. An addition, a join or an average is quantised where all it
reads comes from quantised operators, so that between them nothing is float32; the bounds of Relu and Clip belong to the
operator before them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.ir import ABSENT
from autotune.quantization.network import Network, attribute

BOUNDS = ("Relu", "Clip")
KEEPING = (
    "MaxPool",
    "GlobalMaxPool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Dropout",
)
"""Results have the numbers of the first operand, and so its range."""
JOINING = ("Add", "Sum", "AveragePool", "GlobalAveragePool", "Concat")


@dataclass(frozen=True)
class QuantizationChoice:
    """Nodes to be quantised; the values that become eight bits, each with the one of which it has the range."""

    products: tuple[Any, ...]
    values: dict[str, str]


def weight_axis(network: Network, node: Any) -> int | None:
    """Return the axis of a product's output channels in its constant weights; None for what is no such product.

    Weights are input 1 of Conv, MatMul and Gemm.
    """
    weights = network.arrays.get(node.input[1]) if len(node.input) > 1 else None
    if weights is None or weights.dtype != np.float32 or node.input[0] in network.arrays:
        return None
    if node.op_type == "Conv":
        return 0
    if node.op_type == "MatMul" and weights.ndim == 2:
        return 1
    if node.op_type != "Gemm" or attribute(node, "transA", 0):
        return None
    if attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1:
        return None
    return 0 if attribute(node, "transB", 0) else 1


def choose(
    network: Network, leave_out: tuple[str, ...] = (), floats: Collection[str] = ()
) -> QuantizationChoice:
    """Choose the nodes to quantise; those named in ``leave_out``, or whose operator is, stay as they are, and so do
    those whose first output is one of ``floats``."""
    made: set[str] = set()  # by quantised operators, bounds after them included
    products, between = [], []
    for node in network.nodes:
        read = [value for value in node.input if value not in network.arrays and value != ABSENT]
        if node.name in leave_out or node.op_type in leave_out or node.output[0] in floats:
            continue
        if weight_axis(network, node) is not None:
            products.append(node)
        elif (node.op_type in KEEPING and node.input[0] in made) or (
            node.op_type in JOINING and all(value in made for value in read)
        ):
            between.append(node)
        elif not (node.op_type in BOUNDS and node.input[0] in made):
            continue
        made.add(node.output[0])
    values = dict[str, str]()
    for node in (*products, *reversed(between)):
        if node.op_type in KEEPING and node.output[0] not in values:
            continue  # nothing quantised reads it
        count = len(node.input) if node.op_type in JOINING else 1
        values |= {v: v for v in node.input[:count] if v not in network.arrays and v != ABSENT}
    return QuantizationChoice(tuple(products), _shared(between, values))


def _shared(between: list[Any], values: dict[str, str]) -> dict[str, str]:
    """Return one value of those that have one range stands for all of them."""

    def root(value: str) -> str:
        while values[value] != value:
            value = values[value]
        return value

    for node in between:
        alike = node.input[:1] if node.op_type in KEEPING else node.input if node.op_type == "Concat" else ()
        for value in alike:
            if value in values and node.output[0] in values:
                values[root(value)] = root(node.output[0])
    return {value: root(value) for value in values}


__all__ = ["QuantizationChoice", "choose", "weight_axis"]
