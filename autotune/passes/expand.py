"""The dispatches of loops and branches in the places of their nodes."""

from __future__ import annotations

from autotune.graph.ir import Node
from autotune.graph.ops.branch import is_branch
from autotune.graph.ops.loop import is_loop
from autotune.passes.branches import expand_branches
from autotune.passes.expanded import Divide, Expanded
from autotune.passes.loops import expand_loop
from autotune.passes.partition import Dispatch, Partition


def with_graphs_inside(parts: Partition, body: Divide, branch: Divide) -> Partition:
    """Return the partition with dispatches of all steps and branches in place of their nodes; the same where none has
    a graph inside. ``body`` divides that of a loop, ``branch`` one of a branch."""
    if not any(_has_graphs(node) for dispatch in parts.dispatches for node in dispatch.region.graph.nodes):
        return parts
    into = Expanded(parts)
    for dispatch in parts.dispatches:
        _append(into, dispatch, body, branch)
    return into.finish()


def _has_graphs(node: Node) -> bool:
    return is_loop(node) or is_branch(node)


def _append(into: Expanded, dispatch: Dispatch, body: Divide, branch: Divide) -> None:
    (node, *others) = dispatch.region.graph.nodes
    if is_loop(node) and not others:
        expand_loop(into, dispatch, node, body)
    elif is_branch(node) and not others:
        expand_branches(into, dispatch, node, branch)
    else:
        into.dispatches.append(dispatch)


__all__ = ["with_graphs_inside"]
