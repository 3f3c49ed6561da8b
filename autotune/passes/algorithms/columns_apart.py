"""An option of sibling products: those that were joined may be computed one by one.

They were joined by :mod:`autotune.passes.algorithms.sibling_products`.

What each of them writes is a part of the whole in place, so nothing is copied. Together they read their input once;
apart, each has weights and results that stay in a nearer cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.algorithms.sibling_products import has_columns, keeps_columns
from autotune.passes.attributes import ints
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class ColumnsApart(Algorithm):
    """Divide a product by its ``columns``, and what follows it, into a dispatch for each of them."""

    name: ClassVar[str] = "columns_apart"
    label = "columns apart"
    speculative = True  # estimates have not been seen to find where it is faster
    error = 0.0  # the same sums

    def apply(self, graph: Graph) -> Graph:
        before, nodes = _siblings(graph)
        if not nodes:
            return graph
        columns = ints(nodes[0], "columns")
        rewriter = Rewriter(graph)
        divided: dict[str, tuple[str, ...]] = {}
        for node in rewriter.walk():
            if node in before:
                rewriter.keep(node)
            else:
                divided[node.outputs[0]] = _each(rewriter, node, columns, divided)
        (output,) = graph.outputs
        rewriter.become(output, "Concat", divided[output], {"axis": graph.type_of(output).rank - 1})
        return rewriter.finish()


def _siblings(graph: Graph) -> tuple[Sequence[Node], Sequence[Node]]:
    """Return the nodes that prepare the operand of siblings, and the siblings with what follows, if one
    can be computed alone."""
    start = next((i for i, node in enumerate(graph.nodes) if "columns" in node.attrs), len(graph.nodes))
    before, nodes = graph.nodes[:start], graph.nodes[start:]
    fits = nodes and has_columns(graph, nodes[0]) and len(graph.outputs) == 1
    return (before, nodes) if fits and all(keeps_columns(graph, node) for node in nodes[1:]) else (before, ())


def _each(
    rewriter: Rewriter, node: Node, columns: Sequence[int], divided: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the node for each sibling; ``divided`` has the values that were made for them."""
    whole = () if divided else node.inputs[:1]  # all siblings read the first operand of a product
    operands = [
        (value,) * len(columns) if value in whole else divided.get(value) or _parts(rewriter, value, columns)
        for value in node.inputs
    ]
    attrs = {key: value for key, value in node.attrs.items() if key != "columns"}
    return tuple(
        rewriter.emit(node.op, inputs, attrs, name=f"{node.outputs[0]}.columns{number}")
        for number, inputs in enumerate(zip(*operands, strict=True))
    )


def _parts(rewriter: Rewriter, value: str, columns: Sequence[int]) -> tuple[str, ...]:
    """Return the part of an operand that each sibling reads: its own columns, if there are so many."""
    shape = () if value == ABSENT else rewriter.type_of(value).shape
    if shape[-1:] != (sum(columns),):
        return (value,) * len(columns)
    names = tuple(rewriter.fresh(f"{value}.columns{number}") for number in range(len(columns)))
    rewriter.add(Node("Split", (value,), names, {"axis": len(shape) - 1, "split": tuple(columns)}))
    return names


__all__ = ["ColumnsApart"]
