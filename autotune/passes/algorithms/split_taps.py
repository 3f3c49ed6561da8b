"""Taps of a dilated convolution that meet little but padding become convolutions of the places where they do not.

Of a 3x3 window with a dilation of 12 on an image of 14x14 the middle tap meets the image everywhere, those at the sides
meet it in two rows or columns, those in the corners in 2x2 places: a fifth of the multiplications (the pyramid of
DeepLab, Chen et al., 2017, on small images). Each tap, or neighbours that meet it in the same places, is a convolution
of a part of the image without padding; their results are padded and added. Weights are divided, none is there twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import numpy as np

from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class _Taps:
    """Neighbouring taps of an axis, and the results ``begin`` to ``end`` of it to which they add something."""

    taps: range
    begin: int
    end: int

    @property
    def work(self) -> int:
        return len(self.taps) * (self.end - self.begin)


@dataclass(frozen=True)
class SplitTaps(GraphPass):
    """Conv(x, w) -> sum of Pad(Conv(part of x, part of w)).

    It is done where at most ``share`` of the multiplications are left, and ``saved`` or more are saved: the sum
    reads and writes the result several times.
    """

    name: ClassVar[str] = "split_taps"
    share: float = 0.5
    saved: int = 1 << 24

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._split)

    def _split(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != "Conv" or integer(node, "group") != 1 or max(ints(node, "dilations")) == 1:
            return False
        x, w, *bias = (value if value == ABSENT else rewriter.current(value) for value in node.inputs)
        weights = rewriter.constant_of(w)
        if (
            weights is None or not np.isfinite(weights).all()
        ):  # times the padding's zeros, these are not numbers
            return False
        rank = weights.ndim - 2
        first = 1 if is_channels_last(node) else 2
        sizes = rewriter.type_of(x).shape[first : first + rank]
        result = rewriter.graph.types[node.outputs[0]].shape
        kernel = weights.shape[:rank] if is_channels_last(node) else weights.shape[2:]
        pads, strides, dilations = (ints(node, key) for key in ("pads", "strides", "dilations"))
        shapes = (kernel, sizes, result[first : first + rank], strides, dilations, pads[:rank])
        found = [_where(*axis) for axis in zip(*shapes, strict=True)]
        before = math.prod(result) * weights.size // result[-1 if is_channels_last(node) else 1]
        left = math.prod(
            sum(group.work for group in groups) / (k * n)
            for groups, k, n in zip(found, kernel, result[first : first + rank], strict=True)
        )
        if not left or left > self.share or before * (1 - left) < self.saved:
            return False
        _Parts(rewriter, node, first, bias).emit(x, weights, found)
        return True


def _where(taps: int, size: int, results: int, stride: int, dilation: int, pad: int) -> list[_Taps]:
    """Return the taps of an axis by where they meet the image, those that meet it most first.

    >>> _where(taps=3, size=14, results=14, stride=1, dilation=12, pad=12)[0]
    _Taps(taps=range(1, 2), begin=0, end=14)
    >>> [(each.begin, each.end) for each in _where(3, 14, 14, 1, 12, 12)[1:]]
    [(12, 14), (0, 2)]
    """

    def place(tap: int) -> tuple[int, int]:
        begin = max(0, -((tap * dilation - pad) // stride))
        end = min(results, (size - 1 - tap * dilation + pad) // stride + 1)
        return begin, max(begin, end)

    groups = [(where, list(group)) for where, group in groupby(range(taps), key=place)]
    live = [
        _Taps(range(group[0], group[-1] + 1), begin, end) for (begin, end), group in groups if end > begin
    ]
    return sorted(live, key=lambda each: -each.work)


@dataclass(frozen=True)
class _Parts:
    """The sum that takes the place of a convolution whose spatial axes begin at ``first``."""

    rewriter: Rewriter
    node: Node
    first: int
    bias: Sequence[str]

    def emit(self, x: str, weights: Array, found: Sequence[Sequence[_Taps]]) -> None:
        """Let the sum stand for the node's output from now on."""
        self.rewriter.replace(self.node.outputs[0], self._sum(x, weights, found, 0, self.bias))

    def _sum(
        self, x: str, weights: Array, found: Sequence[Sequence[_Taps]], axis: int, bias: Sequence[str]
    ) -> str:
        """Return the sum over the taps of the axes from ``axis`` on; ``found`` has one group of each before."""
        if axis == len(found):
            return self._convolution(x, weights, [groups[0] for groups in found], bias)
        total = None
        for index, group in enumerate(found[axis]):
            chosen = [*found[:axis], [group], *found[axis + 1 :]]
            part = self._sum(x, weights, chosen, axis + 1, () if index else bias)
            part = self._padded(part, group, axis)
            total = part if total is None else self.rewriter.emit("Add", [total, part], name=f"{part}.sum")
        assert total is not None
        return total

    def _convolution(self, x: str, weights: Array, groups: Sequence[_Taps], bias: Sequence[str]) -> str:
        node, rewriter, rank = self.node, self.rewriter, len(groups)
        pads, strides, dilations = (ints(node, key) for key in ("pads", "strides", "dilations"))
        starts, ends = [], []
        for group, pad, stride, dilation in zip(groups, pads, strides, dilations, strict=False):
            starts.append(group.begin * stride + group.taps.start * dilation - pad)
            ends.append((group.end - 1) * stride + (group.taps.stop - 1) * dilation - pad + 1)
        places = tuple(range(self.first, self.first + rank))
        if any(starts) or tuple(ends) != tuple(rewriter.type_of(x).shape[place] for place in places):
            attrs: dict[str, Attr] = {
                "axes": places,
                "starts": tuple(starts),
                "ends": tuple(ends),
                "steps": (1,) * rank,
            }
            x = rewriter.emit("Slice", [x], attrs, name=f"{x}.met")
        cut = tuple(slice(group.taps.start, group.taps.stop) for group in groups)
        part = weights[cut if is_channels_last(node) else (slice(None), slice(None), *cut)]
        name = rewriter.constant(f"{node.inputs[1]}.taps", np.ascontiguousarray(part))
        attrs = {
            **node.attrs,
            "kernel_shape": tuple(len(group.taps) for group in groups),
            "pads": (0,) * (2 * rank),
        }
        return rewriter.emit("Conv", [x, name, *bias], attrs, name=f"{node.outputs[0]}.taps")

    def _padded(self, value: str, group: _Taps, axis: int) -> str:
        place = self.first + axis
        results = self.rewriter.graph.types[self.node.outputs[0]].shape
        if (group.begin, group.end) == (0, results[place]):
            return value
        pads = [0] * (2 * len(results))
        pads[place], pads[place + len(results)] = group.begin, results[place] - group.end
        return self.rewriter.emit("Pad", [value], {"pads": tuple(pads)}, name=f"{value}.padded")


__all__ = ["SplitTaps"]
