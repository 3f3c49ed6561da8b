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

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import ints, is_channels_last
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
    if node.op not in ("ReduceSum", "ReduceMean", "GlobalAveragePool"):
        return False
    shape, dtype = rewriter.type_of(x).shape, rewriter.type_of(x).dtype
    axes = _spatial(node, len(shape)) if node.op == "GlobalAveragePool" else ints(node, "axes")
    length = math.prod(shape[a] for a in axes)
    in_lanes = bool(axes) and axes[-1] == len(shape) - 1
    if length <= longest * (_ALONG_ROWS if in_lanes else 1) or not is_float(dtype):
        return False
    (output,) = node.outputs
    if dtype in ("float16", "bfloat16"):  # their sums are taken in float32, and rounded once
        x = rewriter.emit("Cast", [x], {"to": "float32"}, name=f"{output}.wide")
    total = _total(rewriter, x, axes, output, longest)
    if node.op != "ReduceSum":
        factor = rewriter.constant(f"{output}.factor", np.asarray(1 / length, rewriter.type_of(total).dtype))
        total = rewriter.emit("Mul", [total, factor], name=f"{output}.mean")
    _stand_for(rewriter, output, total)
    return True


def _stand_for(rewriter: Rewriter, output: str, total: str) -> None:
    """Let a sum be read as the output, in its type."""
    wanted = rewriter.graph.type_of(output)
    if rewriter.type_of(total).dtype != wanted.dtype:
        total = rewriter.emit("Cast", [total], {"to": wanted.dtype}, name=f"{output}.narrow")
    if rewriter.type_of(total).shape != wanted.shape:
        total = rewriter.emit("Reshape", [total], {"shape": wanted.shape}, name=f"{output}.shaped")
    rewriter.replace(output, total)


def _spatial(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(range(1, rank - 1)) if is_channels_last(node) else tuple(range(2, rank))


def _total(rewriter: Rewriter, x: str, axes: Sequence[int], output: str, longest: int) -> str:
    """The sum over several axes in two steps; the dimensions stay, with extent 1."""
    first, last = tuple(axes[:-1]), axes[-1]
    if first and math.prod(rewriter.type_of(x).shape[a] for a in first) > 1:
        rows = _sum(rewriter, x, (last,), f"{output}.rows")
        return _sum(rewriter, rows, first, f"{output}.total")
    return _blocks(rewriter, x, last, output, longest)


def _sum(rewriter: Rewriter, x: str, axes: tuple[int, ...], name: str) -> str:
    return rewriter.emit("ReduceSum", [x], {"axes": axes, "keepdims": 1}, name=name)


def _blocks(rewriter: Rewriter, x: str, axis: int, output: str, longest: int) -> str:
    """The sum over one long axis: of its blocks, then of their sums and of the rest."""
    shape = rewriter.type_of(x).shape
    count, block, rest = _division(shape[axis], longest)
    whole, tail = _apart(rewriter, x, axis, shape[axis] - rest)
    cut = (*shape[:axis], count, block, *shape[axis + 1 :])
    pieces = rewriter.emit("Reshape", [whole], {"shape": cut}, name=f"{output}.blocks")
    sums = rewriter.emit("ReduceSum", [pieces], {"axes": (axis + 1,), "keepdims": 0}, name=f"{output}.sums")
    total = _sum(rewriter, sums, (axis,), f"{output}.total")
    if tail is None:
        return total
    return rewriter.emit(
        "Add", [total, _sum(rewriter, tail, (axis,), f"{output}.rest")], name=f"{output}.all"
    )


def _division(length: int, longest: int) -> tuple[int, int, int]:
    """Number of blocks, their length, and the rest; none where a length near the wanted one divides."""
    wanted = max(longest // 8, 2)
    for block in range(wanted, 2 * wanted):
        if length % block == 0:
            return length // block, block, 0
    return length // wanted, wanted, length % wanted


def _apart(rewriter: Rewriter, x: str, axis: int, length: int) -> tuple[str, str | None]:
    """The first elements along an axis, and the others if there are any."""
    extent, array = rewriter.type_of(x).shape[axis], rewriter.constant_of(x)
    if extent == length:
        return x, None
    parts = []
    for start, end in ((0, length), (length, extent)):
        if array is not None:
            parts.append(rewriter.constant(f"{x}.from{start}", np.take(array, range(start, end), axis=axis)))
            continue
        attrs = {"starts": (start,), "ends": (end,), "axes": (axis,)}
        parts.append(rewriter.emit("Slice", [x], attrs, name=f"{x}.from{start}"))
    return parts[0], parts[1]


def _cut_product(rewriter: Rewriter, node: Node, longest: int) -> bool:
    a, b = (rewriter.current(v) for v in node.inputs)
    left, right = rewriter.type_of(a), rewriter.type_of(b)
    if left.shape[-1] <= longest or not is_float(left.dtype) or min(left.rank, right.rank) < 2:
        return False
    (output,) = node.outputs
    if left.dtype in ("float16", "bfloat16"):
        a, b = (rewriter.emit("Cast", [v], {"to": "float32"}, name=f"{v}.wide") for v in (a, b))
    count, block, _ = _division(left.shape[-1], longest)
    (a, a_rest), (b, b_rest) = (
        _apart(rewriter, v, axis, count * block) for v, axis in ((a, left.rank - 1), (b, right.rank - 2))
    )
    rows = rewriter.emit("Reshape", [a], {"shape": (*left.shape[:-1], count, block)}, name=f"{output}.left")
    lead = left.rank - 2
    perm = (*range(lead), lead + 1, lead, lead + 2)
    rows = rewriter.emit("Transpose", [rows], {"perm": perm}, name=f"{output}.lefts")
    cut = (*right.shape[:-2], count, block, right.shape[-1])
    columns = rewriter.emit("Reshape", [b], {"shape": cut}, name=f"{output}.rights")
    products = rewriter.emit("MatMul", [rows, columns], name=f"{output}.products")
    axis = rewriter.type_of(products).rank - 3
    total = rewriter.emit("ReduceSum", [products], {"axes": (axis,), "keepdims": 0}, name=f"{output}.total")
    if a_rest is not None and b_rest is not None:
        last = rewriter.emit("MatMul", [a_rest, b_rest], name=f"{output}.rest")
        total = rewriter.emit("Add", [total, last], name=f"{output}.all")
    _stand_for(rewriter, output, total)
    return True


__all__ = ["LONGEST", "BlockSums"]
