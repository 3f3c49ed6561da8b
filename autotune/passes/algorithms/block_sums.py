"""Long sums as sums of sums: blocked summation.

A sum taken one element after the other loses a bit each time its length doubles, and stands still once an element is
below the rounding of the total. Summed in blocks the error grows as the sum of the two lengths (Higham, "The Accuracy
of Floating Point Summation", 1993). Every schedule of the parts is then as accurate as a sum of their length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph, Node
from autotune.passes.algorithms.sums_of_blocks import (
    SUMS,
    Blocking,
    apart,
    finish_sum,
    product_of_blocks,
    stand_for,
    summed_axes,
)
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite
from autotune.te.dtypes import is_float

LONGEST = 1 << 15
"""Sums of more elements are cut: longer than those of any layer that models commonly have."""

_ALONG_ROWS = 128
"""Sums along rows may be so many times longer: they are taken in the lanes of several vectors. By default four
million squares are off by 2e-6 with AVX-512, 2e-5 with AVX2 and 1e-4 with SSE; cut they took 1.1 to 1.2 of the time."""


@dataclass(frozen=True)
class BlockSums(GraphPass):
    """ReduceSum, ReduceMean, GlobalAveragePool and MatMul of more than ``longest`` elements, in two or more steps.

    Reductions of several axes take the last one first; one axis becomes two by a Reshape, after a Slice for what does
    not divide. MatMul becomes a product a block and a ReduceSum of them.
    """

    name: ClassVar[str] = "block_sums"
    longest: int = LONGEST

    def apply(self, graph: Graph) -> Graph:
        while True:
            cut = rewrite(graph, lambda rewriter, node: _cut(rewriter, node, self.longest))
            if cut is graph:
                return graph
            graph = cut


def _cut(rewriter: Rewriter, node: Node, longest: int) -> bool:
    x = rewriter.current(node.inputs[0]) if node.inputs else ""
    if node.op == "MatMul":
        return _cut_product(rewriter, node, longest)
    if node.op not in SUMS:
        return False
    shape, dtype = rewriter.type_of(x).shape, rewriter.type_of(x).dtype
    axes = summed_axes(rewriter.graph, node)
    length = math.prod(shape[a] for a in axes)
    in_lanes = bool(axes) and axes[-1] == len(shape) - 1
    if length <= longest * (_ALONG_ROWS if in_lanes else 1) or not is_float(dtype):
        return False
    (output,) = node.outputs
    if dtype in ("float16", "bfloat16"):  # their sums are taken in float32, and rounded once
        x = rewriter.emit("Cast", [x], {"to": "float32"}, name=f"{output}.wide")
    finish_sum(rewriter, node, _total(rewriter, x, axes, output, longest), length)
    return True


def _total(rewriter: Rewriter, x: str, axes: Sequence[int], output: str, longest: int) -> str:
    """Return the sum over several axes in two steps; the dimensions stay, with extent 1."""
    first, last = tuple(axes[:-1]), axes[-1]
    shape = rewriter.type_of(x).shape
    if first and math.prod(shape[a] for a in first) > 1:
        rows = _sum(rewriter, x, (last,), f"{output}.rows")
        return _sum(rewriter, rows, first, f"{output}.total")
    return _blocks(rewriter, x, last, _division(shape[last], longest), output)


def _sum(rewriter: Rewriter, x: str, axes: tuple[int, ...], name: str) -> str:
    return rewriter.emit("ReduceSum", [x], {"axes": axes, "keepdims": 1}, name=name)


def _blocks(rewriter: Rewriter, x: str, axis: int, blocks: Blocking, output: str) -> str:
    """Return the sum over one long axis: of its blocks, then of their sums and of the rest."""
    shape = rewriter.type_of(x).shape
    whole, tail = apart(rewriter, x, axis, blocks)
    cut = (*shape[:axis], blocks.count, blocks.length, *shape[axis + 1 :])
    pieces = rewriter.emit("Reshape", [whole], {"shape": cut}, name=f"{output}.blocks")
    sums = rewriter.emit("ReduceSum", [pieces], {"axes": (axis + 1,), "keepdims": 0}, name=f"{output}.sums")
    total = _sum(rewriter, sums, (axis,), f"{output}.total")
    if tail is None:
        return total
    rest = _sum(rewriter, tail, (axis,), f"{output}.rest")
    return rewriter.emit("Add", [total, rest], name=f"{output}.all")


def _division(length: int, longest: int) -> Blocking:
    """Return blocks without a rest where a length near the wanted one divides."""
    wanted = max(longest // 8, 2)
    for block in range(wanted, 2 * wanted):
        if length % block == 0:
            return Blocking(length // block, block)
    return Blocking(length // wanted, wanted, length % wanted)


def _cut_product(rewriter: Rewriter, node: Node, longest: int) -> bool:
    a, b = (rewriter.current(v) for v in node.inputs)
    left, right = rewriter.type_of(a), rewriter.type_of(b)
    if left.shape[-1] <= longest or not is_float(left.dtype) or min(left.rank, right.rank) < 2:
        return False
    (output,) = node.outputs
    if left.dtype in ("float16", "bfloat16"):
        a, b = (rewriter.emit("Cast", [v], {"to": "float32"}, name=f"{v}.wide") for v in (a, b))
    total = product_of_blocks(rewriter, a, b, _division(left.shape[-1], longest), output)
    stand_for(rewriter, output, total)
    return True


__all__ = ["LONGEST", "BlockSums"]
