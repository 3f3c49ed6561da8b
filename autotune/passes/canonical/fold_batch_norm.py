"""Batch normalisation with constant statistics is a scale and a shift: Mul and Add.

``fold_affine`` then moves the scale into the weights of a convolution before it and merges the
shift with its bias, so that no trace of the normalisation is left at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.passes.attributes import is_channels_last, number
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class FoldBatchNorm(GraphPass):
    """BatchNormalization(x, ...) -> Add(Mul(x, scale), shift) with per-channel constants."""

    name: ClassVar[str] = "fold_batch_norm"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _fold)


def _fold(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "BatchNormalization":
        return False
    x, *parameters = (rewriter.current(v) for v in node.inputs)
    arrays = [a for a in map(rewriter.constant_of, parameters) if a is not None]
    if len(arrays) != len(parameters):
        return False
    scale, shift = _affine(arrays, number(node, "epsilon"))
    dtype, rank = rewriter.type_of(x).dtype, rewriter.type_of(x).rank
    trailing = 0 if is_channels_last(node) else rank - 2
    shape = (-1, *(1,) * trailing)
    (output,) = node.outputs
    scale_name = rewriter.constant(f"{output}.scale", scale.astype(dtype).reshape(shape))
    shift_name = rewriter.constant(f"{output}.shift", shift.astype(dtype).reshape(shape))
    scaled = rewriter.emit("Mul", (x, scale_name), name=f"{output}.scaled")
    rewriter.become(output, "Add", (scaled, shift_name))
    return True


def _affine(parameters: Sequence[Array], epsilon: float) -> tuple[Array, Array]:
    """Return gain * (x - mean) / sqrt(variance + epsilon) + bias as scale and shift, in float64."""
    gain, bias, mean, variance = (array.astype(np.float64) for array in parameters)
    scale = gain / np.sqrt(variance + epsilon)
    return scale, bias - mean * scale


__all__ = ["FoldBatchNorm"]
