"""Convolutions of small numbers with few channels, as convolutions of one channel along rows of all channels.

Dot products and matrix units add up neighbouring products. The channels of a tap are three in the first layer of a
model, but with channels last the taps of a row of the window lie next to one another, too. For ShortConv, IntegerConv:

    Conv(x [n, h, w, c], k x l, strides s, t) -> Conv(Reshape(x, [n, h, w * c, 1]), k x (l * c), strides s, t * c)

Zero weights at the end of a row of taps make whole tiles: they meet elements of the next pixel, which are finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Array, Attr, Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite

_GROUP, _DEEPEST, _FEW = 4, 16, 8
"""Bytes of a group of neighbours that one lane multiplies; groups of a tile; channels that are too few for one."""
_CONVOLUTIONS = ("IntegerConv", "ShortConv")


@dataclass(frozen=True)
class FewChannels(GraphPass):
    """Take the channels of the pixels of a row of the window as one row, where they are few."""

    name: ClassVar[str] = "few_channels"

    def apply(self, graph: Graph) -> Graph:
        if not any(node.op in _CONVOLUTIONS for node in graph.nodes):
            return graph
        return rewrite(graph, _flattened)


def _flattened(rewriter: Rewriter, node: Node) -> bool:
    """Write a convolution of two dimensions so, if it is one of few channels and has several taps in a row."""
    if node.op not in _CONVOLUTIONS or not is_channels_last(node) or integer(node, "group") != 1:
        return False
    x, w, *fill = map(rewriter.current, node.inputs)
    shape, weights = rewriter.type_of(x).shape, rewriter.constant_of(w)
    if weights is None or len(shape) != 4 or shape[-1] >= _FEW or weights.shape[1] == 1:
        return False
    if ints(node, "dilations") != (1, 1):
        return False
    rows = _in_tiles(weights)
    results = rewriter.graph.types[node.outputs[0]].shape
    attrs = _attributes(node, shape, rows.shape[1], results[2])
    flat = _reshaped(rewriter, x, (shape[0], shape[1], shape[2] * shape[3], 1))
    operands = [flat, rewriter.constant(f"{w}.rows", rows), *fill]
    made = node.replace(inputs=tuple(operands), attrs=attrs)
    rewriter.add(made if any(ints(made, "pads")) else made.replace(inputs=tuple(operands[:2])))
    return True


def _reshaped(rewriter: Rewriter, x: str, shape: tuple[int, ...]) -> str:
    """Return an image in another shape; a conversion comes after that, so that it is the convolution's prologue."""
    producer = rewriter.producer(x)
    if producer is None or producer.op != "Cast":
        return rewriter.reshape(x, *shape)
    return rewriter.emit(
        "Cast", [rewriter.reshape(producer.inputs[0], *shape)], producer.attrs, name=f"{x}.rows"
    )


def _in_tiles(weights: Array) -> Array:
    """Return weights [k, l, c, m] as [k, l * c + zeros, 1, m], in whole tiles of equal depth.

    >>> _in_tiles(np.ones((7, 7, 3, 64), "int16")).shape, _in_tiles(np.ones((11, 11, 3, 96), "int16")).shape
    ((7, 22, 1, 64), (11, 36, 1, 96))
    """
    height, taps, channels, results = weights.shape
    group = _GROUP // weights.itemsize
    groups = math.ceil(taps * channels / group)
    tiles = math.ceil(groups / _DEEPEST)
    depth = math.ceil(groups / tiles) * tiles * group
    rows = np.zeros((height, depth, 1, results), weights.dtype)
    rows[:, : taps * channels, 0] = weights.reshape(height, taps * channels, results)
    return rows


def _attributes(node: Node, shape: tuple[int, ...], depth: int, results: int) -> dict[str, Attr]:
    """Return the attributes for rows of pixels' channels: as many results as before end within the padding."""
    *_, width, channels = shape
    (down, across), (top, left, bottom, _) = ints(node, "strides"), ints(node, "pads")
    stride, before = across * channels, left * channels
    after = max(0, (results - 1) * stride + depth - before - width * channels)
    return {
        **node.attrs,
        "kernel_shape": (ints(node, "kernel_shape")[0], depth),
        "strides": (down, stride),
        "pads": (top, before, bottom, after),
    }


__all__ = ["FewChannels"]
