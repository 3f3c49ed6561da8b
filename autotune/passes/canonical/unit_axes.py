"""Elementwise operations between two Reshapes that only put in and take out axes of one element.

PyTorch splits the windows of shifted-window attention from the batch to add a mask to each, and joins them again. With
one image that changes nothing but the number of axes, yet a Reshape between a product and what follows keeps the one
from being the epilogue of the other, and attention from being recognised.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph import ops
from autotune.graph.ir import Node
from autotune.passes.rewriter import Rewriter


def without_unit_axes(rewriter: Rewriter, node: Node) -> bool:
    """Rewrite Reshape(f(Reshape(x), y)) to f(x, y), y in other axes.

    A rule of :class:`~autotune.passes.canonical.simplify.Simplify`.
    """
    graph, shape = rewriter.graph, rewriter.graph.type_of(node.outputs[0]).shape
    between = rewriter.producer(rewriter.current(node.inputs[0]))
    if between is None or not ops.get(between.op).pointwise or between.attrs or len(between.outputs) != 1:
        return False
    (value,) = between.outputs
    inner = rewriter.type_of(value).shape
    if _several(inner) != _several(shape):
        return False
    sources = [_source(rewriter, operand, shape) for operand in between.inputs]
    if sum(source is not None for source in sources) != 1:
        return False
    if len(graph.consumers().get(node.inputs[0], ())) != 1 or node.inputs[0] in graph.outputs:
        return False
    inputs = [
        source or _moved(rewriter, operand, inner, shape)
        for source, operand in zip(sources, between.inputs, strict=True)
    ]
    rewriter.become(node.outputs[0], between.op, inputs)
    return True


def _several(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def _source(rewriter: Rewriter, operand: str, shape: tuple[int, ...]) -> str | None:
    """Return the value of this shape that an operand is a Reshape of."""
    producer = rewriter.producer(operand)
    if producer is None or producer.op != "Reshape" or rewriter.type_of(producer.inputs[0]).shape != shape:
        return None
    return producer.inputs[0]


def _moved(rewriter: Rewriter, operand: str, inner: Sequence[int], shape: Sequence[int]) -> str:
    """Return an operand that broadcasts to ``inner`` as one that broadcasts to ``shape``."""
    own = rewriter.type_of(operand).shape
    wide = (1,) * (len(inner) - len(own)) + own
    rest = [mine for mine, full in zip(wide, inner, strict=True) if full != 1]
    moved = tuple(1 if full == 1 else rest.pop(0) for full in shape)
    return operand if moved == own else rewriter.reshape(operand, *moved)


__all__ = ["without_unit_axes"]
