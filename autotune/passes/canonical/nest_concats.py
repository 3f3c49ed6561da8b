"""Concatenations that begin, end or go on with the operands of another one: take that one as an operand.

Networks whose layers read all features before them (DenseNet, as PyTorch exports it) join the same values
again and again: (a, b), then (a, b, c), then (a, b, c, d). A value can lie in one place only; nested, all
of them are one memory, of which each layer reads a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter

Known = dict[tuple[int, str], dict[tuple[str, ...], str]]
"""Concatenations by axis and first operand: their operands, and what they are called."""


@dataclass(frozen=True)
class NestConcats(GraphPass):
    """Replace the longest runs of operands that an earlier Concat of the same axis joins by its result.

    Concat(a, b, c) after d = Concat(a, b) becomes Concat(d, c).
    """

    name: ClassVar[str] = "nest_concats"

    def apply(self, graph: Graph) -> Graph:
        rewriter, known = Rewriter(graph), Known()
        for node in rewriter.walk():
            if node.op != "Concat":
                rewriter.keep(node)
                continue
            axis, operands = integer(node, "axis"), tuple(rewriter.current(v) for v in node.inputs)
            nested = _nested(operands, axis, known)
            if nested == operands:
                rewriter.keep(node)
            else:
                rewriter.become(node.outputs[0], "Concat", nested, node.attrs)
            known.setdefault((axis, operands[0]), {}).setdefault(operands, node.outputs[0])
        return rewriter.finish()


def _nested(operands: tuple[str, ...], axis: int, known: Known) -> tuple[str, ...]:
    nested, at = list[str](), 0
    while at < len(operands):
        joins = known.get((axis, operands[at]), {})
        fitting = [
            run for run in joins if 1 < len(run) < len(operands) and operands[at : at + len(run)] == run
        ]
        run = max(fitting, key=len, default=())
        nested.append(joins[run] if run else operands[at])
        at += len(run) or 1
    return tuple(nested)


__all__ = ["NestConcats"]
