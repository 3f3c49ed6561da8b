"""1x1 convolutions as matrix products: pixels times input channels, by input channels times output channels.

The rows of the register tile then go on across the rows of the image, which counts where these are short, and what only
products have applies: blocks of the reduction and library kernels. A strided one first picks its pixels, a copy of at
most a quarter of the input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.passes.algorithms.pixel_rows import follow_rows, is_one_product, product_of_rows, rows_of
from autotune.passes.attributes import ints
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite

SHORT = 8
"""A row of fewer pixels holds one register tile and a rest. On a Zen 3 with AVX2 products of 7x7 pixels take 0.87 to
1.00 of the latency (estimated: 0.94 to 0.97), of 14x14 pixels 0.96 to 1.00 (estimated: 0.99; docs/convolutions.md)."""


@dataclass(frozen=True)
class MatrixProduct(Algorithm):
    """Convert channels-last 1x1 convolutions ``of`` one kind without padding, and what follows them, to rows of pixels.

    The rows of their images are ``short``, or are not.
    """

    name: ClassVar[str] = "matrix_product"
    short: bool = False
    of: str = "Conv"
    label = "matrix product"
    error = 3e-6  # the same sums in another order: several times what was measured for up to 2048 channels

    @property
    def speculative(self) -> bool:
        """With long rows the two take about the same time in float32, and estimates of which is faster gained
        nothing."""
        return self.of == "Conv" and not self.short

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if _is_eligible(rewriter, node, self.of) and self.short == (_row(rewriter, node) < SHORT):
            _product(rewriter, node)
            return True
        return follow_rows(rewriter, node)


def _row(rewriter: Rewriter, node: Node) -> int:
    """Return the pixels of a row of the result."""
    return rewriter.graph.type_of(node.outputs[0]).shape[-2]


def _is_eligible(rewriter: Rewriter, node: Node, of: str) -> bool:
    if not is_one_product(rewriter, node, of) or any(ints(node, "pads")):
        return False
    return set(rewriter.type_of(rewriter.current(node.inputs[1])).shape[:-2]) == {1}


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
    product_of_rows(rewriter, node, rows_of(rewriter, x, math.prod(image), inner), w)


__all__ = ["MatrixProduct"]
