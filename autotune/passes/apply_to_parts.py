"""Elementwise operations after a Concat, on each of its operands instead: there they end the dispatch that computes it.

Joining costs nothing (see ``views``), but an operation on the joined value is a dispatch that reads and
writes all of it once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class ApplyToParts(GraphPass):
    """Op(Concat(a, b)) becomes Concat(Op(a), Op(b)), with the constants that Op reads cut along the axis.

    Only where nothing else reads the joined value, and its operands are computed for it alone; one of them may
    be something else, on which Op is a dispatch of its own.
    """

    name: ClassVar[str] = "apply_to_parts"

    def apply(self, graph: Graph) -> Graph:
        consumers = graph.consumers()
        rewriter = Rewriter(graph)
        for node in rewriter.walk():
            join = _joined(rewriter, node, consumers)
            if join is None:
                rewriter.keep(node)
            else:
                _apply(rewriter, node, join)
        return rewriter.finish()


def _joined(rewriter: Rewriter, node: Node, consumers: Mapping[str, Sequence[Node]]) -> Node | None:
    """Return the Concat whose operands the node can be applied to."""
    graph = rewriter.graph
    if not ops.get(node.op).pointwise or len(node.outputs) != 1:
        return None
    variable = [v for v in node.present_inputs if rewriter.constant_of(rewriter.current(v)) is None]
    if len(variable) != 1 or variable[0] in graph.outputs or len(consumers[variable[0]]) != 1:
        return None
    join = rewriter.producer(rewriter.current(variable[0]))
    if join is None or join.op != "Concat":
        return None
    joined, result = rewriter.type_of(join.outputs[0]), graph.type_of(node.outputs[0])
    own = [v for v in join.inputs if _is_computed_for(rewriter, v, join, consumers)]
    return join if joined.shape == result.shape and len(own) >= max(1, len(join.inputs) - 1) else None


def _is_computed_for(
    rewriter: Rewriter, value: str, join: Node, consumers: Mapping[str, Sequence[Node]]
) -> bool:
    producer = rewriter.producer(value)
    if producer is None or ops.get(producer.op).view or value in rewriter.graph.outputs:
        return False
    return len(consumers.get(value, (join,))) == 1 and join.inputs.count(value) == 1


def _apply(rewriter: Rewriter, node: Node, join: Node) -> None:
    (joined,), (output,) = join.outputs, node.outputs
    axis = integer(join, "axis")
    operands = [v if v == ABSENT else rewriter.current(v) for v in node.inputs]
    results, start = [], 0
    for index, part in enumerate(join.inputs):
        stop = start + rewriter.type_of(part).shape[axis]
        from_end = axis - rewriter.type_of(joined).rank
        inputs = [part if v == joined else _cut(rewriter, v, from_end, start, stop) for v in operands]
        results.append(rewriter.emit(node.op, inputs, node.attrs, name=f"{output}.part{index}"))
        start = stop
    rewriter.become(output, "Concat", results, join.attrs)


def _cut(rewriter: Rewriter, value: str, axis: int, start: int, stop: int) -> str:
    """Return the name of a constant operand cut to elements ``start`` to ``stop`` of an axis, counted from the end."""
    constant = None if value == ABSENT else rewriter.constant_of(value)
    if constant is None or constant.ndim < -axis or constant.shape[axis] == 1:
        return value
    cut = np.take(constant, range(start, stop), axis=axis)
    return rewriter.constant(f"{value}.from{start}", cut)


__all__ = ["ApplyToParts"]
