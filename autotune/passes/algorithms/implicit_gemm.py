"""Convolutions as matrix products of their patches, which are packed in the product's own dispatch.

Conv becomes Patches (im2col), a MatMul with the weights in another shape, and a reshape. Fusion takes the patches in
as what prepares the left operand (see ``fuse``), so that they are never stored whole unless a schedule asks for it:
each block of the product copies the rows that it needs, and padding, stride and dilation end there. What is left is a
product whose tiles go on across rows of the image and whose reduction is one run ("implicit GEMM", Chetlur et al.,
"cuDNN: Efficient Primitives for Deep Learning", 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph, Node
from autotune.passes.algorithms.pixel_rows import follow_rows, is_one_product, product_of_rows
from autotune.passes.attributes import ints
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class ImplicitGemm(Algorithm):
    """Convert channels-last convolutions ``of`` one group, but for 1x1 of stride 1: these are products already."""

    name: ClassVar[str] = "implicit_gemm"
    of: str = "Conv"
    label = "implicit GEMM"
    error = (
        3e-6  # the same sums in another order: several times what was measured for up to 512 channels of 3x3
    )

    @property
    def speculative(self) -> bool:
        """In float32 estimates found it only where ``matrix product`` is as fast; of bfloat16 only products may be
        tiles of a matrix unit."""
        return self.of == "Conv"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, lambda rewriter, node: _convert(rewriter, node, self.of))


def _convert(rewriter: Rewriter, node: Node, of: str) -> bool:
    if not _is_eligible(rewriter, node, of):
        return follow_rows(rewriter, node)
    x, w = (rewriter.current(v) for v in node.inputs)
    attrs: dict[str, Attr] = {"kernel_shape": rewriter.type_of(w).shape[:-2]}
    attrs |= {key: node.attrs[key] for key in ("strides", "dilations", "pads")}
    (output,) = node.outputs
    patches = rewriter.emit("Patches", [x], attrs, name=f"{output}.patches")
    product_of_rows(rewriter, node, patches, w)
    return True


def _is_eligible(rewriter: Rewriter, node: Node, of: str) -> bool:
    if not is_one_product(rewriter, node, of):
        return False
    moves = (*rewriter.type_of(rewriter.current(node.inputs[1])).shape[:-2], *ints(node, "strides"))
    return set(moves) != {1} or any(ints(node, "pads"))


__all__ = ["ImplicitGemm"]
