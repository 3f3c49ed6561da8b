"""1x1 convolutions as matrix products: pixels times input channels, by input channels times output channels.

The rows of the register tile then go on across the rows of the image, and what only products have applies:
blocks of the reduction and library kernels. A strided one first picks its pixels, a copy of at most a quarter
of the input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.pixel_rows import follow_rows, product_of_rows, rows_of
from autotune.passes.rewriter import Rewriter, rewrite

_EXACT = ("float32", "float64")
"""Types in which the declared error holds: results of the shorter ones are rounded by more."""


@dataclass(frozen=True)
class MatrixProduct(Algorithm):
    """Convert channels-last 1x1 convolutions without padding, and what follows them, to rows of pixels."""

    name: ClassVar[str] = "matrix_product"

    @property
    def label(self) -> str:
        """``matrix product``."""
        return "matrix product"

    @property
    def error(self) -> float:
        """The same sums in another order: several times what was measured for up to 2048 channels."""
        return 3e-6

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _convert)


def _convert(rewriter: Rewriter, node: Node) -> bool:
    if _is_eligible(rewriter, node):
        _product(rewriter, node)
        return True
    return follow_rows(rewriter, node)


def _is_eligible(rewriter: Rewriter, node: Node) -> bool:
    if node.op != "Conv" or not is_channels_last(node) or integer(node, "group", 1) != 1:
        return False
    if len(node.inputs) > 2 or ABSENT in node.inputs or any(ints(node, "pads")):
        return False
    weight = rewriter.type_of(rewriter.current(node.inputs[1]))
    return set(weight.shape[:-2]) == {1} and weight.dtype in _EXACT


def _product(rewriter: Rewriter, node: Node) -> None:
    x, w = (rewriter.current(v) for v in node.inputs)
    (output,) = node.outputs
    strides = ints(node, "strides")
    if set(strides) - {1}:
        size = rewriter.type_of(x).shape[1:-1]
        axes, zeros = tuple(range(1, len(size) + 1)), (0,) * len(size)
        x = rewriter.emit(
            "Slice",
            [x],
            {"axes": axes, "starts": zeros, "ends": size, "steps": strides},
            name=f"{output}.picked",
        )
        x = rewriter.emit("Identity", [x], name=f"{output}.dense")
    *image, inner = rewriter.type_of(x).shape
    product_of_rows(rewriter, output, rows_of(rewriter, x, math.prod(image), inner), w)


__all__ = ["MatrixProduct"]
