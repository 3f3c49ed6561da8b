"""Convolutions by Winograd's algorithm.

Conv becomes a transform of its input, a batched MatMul with weights transformed at compile time, and a
transform of the result, which takes in what follows. F(m, 3) along both axes of an image needs (m + 2)^2 / 9m^2
of the multiplications: four ninths, a quarter, and a fifth. The larger m, the more data is moved by the
transforms, the larger are the weights, and the less exact is the result. These are three dispatches, or one that goes
through the image by blocks: what lies between the steps then stays in the caches. Dilated axes are filtered phase by
phase. Where there are axes before those of the image (the depth of a volume), products sum over their window, too. With
a stride the phases of the image are such a window: each meets every so many taps.
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
from autotune.passes.fusion.fuse import FusionOptions
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
    (5, 2, 2): 1.3e-4,
    (7, 2, 2): 2e-4,
    (5, 4, 2): 1.3e-4,
    (2, 5, 1): 1.2e-5,
    (4, 5, 1): 1.8e-5,
}
"""By tile, taps of a phase, and axes."""
_AMPLIFICATION: Mapping[tuple[int, int, int], float] = {(2, 3, 2): 1.7, (4, 3, 2): 30.0, (6, 3, 2): 40.0}


@dataclass(frozen=True)
class Winograd(Algorithm):
    """Convert channels-last convolutions with constant weights, by tiles of ``tile`` along the last ``axes``.

    These have windows of ``taps`` and ``stride``. Before two of them (an image) others may have any window, before one
    only 1. The steps are ``fused`` into one dispatch, or are dispatches of their own.
    """

    name: ClassVar[str] = "winograd"
    tile: int = 4
    fused: bool = False
    taps: int = 3
    axes: int = 2
    stride: int = 1

    @property
    def label(self) -> str:
        """``winograd F(4x4)``, ``winograd F(4x4) fused``, of one axis ``winograd F(4)``, of 5 taps ``F(4, 5)``."""
        tile, taps = ("x".join([str(number)] * self.axes) for number in (self.tile, self.taps))
        name = f"winograd F({tile}{'' if self.taps == 3 else f', {taps}'}){' fused' if self.fused else ''}"
        return name if self.stride == 1 else f"{name}, stride {self.stride}"

    @property
    def _filtering(self) -> Filtering:
        """That of a tile: with a stride each phase of the image meets every so many taps."""
        return Filtering(self.tile, -(-self.taps // self.stride))

    @property
    def speculative(self) -> bool:
        """Blocks trade traffic for shorter products, which the estimates of other tiles than 4x4 do not tell."""
        return self.fused and self.tile != 4

    @property
    def error(self) -> float:
        """About four times what was measured for 16 to 512 channels; see docs/kernels/convolution.md."""
        return _ERRORS[self._figures]

    @property
    def growth(self) -> float:
        """By the transform of the input, along all axes."""
        matrix = np.abs(np.array(self._filtering.input_matrix))
        return float(matrix.sum(axis=1).max() ** self.axes)

    @property
    def amplification(self) -> float:
        """Of transformed weights; measured for 16 to 512 channels."""
        return _AMPLIFICATION[self._figures]

    @property
    def _figures(self) -> tuple[int, int, int]:
        return self.tile, self._filtering.taps, self.axes

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def divide(self, graph: Graph) -> Partition:
        """Return a dispatch a step, or one for all."""
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
        if outer < 0 or window[outer:] != (self.taps,) * self.axes or str(weight.dtype) != "float32":
            return False
        pads, strides, dilations = (ints(node, key) for key in ("pads", "strides", "dilations"))
        if set(strides[outer:]) != {self.stride} or (self.stride > 1 and set(dilations[outer:]) != {1}):
            return False
        if self.axes == 1 and (
            not _is_single(node, outer) or any((*pads[:outer], *pads[rank : rank + outer]))
        ):
            return False  # windows of both axes of an image are for tiles of both
        return not self.fused or (rank == 2 and set(dilations) == {1})  # the space of blocks has images only

    def _emit(self, rewriter: Rewriter, node: Node) -> str:
        """Return the products of all tiles of a position are one matrix product."""
        v, u = self._operands(rewriter, node)
        name = f"{node.outputs[0]}.products"
        window, images, tiles, inner = self._parts(rewriter.type_of(v).shape)
        if rewriter.type_of(u).rank == 3:
            flat = rewriter.reshape(v, math.prod(window), math.prod((*images, *tiles)), inner)
            products = rewriter.emit("MatMul", [flat, u], name=name)
        else:
            outer = len(images) - 1
            attrs = {key: ints(node, key)[:outer] for key in ("strides", "dilations")}
            if self.stride > 1:  # the phases of a tile are a window of tiles
                images, tiles = (*images, *tiles), ()
                more = {"strides": (self.stride,) * self.axes, "dilations": (1,) * self.axes}
                attrs = {key: attrs[key] + more[key] for key in attrs}
            flat = rewriter.reshape(v, math.prod(window), *images, math.prod(tiles), inner)
            products = rewriter.emit("WinogradProducts", [flat, u], attrs, name=name)
            images = rewriter.type_of(products).shape[1:-2]
        return rewriter.reshape(products, *window, *images, *tiles, rewriter.type_of(products).shape[-1])

    def _emit_fused(self, rewriter: Rewriter, node: Node) -> str:
        """Return the products of a row of tiles are matrix products, so that blocks may have some of the rows."""
        v, u = self._operands(rewriter, node)
        window, *_, inner = self._parts(rewriter.type_of(v).shape)
        u = rewriter.reshape(u, *window, 1, 1, inner, rewriter.type_of(u).shape[-1])
        return rewriter.emit("MatMul", [v, u], name=f"{node.outputs[0]}.products")

    def _operands(self, rewriter: Rewriter, node: Node) -> tuple[str, str]:
        """Return V [t, t, n, outer..., th, tw, c] and U [t*t, c, oc]; along one axis both have t once."""
        x, w = (rewriter.current(v) for v in node.inputs)
        attrs = {**self._tiles(node), "pads": ints(node, "pads"), "axes": self.axes}
        if self.stride > 1:
            attrs["dilations"] = (self.stride,) * self.axes
        u = self._weights(rewriter, w, node)
        return rewriter.emit("WinogradInput", [x], attrs, name=f"{node.outputs[0]}.windows"), u

    def _become(self, rewriter: Rewriter, node: Node, products: str) -> None:
        (output,) = node.outputs
        size = rewriter.graph.type_of(output).shape[-1 - self.axes : -1]
        rewriter.become(output, "WinogradOutput", [products], {**self._tiles(node), "size": size})

    def _tiles(self, node: Node) -> dict[str, Attr]:
        dilations = ints(node, "dilations")[-self.axes :]
        return {"tile": self.tile, "taps": self._filtering.taps, "dilations": dilations}

    def _parts(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
        """Return the window, images with their outer axes, tiles, and channels of V."""
        return shape[: self.axes], shape[self.axes : -1 - self.axes], shape[-1 - self.axes : -1], shape[-1]

    def _weights(self, rewriter: Rewriter, weights: str, node: Node) -> str:
        """Return U [t*t, c, oc] of weights [3, 3, c, oc], worked out in float64; [t*t, outer window...,
        c, oc] of others."""
        *kernel, inner, outer = rewriter.type_of(weights).shape
        around = kernel[: -self.axes]
        matrix = weight_matrix(self._filtering, self.axes)
        g = rewriter.constant("winograd.g", matrix)
        u = rewriter.emit("Cast", [weights], {"to": "float64"}, name=f"{weights}.wide")
        if self.stride > 1:
            u = self._phases(rewriter, u)
            around = [*around, *(self.stride,) * self.axes]
        elif _is_single(node, len(around)):
            around = []
        u = rewriter.reshape(u, *around, matrix.shape[1], inner * outer)
        u = rewriter.emit("MatMul", [g, u], name=f"{weights}.winograd")
        if around:
            last = len(around)
            u = rewriter.emit(
                "Transpose", [u], {"perm": (last, *range(last), last + 1)}, name=f"{weights}.by_position"
            )
        u = rewriter.reshape(u, matrix.shape[0], *around, inner, outer)
        return rewriter.emit("Cast", [u], {"to": "float32"}, name=f"{weights}.transformed")

    def _phases(self, rewriter: Rewriter, weights: str) -> str:
        """Return weights [outer window..., r, r, c, oc] as [outer window..., s, s, r/s, r/s, c, oc] with
        zeros after them."""
        *kernel, inner, outer = rewriter.type_of(weights).shape
        rank, taps, stride, axes = len(kernel), self._filtering.taps, self.stride, self.axes
        missing = (0,) * (rank - axes) + (stride * taps - self.taps,) * axes
        whole = rewriter.emit(
            "Pad", [weights], {"pads": (*(0,) * (rank + 2), *missing, 0, 0)}, name=f"{weights}.whole"
        )
        around, first = kernel[:-axes], rank - axes
        apart = rewriter.reshape(whole, *around, *(taps, stride) * axes, inner, outer)
        phases = [first + 2 * axis + 1 for axis in range(axes)]
        places = [first + 2 * axis for axis in range(axes)]
        perm = (*range(first), *phases, *places, rank + axes, rank + axes + 1)
        return rewriter.emit("Transpose", [apart], {"perm": perm}, name=f"{weights}.phases")


def _is_single(node: Node, outer: int) -> bool:
    """Return whether a convolution does nothing along its outer axes, but for padding."""
    return {*ints(node, "kernel_shape")[:outer], *ints(node, "strides")[:outer]} <= {1}


__all__ = ["Winograd"]
