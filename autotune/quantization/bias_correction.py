"""Bias correction: by how much rounded weights move the mean of a product's results is taken off its bias.

Rounding W to Q moves the mean of each output channel by (Q - W) E[x], which does not average out over a layer's inputs
as errors of single activations do. E[x] is the mean of each input channel over the samples. Nagel, van Baalen,
Blankevoort and Welling (2019), Data-free quantization through weight equalization and bias correction, section 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.graph.ir import ABSENT, Array
from autotune.quantization.choice import weight_axis
from autotune.quantization.network import Network
from autotune.quantization.write import rounded_weights

Channels = tuple[str, int]
"""A value and the axis of its channels."""


def channels_of(node: Any) -> Channels:
    """Return the operand of a product, and the axis of the product's input channels in it."""
    return str(node.input[0]), 1 if node.op_type == "Conv" else -1


def correct(network: Network, products: Sequence[Any], means: Mapping[Channels, Array]) -> None:
    """Change the biases of products whose weights are about to be quantised; ``means`` are those of input channels.

    A MatMul's bias is the constant that is added to it. Products whose bias is no constant, one an output channel,
    stay as they are; Conv and Gemm without a bias get one.
    """
    readers = network.readers()
    for node in products:
        axis = weight_axis(network, node)
        assert axis is not None, "chosen as a product"
        place = bias_place(network, readers, node)
        if place is not None:
            moved = moved_means(network.arrays[node.input[1]], axis, means[channels_of(node)])
            _corrected(network, *place, moved)


def bias_place(network: Network, readers: dict[str, list[Any]], product: Any) -> tuple[Any, int] | None:
    """Return the node of which an input is a product's bias, and the number of that input."""
    if product.op_type != "MatMul":
        return product, 2
    added = network.only_reader(readers, product.output[0])
    if added is None or added.op_type != "Add":
        return None
    return added, 1 if added.input[0] == product.output[0] else 0


def moved_means(weights: Array, axis: int, mean: Array) -> Array:
    """Return the change of the mean of each output channel, along ``axis`` of the weights, where weights are rounded.

    ``mean`` has an element an input channel; there are more of these than in the weights where they are in groups.

    >>> moved_means(np.float32([[1.27, -0.504]]), 0, np.float32([5, 100])).round(3).tolist()
    [0.4]
    """
    apart = np.moveaxis(rounded_weights(weights, axis) - weights, axis, 0)
    error = apart.reshape(*apart.shape[:2], -1).sum(-1)
    outputs, inputs = error.shape
    groups = mean.size // inputs
    each = np.repeat(mean.reshape(groups, inputs), outputs // groups, axis=0)
    found: Array = (error * each).sum(1)
    return found


def _corrected(network: Network, node: Any, index: int, moved: Array) -> None:
    """Take the moved means off the constant that is an input of a node."""
    name = node.input[index] if index < len(node.input) else ABSENT
    before = network.arrays.get(name) if name != ABSENT else np.zeros(moved.shape, np.float32)
    if before is None or before.dtype != np.float32 or before.size != moved.size:
        return
    if moved.size > 1 and before.shape[-1] != moved.size:
        return
    after = (before - moved.reshape(before.shape)).astype(np.float32)
    constant = network.constant(f"{node.output[0]}.bias", after)
    if index < len(node.input):
        node.input[index] = constant
    else:
        node.input.append(constant)


__all__ = ["Channels", "bias_place", "channels_of", "correct", "moved_means"]
