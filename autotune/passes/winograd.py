"""3x3 convolutions by Winograd's algorithm.

Conv becomes a transform of its input, a batched MatMul with weights transformed at compile time, and a
transform of the result, which takes in what follows. F(m, 3) needs (m + 2)^2 / 9m^2
of the multiplications: four ninths, a quarter, and a fifth. The larger m, the more data is moved by the
transforms, the larger are the weights, and the less exact is the result. These are three dispatches, or one that goes
through the image by blocks: what lies between the steps then stays in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.graph.ops import winograd
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.fuse import FusionOptions
from autotune.passes.partition import Partition, PartitionOptions, partition
from autotune.passes.rewriter import Rewriter, rewrite

_ERRORS: Mapping[int, float] = {2: 3e-6, 4: 6e-5, 6: 8e-5}
_AMPLIFICATION: Mapping[int, float] = {2: 1.7, 4: 30.0, 6: 40.0}


@dataclass(frozen=True)
class Winograd(Algorithm):
    """Convert channels-last 3x3 convolutions of stride 1 with constant weights, by tiles of ``tile``.

    Its steps are ``fused`` into one dispatch, or are dispatches of their own.
    """

    name: ClassVar[str] = "winograd"
    tile: int = 4
    fused: bool = False

    @property
    def label(self) -> str:
        """``winograd F(4x4)``, ``winograd F(4x4) fused`` and so on."""
        return f"winograd F({self.tile}x{self.tile}){' fused' if self.fused else ''}"

    @property
    def speculative(self) -> bool:
        """Blocks trade traffic for shorter products, which only a comparison has told so far."""
        return self.fused

    @property
    def error(self) -> float:
        """About four times what was measured for 16 to 512 channels; see docs/kernels/convolution.md."""
        return _ERRORS[self.tile]

    @property
    def growth(self) -> float:
        """By the transform of the input, along both axes."""
        return float(np.abs(winograd.input_matrix(self.tile)).sum(axis=1).max() ** 2)

    @property
    def amplification(self) -> float:
        """Of transformed weights; measured for 16 to 512 channels."""
        return _AMPLIFICATION[self.tile]

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def divide(self, graph: Graph) -> Partition:
        """A dispatch a step, or one for all."""
        return partition(graph, PartitionOptions(FusionOptions(chained=0)) if self.fused else None)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if not _is_eligible(rewriter, node):
            return False
        emit = _emit_fused if self.fused else _emit
        emit(rewriter, node, self.tile)
        return True


def _is_eligible(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Conv" or not is_channels_last(node) or integer(node, "group") != 1:
        return False
    weight = rewriter.constant_of(rewriter.current(node.inputs[1]))
    if weight is None or weight.shape[:2] != (3, 3) or weight.ndim != 4 or len(node.inputs) > 2:
        return False
    steps = ints(node, "strides") + ints(node, "dilations")
    return str(weight.dtype) == "float32" and set(steps) <= {1} and ABSENT not in node.inputs


def _emit(rewriter: Rewriter, node: Node, tile: int) -> None:
    """The products of all tiles of a position are one matrix product."""
    v, u = _operands(rewriter, node, tile)
    window, _, *tiles, inner = rewriter.type_of(v).shape
    flat = _reshape(rewriter, v, window * window, math.prod(tiles), inner)
    products = rewriter.emit("MatMul", [flat, u], name=f"{node.outputs[0]}.products")
    outer = rewriter.type_of(products).shape[-1]
    _become(rewriter, node, _reshape(rewriter, products, window, window, *tiles, outer), tile)


def _emit_fused(rewriter: Rewriter, node: Node, tile: int) -> None:
    """The products of a row of tiles are matrix products, so that blocks may have some of the rows."""
    v, u = _operands(rewriter, node, tile)
    _, inner, outer = rewriter.type_of(u).shape
    u = _reshape(rewriter, u, tile + 2, tile + 2, 1, 1, inner, outer)
    m = rewriter.emit("MatMul", [v, u], name=f"{node.outputs[0]}.products")
    _become(rewriter, node, m, tile)


def _operands(rewriter: Rewriter, node: Node, tile: int) -> tuple[str, str]:
    """V [t, t, n, th, tw, c] and U [t*t, c, oc]."""
    x, w = (rewriter.current(v) for v in node.inputs)
    attrs: dict[str, Attr] = {"tile": tile, "pads": ints(node, "pads")}
    u = _weights(rewriter, w, tile)
    return rewriter.emit("WinogradInput", [x], attrs, name=f"{node.outputs[0]}.windows"), u


def _become(rewriter: Rewriter, node: Node, products: str, tile: int) -> None:
    (output,) = node.outputs
    attrs: dict[str, Attr] = {"tile": tile, "size": rewriter.graph.type_of(output).shape[1:3]}
    rewriter.become(output, "WinogradOutput", [products], attrs)


def _weights(rewriter: Rewriter, weights: str, tile: int) -> str:
    """U [t*t, c, oc] of weights [3, 3, c, oc], worked out in float64."""
    inner, outer = rewriter.type_of(weights).shape[2:]
    g = rewriter.constant("winograd.g", winograd.weight_matrix(tile))
    wide = rewriter.emit("Cast", [weights], {"to": "float64"}, name=f"{weights}.wide")
    flat = _reshape(rewriter, wide, 9, inner * outer)
    product = rewriter.emit("MatMul", [g, flat], name=f"{weights}.winograd")
    u = _reshape(rewriter, product, (tile + 2) ** 2, inner, outer)
    return rewriter.emit("Cast", [u], {"to": "float32"}, name=f"{weights}.transformed")


def _reshape(rewriter: Rewriter, value: str, *shape: int) -> str:
    return rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.reshaped")


__all__ = ["Winograd"]
