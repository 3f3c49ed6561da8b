"""Merge chains of constant scales and shifts, and move scales into the weights before them.

With c, d constants and W constant weights (one use each):

    Mul(Mul(x, c), d)          -> Mul(x, c*d)
    Add(Add(x, c), d)          -> Add(x, c+d)
    Mul(Add(x, c), d)          -> Add(Mul(x, d), c*d)
    Mul(Conv(x, W), c)         -> Conv(x, W*c)        c one value an output channel; also ConvTranspose
    Mul(MatMul(x, W), c)       -> MatMul(x, W*c)      c one value a column

The first three round at other places. So x is there what sums make, whose own order is the schedule's: chains on other
values, such as integers as floats, are computed as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import Array, Graph, Node
from autotune.passes.attributes import is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter

_FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class FoldAffine(GraphPass):
    """Fewer elementwise operations and none where weights can take them in (floats only)."""

    name: ClassVar[str] = "fold_affine"
    max_rounds: int = 16

    def apply(self, graph: Graph) -> Graph:
        for _ in range(self.max_rounds):
            folded = _round(graph)
            if folded is graph:
                break
            graph = folded
        return graph


def _round(graph: Graph) -> Graph:
    uses = {value: len(nodes) for value, nodes in graph.consumers().items()}
    for output in graph.outputs:
        uses[output] = uses.get(output, 0) + 1
    producers = graph.producers()
    rewriter = Rewriter(graph)
    consumed: set[str] = set()  # nodes that this round has already merged into another
    for node in rewriter.walk():
        match = _constant_operand(graph, node)
        inner = producers.get(match[0]) if match else None
        mergeable = (
            match is not None
            and inner is not None
            and uses[match[0]] == 1
            and inner.name not in consumed
            and graph.type_of(node.outputs[0]).shape == graph.type_of(match[0]).shape
        )
        if not (mergeable and match and inner and _merge(rewriter, graph, node, inner, match[1])):
            rewriter.keep(node)
        elif inner is not None:
            consumed.add(node.name)
    return rewriter.finish()


def _constant_operand(graph: Graph, node: Node) -> tuple[str, str] | None:
    """Return the variable and the constant operand of a float Mul or Add, if it has one of each."""
    if node.op not in ("Mul", "Add") or graph.type_of(node.outputs[0]).dtype not in _FLOATS:
        return None
    a, b = node.inputs
    if (a in graph.constants) == (b in graph.constants):
        return None
    return (b, a) if a in graph.constants else (a, b)


def _merge(rewriter: Rewriter, graph: Graph, node: Node, inner: Node, constant: str) -> bool:
    c = graph.constants[constant]
    (output,) = node.outputs
    if node.op == "Mul" and (ops.get(inner.op).weights is not None or inner.op == "MatMul"):
        return _scale_weights(rewriter, graph, inner, c, output)
    match = _constant_operand(graph, inner)
    if match is None or not _is_of_sums(rewriter, rewriter.current(match[0])):
        return False
    x, d = rewriter.current(match[0]), graph.constants[match[1]]
    if node.op == inner.op:
        merged = c * d if node.op == "Mul" else c + d
        if merged.size > max(c.size, d.size):
            return False
        rewriter.become(output, node.op, (x, rewriter.constant(constant, merged)))
    elif node.op == "Mul":
        merged = c * d
        if merged.size > max(c.size, d.size):
            return False
        scaled = rewriter.emit("Mul", (x, constant), name=f"{output}.scaled")
        rewriter.become(output, "Add", (scaled, rewriter.constant(constant, merged)))
    else:
        return False
    return True


def _is_of_sums(rewriter: Rewriter, value: str) -> bool:
    """Return whether a value of the new graph is what sums make, scaled, shifted and rearranged."""
    while (node := rewriter.producer(value)) is not None and ops.get(node.op).role != "anchor":
        moved = ops.get(node.op).role == "rearrangement"
        variable = [v for v in node.inputs if v not in rewriter.constants]
        if len(variable) != 1 or not (moved or node.op in ("Mul", "Add")):
            return False
        (value,) = variable
    return node is not None


def _scale_weights(rewriter: Rewriter, graph: Graph, inner: Node, scale: Array, output: str) -> bool:
    if inner.inputs[1] not in graph.constants or len(inner.inputs) > 2:
        return False
    if _is_widened(rewriter.producer(rewriter.current(inner.inputs[0]))):
        return False  # the weights, too, may be numbers of a shorter type, and scaled ones would not be
    weight = graph.constants[inner.inputs[1]]
    layout = ops.get(inner.op).weights
    axis = -1 if layout is None else layout.output_axis(inner.attrs)
    channel_axis = -1 if layout is None or is_channels_last(inner) else 1
    rank = graph.type_of(inner.outputs[0]).rank
    channels = graph.type_of(inner.outputs[0]).shape[channel_axis]
    vector = _per_channel(scale, rank, channel_axis % rank, channels)
    if vector is None or (inner.op == "MatMul" and weight.ndim != 2):
        return False
    if weight.shape[axis] != channels:  # those of one group
        return False
    column = vector.reshape([channels if a == axis % weight.ndim else 1 for a in range(weight.ndim)])
    scaled = rewriter.constant(inner.inputs[1], (weight * column).astype(weight.dtype))
    inputs = (rewriter.current(inner.inputs[0]), scaled)
    rewriter.become(output, inner.op, inputs, inner.attrs)
    return True


def _is_widened(node: Node | None) -> bool:
    return node is not None and node.op == "Cast" and node.attrs["to"] == "float32"


def _per_channel(scale: Array, rank: int, axis: int, channels: int) -> Array | None:
    """Return the scale as one value a channel, or None if it varies along another axis."""
    if scale.ndim > rank:
        return None
    full = scale.reshape((1,) * (rank - scale.ndim) + scale.shape)
    if any(extent != 1 for i, extent in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (channels,))


__all__ = ["FoldAffine"]
