"""Sums and products along a long axis from those of its blocks: what the passes share that cut them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import ints, is_channels_last
from autotune.passes.rewriter import Rewriter

SUMS = ("ReduceSum", "ReduceMean", "GlobalAveragePool")
"""The operators that add up elements, of which means divide by how many there are."""


@dataclass(frozen=True)
class Blocking:
    """``count`` blocks of ``length`` elements each, and a shorter ``rest``."""

    count: int
    length: int
    rest: int = 0


def summed_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the axes along which one of :data:`SUMS` adds up."""
    if node.op != "GlobalAveragePool":
        return ints(node, "axes")
    rank = graph.type_of(node.inputs[0]).rank
    return tuple(range(1, rank - 1)) if is_channels_last(node) else tuple(range(2, rank))


def finish_sum(rewriter: Rewriter, node: Node, total: str, length: int) -> None:
    """Let the sum of ``length`` elements stand for what one of :data:`SUMS` gives."""
    (output,) = node.outputs
    if node.op != "ReduceSum":
        factor = rewriter.constant(f"{output}.factor", np.asarray(1 / length, rewriter.type_of(total).dtype))
        total = rewriter.emit("Mul", [total, factor], name=f"{output}.mean")
    stand_for(rewriter, output, total)


def stand_for(rewriter: Rewriter, output: str, total: str) -> None:
    """Let a sum be read as the output, in its type."""
    wanted = rewriter.graph.type_of(output)
    if rewriter.type_of(total).dtype != wanted.dtype:
        total = rewriter.emit("Cast", [total], {"to": wanted.dtype}, name=f"{output}.narrow")
    if rewriter.type_of(total).shape != wanted.shape:
        total = rewriter.emit("Reshape", [total], {"shape": wanted.shape}, name=f"{output}.shaped")
    rewriter.replace(output, total)


def product_of_blocks(rewriter: Rewriter, a: str, b: str, blocks: Blocking, output: str) -> str:
    """Return ``a @ b``: the sum of a product for each block of their common axis, and of one for the rest."""
    left, right = rewriter.type_of(a), rewriter.type_of(b)
    (a, a_rest), (b, b_rest) = (
        apart(rewriter, v, axis, blocks) for v, axis in ((a, left.rank - 1), (b, right.rank - 2))
    )
    size = (blocks.count, blocks.length)
    rows = rewriter.emit("Reshape", [a], {"shape": (*left.shape[:-1], *size)}, name=f"{output}.left")
    lead = left.rank - 2
    perm = (*range(lead), lead + 1, lead, lead + 2)
    rows = rewriter.emit("Transpose", [rows], {"perm": perm}, name=f"{output}.lefts")
    cut = (*right.shape[:-2], *size, right.shape[-1])
    columns = rewriter.emit("Reshape", [b], {"shape": cut}, name=f"{output}.rights")
    products = rewriter.emit("MatMul", [rows, columns], name=f"{output}.products")
    axis = rewriter.type_of(products).rank - 3
    total = rewriter.emit("ReduceSum", [products], {"axes": (axis,), "keepdims": 0}, name=f"{output}.total")
    if a_rest is None or b_rest is None:
        return total
    last = rewriter.emit("MatMul", [a_rest, b_rest], name=f"{output}.rest")
    return rewriter.emit("Add", [total, last], name=f"{output}.all")


def apart(rewriter: Rewriter, x: str, axis: int, blocks: Blocking) -> tuple[str, str | None]:
    """Return the elements along an axis that are in blocks, and the others if there are any."""
    if not blocks.rest:
        return x, None
    extent, array = rewriter.type_of(x).shape[axis], rewriter.constant_of(x)
    length, parts = extent - blocks.rest, []
    for start, end in ((0, length), (length, extent)):
        if array is not None:
            parts.append(rewriter.constant(f"{x}.from{start}", np.take(array, range(start, end), axis=axis)))
            continue
        attrs = {"starts": (start,), "ends": (end,), "axes": (axis,)}
        parts.append(rewriter.emit("Slice", [x], attrs, name=f"{x}.from{start}"))
    return parts[0], parts[1]


__all__ = [
    "SUMS",
    "Blocking",
    "apart",
    "finish_sum",
    "product_of_blocks",
    "stand_for",
    "summed_axes",
]
