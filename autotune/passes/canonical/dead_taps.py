"""Taps of a convolution that read nothing but padding, wherever the window stands, are cut off its weights.

Dilated convolutions on small images have them: of a 3x3 window with a dilation of 36 only the middle ever meets an
image of 14x14, and what is left is a 1x1 convolution (the pyramid of DeepLab, Chen et al., 2017, on small images).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.attributes import ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class DeadTaps(GraphPass):
    """Conv(x, w) -> Conv(x, part of w) with as much less padding."""

    name: ClassVar[str] = "dead_taps"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _cut)


def _cut(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Conv" or not any(ints(node, "pads")):
        return False
    x, w, *bias = (value if value == ABSENT else rewriter.current(value) for value in node.inputs)
    weights = rewriter.constant_of(w)
    if weights is None:
        return False
    (output,) = node.outputs
    rank = weights.ndim - 2
    first = 1 if is_channels_last(node) else 2
    sizes = rewriter.type_of(x).shape[first : first + rank]
    results = rewriter.graph.types[output].shape[first : first + rank]
    kernel = weights.shape[:rank] if is_channels_last(node) else weights.shape[2:]
    pads, strides, dilations = (ints(node, key) for key in ("pads", "strides", "dilations"))
    live = [
        _live(*axis) for axis in zip(kernel, sizes, results, strides, dilations, pads[:rank], strict=True)
    ]
    begins = [pad - d * taps.start for pad, d, taps in zip(pads[:rank], dilations, live, strict=True)]
    ends = [
        pad - d * (k - taps.stop)
        for pad, d, k, taps in zip(pads[rank:], dilations, kernel, live, strict=True)
    ]
    cut = tuple(slice(taps.start, taps.stop) for taps in live)
    if all(len(taps) == k for taps, k in zip(live, kernel, strict=True)) or min(begins + ends) < 0:
        return False
    if not np.isfinite(weights).all():  # times the padding's zeros, these are not numbers
        return False
    part = np.ascontiguousarray(weights[cut if is_channels_last(node) else (slice(None), slice(None), *cut)])
    name = rewriter.constant(f"{w}.live", part)
    attrs = {**node.attrs, "kernel_shape": tuple(map(len, live)), "pads": (*begins, *ends)}
    rewriter.become(output, "Conv", (x, name, *bias), attrs)
    return True


def _live(taps: int, size: int, results: int, stride: int, dilation: int, pad: int) -> range:
    """Return the taps of an axis between the first and the last that meet the image, all if none does.

    >>> _live(taps=3, size=14, results=14, stride=1, dilation=36, pad=36)
    range(1, 2)
    >>> _live(taps=3, size=14, results=14, stride=1, dilation=12, pad=12)
    range(0, 3)
    """
    found = [
        tap
        for tap in range(taps)
        if tap * dilation - pad < size and (results - 1) * stride + tap * dilation - pad >= 0
    ]
    return range(found[0], found[-1] + 1) if found else range(taps)


__all__ = ["DeadTaps"]
