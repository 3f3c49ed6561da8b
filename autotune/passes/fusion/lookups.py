"""Lookups where they are read: rows, or matrices, of a table at indices that data hold.

A mixture of experts looks up the weights of those that a token goes to, and an embedding the rows of words. As a
dispatch of its own a lookup copies them; in its reader's it is an index.
"""

from __future__ import annotations

from autotune.graph import ops
from autotune.graph.ir import Graph, Node


def kept_axes(graph: Graph, node: Node) -> int:
    """Return the number of last axes that a lookup shares with its table; 0 of another node."""
    definition, table = ops.get(node.op), graph.type_of(node.inputs[0])
    if definition.role != "lookup":
        return 0
    axes = definition.indexed_axes(graph.input_types(node), node.attrs)
    return table.rank - 1 - max(axes, default=table.rank - 1)


def may_look_up(graph: Graph, reader: Node, anchor: Node | None, lookup: Node) -> bool:
    """Return whether a node of a dispatch with this anchor may read its operand through a lookup.

    Elementwise operations read rows, by themselves or before a reduction, and products whole matrices.
    """
    if reader is anchor:
        whole = kept_axes(graph, lookup) >= 2 and reader.inputs.count(lookup.outputs[0]) == 1
        return ops.get(reader.op).kind == "contraction" and whole
    alone = anchor is None or ops.get(anchor.op).kind == "reduction"
    return alone and ops.get(reader.op).role == "elementwise" and kept_axes(graph, lookup) >= 1


__all__ = ["kept_axes", "may_look_up"]
