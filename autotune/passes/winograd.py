"""Convolutions by Winograd's algorithm.

Conv becomes a transform of its input, a batched MatMul with weights transformed at compile time, and a
transform of the result, which takes in what follows. F(m, 3) along both axes of an image needs (m + 2)^2 / 9m^2
of the multiplications: four ninths, a quarter, and a fifth. The larger m, the more data is moved by the
transforms, the larger are the weights, and the less exact is the result. These are three dispatches, or one that goes
through the image by blocks: what lies between the steps then stays in the caches. Dilated axes are filtered phase by
phase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.graph.ops.minimal_filtering import Filtering, weight_matrix
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.fuse import FusionOptions
from autotune.passes.partition import Partition, PartitionOptions, partition
from autotune.passes.rewriter import Rewriter, rewrite

_ERRORS: Mapping[tuple[int, int, int], float] = {
    (2, 3, 2): 3e-6,
    (4, 3, 2): 6e-5,
    (6, 3, 2): 8e-5,
    (2, 5, 2): 4e-5,
    (4, 5, 2): 6e-5,
    (2, 3, 1): 4e-6,
    (4, 3, 1): 2.5e-5,
    (6, 3, 1): 2.5e-5,
    (2, 5, 1): 1.2e-5,
    (4, 5, 1): 1.8e-5,
}
"""By tile, taps and axes."""
_AMPLIFICATION: Mapping[tuple[int, int, int], float] = {(2, 3, 2): 1.7, (4, 3, 2): 30.0, (6, 3, 2): 40.0}


@dataclass(frozen=True)
class Winograd(Algorithm):
    """Convert channels-last convolutions with constant weights and stride 1, by tiles of ``tile`` along ``axes``.

    These are all spatial axes, with windows of ``taps``; others before them have windows of 1. The steps are ``fused``
    into one dispatch, or are dispatches of their own.
    """

    name: ClassVar[str] = "winograd"
    tile: int = 4
    fused: bool = False
    taps: int = 3
    axes: int = 2

    @property
    def label(self) -> str:
        """``winograd F(4x4)``, ``winograd F(4x4) fused``, of one axis ``winograd F(4)``, of 5 taps ``F(4, 5)``."""
        tile, taps = ("x".join([str(number)] * self.axes) for number in (self.tile, self.taps))
        return f"winograd F({tile}{'' if self.taps == 3 else f', {taps}'}){' fused' if self.fused else ''}"

    @property
    def speculative(self) -> bool:
        """Blocks trade traffic for shorter products, which only a comparison has told so far."""
        return self.fused

    @property
    def error(self) -> float:
        """About four times what was measured for 16 to 512 channels; see docs/kernels/convolution.md."""
        return _ERRORS[self._figures]

    @property
    def growth(self) -> float:
        """By the transform of the input, along all axes."""
        matrix = np.abs(np.array(Filtering(self.tile, self.taps).input_matrix))
        return float(matrix.sum(axis=1).max() ** self.axes)

    @property
    def amplification(self) -> float:
        """Of transformed weights; measured for 16 to 512 channels."""
        return _AMPLIFICATION[self._figures]

    @property
    def _figures(self) -> tuple[int, int, int]:
        return self.tile, self.taps, self.axes

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def divide(self, graph: Graph) -> Partition:
        """A dispatch a step, or one for all."""
        return partition(graph, PartitionOptions(FusionOptions(chained=0)) if self.fused else None)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if not self._is_eligible(rewriter, node):
            return False
        emit = self._emit_fused if self.fused else self._emit
        self._become(rewriter, node, emit(rewriter, node))
        return True

    def _is_eligible(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != "Conv" or not is_channels_last(node) or integer(node, "group") != 1:
            return False
        weight = rewriter.constant_of(rewriter.current(node.inputs[1]))
        if weight is None or len(node.inputs) > 2 or ABSENT in node.inputs:
            return False
        window, rank = weight.shape[:-2], weight.ndim - 2
        outer = rank - self.axes
        if window != (*(1,) * outer, *(self.taps,) * self.axes) or str(weight.dtype) != "float32":
            return False
        pads, dilations = ints(node, "pads"), ints(node, "dilations")
        if set(ints(node, "strides")) != {1} or any((*pads[:outer], *pads[rank : rank + outer])):
            return False
        return not self.fused or (rank == 2 and set(dilations) == {1})  # the space of blocks has images only

    def _emit(self, rewriter: Rewriter, node: Node) -> str:
        """The products of all tiles of a position are one matrix product."""
        v, u = self._operands(rewriter, node)
        window, tiles, inner = self._parts(rewriter.type_of(v).shape)
        flat = _reshape(rewriter, v, math.prod(window), math.prod(tiles), inner)
        products = rewriter.emit("MatMul", [flat, u], name=f"{node.outputs[0]}.products")
        outer = rewriter.type_of(products).shape[-1]
        return _reshape(rewriter, products, *window, *tiles, outer)

    def _emit_fused(self, rewriter: Rewriter, node: Node) -> str:
        """The products of a row of tiles are matrix products, so that blocks may have some of the rows."""
        v, u = self._operands(rewriter, node)
        window, _, inner = self._parts(rewriter.type_of(v).shape)
        u = _reshape(rewriter, u, *window, 1, 1, inner, rewriter.type_of(u).shape[-1])
        return rewriter.emit("MatMul", [v, u], name=f"{node.outputs[0]}.products")

    def _operands(self, rewriter: Rewriter, node: Node) -> tuple[str, str]:
        """V [t, t, n, th, tw, c] and U [t*t, c, oc]; along one axis both have t once."""
        x, w = (rewriter.current(v) for v in node.inputs)
        attrs = {**self._tiles(node), "pads": ints(node, "pads"), "axes": self.axes}
        u = self._weights(rewriter, w)
        return rewriter.emit("WinogradInput", [x], attrs, name=f"{node.outputs[0]}.windows"), u

    def _become(self, rewriter: Rewriter, node: Node, products: str) -> None:
        (output,) = node.outputs
        size = rewriter.graph.type_of(output).shape[-1 - self.axes : -1]
        rewriter.become(output, "WinogradOutput", [products], {**self._tiles(node), "size": size})

    def _tiles(self, node: Node) -> dict[str, Attr]:
        dilations = ints(node, "dilations")[-self.axes :]
        return {"tile": self.tile, "taps": self.taps, "dilations": dilations}

    def _parts(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """The window, images and tiles, and channels of V."""
        return shape[: self.axes], shape[self.axes : -1], shape[-1]

    def _weights(self, rewriter: Rewriter, weights: str) -> str:
        """U [t*t, c, oc] of weights [3, 3, c, oc], worked out in float64."""
        inner, outer = rewriter.type_of(weights).shape[-2:]
        matrix = weight_matrix(Filtering(self.tile, self.taps), self.axes)
        g = rewriter.constant("winograd.g", matrix)
        wide = rewriter.emit("Cast", [weights], {"to": "float64"}, name=f"{weights}.wide")
        flat = _reshape(rewriter, wide, matrix.shape[1], inner * outer)
        product = rewriter.emit("MatMul", [g, flat], name=f"{weights}.winograd")
        u = _reshape(rewriter, product, matrix.shape[0], inner, outer)
        return rewriter.emit("Cast", [u], {"to": "float32"}, name=f"{weights}.transformed")


def _reshape(rewriter: Rewriter, value: str, *shape: int) -> str:
    return rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.reshaped")


__all__ = ["Winograd"]
