"""Batch normalisations into the convolutions before them, so that these can be quantised together with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ir import ABSENT
from autotune.quantization.network import Network, attribute


def fold_norms(network: Network) -> None:
    """Fold BatchNormalization(Conv(x, w, b)) to Conv(x, w', b') where all parameters are constants and nothing else
    reads the convolution's result."""
    readers, kept = network.readers(), list[Any]()
    folded: set[int] = set()
    for node in network.nodes:
        norm = network.only_reader(readers, node.output[0]) if node.op_type == "Conv" else None
        if norm is not None and _fold(network, node, norm):
            folded.add(id(norm))
    for node in network.nodes:
        if id(node) not in folded:
            kept.append(node)
    network.nodes = kept


def _fold(network: Network, conv: Any, norm: Any) -> bool:
    if norm.op_type != "BatchNormalization" or [v for v in norm.output[1:] if v != ABSENT]:
        return False
    if attribute(norm, "training_mode", 0) or norm.input[0] != conv.output[0]:
        return False
    parameters = [network.arrays.get(name) for name in norm.input[1:5]]
    weights = network.arrays.get(conv.input[1])
    bias = (
        network.arrays.get(conv.input[2]) if len(conv.input) > 2 and conv.input[2] != ABSENT else np.zeros(())
    )
    if weights is None or bias is None or any(p is None for p in parameters):
        return False
    gain, offset, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    factor = gain / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    along = factor.reshape(-1, *(1,) * (weights.ndim - 1))
    conv.input[1] = network.constant(f"{conv.input[1]}.normed", (weights * along).astype(np.float32))
    shifted = ((bias - mean) * factor + offset).astype(np.float32)
    del conv.input[2:]
    conv.input.append(network.constant(f"{norm.output[0]}.bias", shifted))
    conv.output[0] = norm.output[0]
    return True


__all__ = ["fold_norms"]
