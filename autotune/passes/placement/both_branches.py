"""Both branches computed where devices cannot choose one: commands that are recorded for a device all run."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import GraphError
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.graph.ops.branch import BranchParts, is_branch
from autotune.passes.graphs_inside import with_graphs_changed
from autotune.passes.rewriter import Rewriter, rewrite


def without_choices(graph: Graph) -> Graph:
    """Return a graph for several devices: y = If(c, x...) becomes Where(c, then(x...), else(x...)), in loops, too.

    Raises GraphError for a branch that is refused: nothing would say that it was chosen.
    """
    while any(map(is_branch, graph.nodes)):
        graph = rewrite(graph, _both)
    return with_graphs_changed(graph, without_choices)


def _both(rewriter: Rewriter, node: Node) -> bool:
    if not is_branch(node):
        return False
    parts = BranchParts.of(node.attrs)
    if parts.refusal:
        raise GraphError(f"a model on named devices cannot refuse a branch: {parts.refusal}")
    sides = [
        _inlined(rewriter, f"{node.present_outputs[0]}.{'then' if wanted else 'else'}", graph, given)
        for wanted, graph, given in parts.graphs(node)
    ]
    condition = rewriter.current(node.inputs[0])
    for yes, no, output in zip(*sides, node.outputs, strict=True):
        if output != ABSENT:
            rewriter.become(output, "Where", (condition, yes, no))
    return True


def _inlined(rewriter: Rewriter, prefix: str, graph: Graph, given: Sequence[str]) -> list[str]:
    """Add the nodes of a graph on these values; returns its results."""
    names = dict(zip(graph.inputs, map(rewriter.current, given), strict=True))
    for node in graph.nodes:
        names |= {value: rewriter.fresh(f"{prefix}.{value}") for value in node.present_outputs}
        rewriter.add(node.renamed(names))
    return [names[value] for value in graph.outputs]


__all__ = ["without_choices"]
