"""Maxima of windows from those of their rows: a window slides along one axis, then along the other.

The maximum of a row of a window is part of all windows that hold the row. A window of 3x3 takes two comparisons and two
instead of eight, where the rows of neighbours are kept. Both steps are one dispatch: what lies between them stays in
the nearest cache, strip by strip (:mod:`search_spaces.families.chain`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph, Node
from autotune.graph.region import anchors
from autotune.passes.attributes import ints, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import Partition, PartitionOptions, partition
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class SeparablePool(Algorithm):
    """Convert a MaxPool of two axes and stride 1, the only anchor, to one along rows and one along columns."""

    name: ClassVar[str] = "separable_pool"
    label = "separable pool"
    error = 0.0  # a maximum is exact in any order

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _convert) if len(anchors(graph.nodes)) == 1 else graph

    def divide(self, graph: Graph) -> Partition:
        """Return both steps in one dispatch."""
        return partition(graph, PartitionOptions(FusionOptions(chained=0)))


def _convert(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "MaxPool" or not is_channels_last(node) or len(node.present_outputs) != 1:
        return False
    window, steps = ints(node, "kernel_shape"), ints(node, "strides")
    if len(window) != 2 or min(window) < 2 or max(steps) > 1:
        return False  # with stride 2 a row of 3x3 is part of two windows at most, which gained nothing
    (output,) = node.outputs
    x = rewriter.current(node.inputs[0])
    rows = rewriter.emit("MaxPool", [x], _along(node, 1), name=f"{output}.rows")
    rewriter.become(output, "MaxPool", [rows], _along(node, 0))
    return True


def _along(node: Node, axis: int) -> dict[str, Attr]:
    """Return the attributes of a pool along one axis of the image alone."""

    def only(key: str, otherwise: int) -> tuple[int, ...]:
        values = ints(node, key)
        return tuple(value if i % 2 == axis else otherwise for i, value in enumerate(values))

    return {
        **node.attrs,
        "kernel_shape": only("kernel_shape", 1),
        "dilations": only("dilations", 1),
        "pads": only("pads", 0),
    }


__all__ = ["SeparablePool"]
