"""Products that read the same value become one, with the columns of all of them side by side.

The projections of queries, keys and values read one input; so do convolutions at the head of branches. Together their
input is packed and read once, the tiles of the product are wider, and there is one dispatch to start. What reads one of
them reads a slice of the columns, in place (see ``views``). Whether they stay together is an option of the product
(:mod:`autotune.passes.algorithms.columns_apart`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.fusion.fuse import FusionGroup, fuse
from autotune.passes.layout.views import ViewAnalysis, view_kind
from autotune.passes.origins import union
from autotune.passes.rewriter import Rewriter

MOST_FLOPS = 1 << 26
"""Of a product that is merged: more take a hundred times what starting a dispatch does. Three of 128x768x768 took 2 to
4 % longer as one, on one core."""

Family = tuple[FusionGroup, ...]
"""Groups of nodes that differ in constants, and in the number of their columns."""


@dataclass(frozen=True)
class SiblingProducts(GraphPass):
    """Merge products and convolutions of one value by constants, with the same elementwise operations after them.

    Only where every result can be a slice in place: one that is joined with others, or returned, has a place already.
    """

    name: ClassVar[str] = "sibling_products"

    def apply(self, graph: Graph) -> Graph:
        graph = graph.pruned()  # what nobody reads is not there when it is merged
        families = _families(graph)
        while families:
            merged = _merged(graph, families)
            views, producers = ViewAnalysis(merged), merged.producers()
            fitting = [family for family in families if views.is_view(producers[_ends(family)[0]])]
            if len(fitting) == len(families):
                return merged
            families = fitting
        return graph


def has_columns(graph: Graph, node: Node) -> bool:
    """Return whether each column of a node's result, its last axis, is made with the same column of its
    constants alone."""
    if node.op not in ("MatMul", "Conv") or not graph.constants.keys() >= {*node.present_inputs[1:]}:
        return False
    if node.op == "Conv":
        return is_channels_last(node) and integer(node, "group") == 1
    return graph.type_of(node.inputs[0]).rank >= 2 and graph.type_of(node.inputs[1]).rank == 2


def keeps_columns(graph: Graph, node: Node) -> bool:
    """Return whether a node after it makes each column of its result of the same columns of its operands."""
    (output, *others) = node.outputs
    axis = node.attrs.get("axis", graph.type_of(output).rank - 1)
    return ops.get(node.op).pointwise and not others and axis == graph.type_of(output).rank - 1


def _families(graph: Graph) -> list[Family]:
    readers: dict[object, list[str]] = {}
    for node in graph.nodes:
        if has_columns(graph, node) and _is_small(graph, node):
            alike = node.inputs[0], node.op, tuple(node.attrs.items())
            readers.setdefault(alike, []).append(node.outputs[0])
    candidates = {output for outputs in readers.values() if len(outputs) > 1 for output in outputs}
    if not candidates:
        return []
    found, consumers = dict[object, list[FusionGroup]](), graph.consumers()
    for group in fuse(graph, ViewAnalysis(graph)):
        if group.nodes[0].outputs[0] in candidates and _is_sliceable(graph, group, consumers):
            found.setdefault(_structure(graph, group), []).append(group)
    return [tuple(groups) for groups in found.values() if len(groups) > 1]


def _is_small(graph: Graph, node: Node) -> bool:
    return ops.get(node.op).flops(graph.input_types(node), node.attrs) <= MOST_FLOPS


def _is_sliceable(graph: Graph, group: FusionGroup, consumers: Mapping[str, Sequence[Node]]) -> bool:
    """Return whether a group reads one value but for constants, and its result needs no place of its own."""
    product, *rest = group.nodes
    made = {v for node in group.nodes for v in node.present_outputs}
    given = {*made, product.inputs[0], *graph.constants}
    (result,) = group.nodes[-1].outputs
    return (
        product.inputs[0] not in graph.constants
        and all(given.issuperset(node.present_inputs) for node in group.nodes)
        and all(product.inputs[0] not in node.inputs and keeps_columns(graph, node) for node in rest)
        and result not in graph.outputs
        and not any(view_kind(reader) == "join" for reader in consumers[result])
    )


def _structure(graph: Graph, group: FusionGroup) -> object:
    """Return the structure that members of a family have in common."""
    product = group.nodes[0]
    columns = graph.type_of(product.outputs[0]).shape[-1]
    made = {node.outputs[0]: number for number, node in enumerate(group.nodes)}

    def operand(value: str) -> object:
        if value in made or value in (ABSENT, product.inputs[0]):
            return made.get(value, value)
        *leading, last = (1, *graph.type_of(value).shape)
        return graph.type_of(value).dtype, tuple(leading), "columns" if last == columns else last

    return tuple((n.op, tuple(n.attrs.items()), tuple(map(operand, n.inputs))) for n in group.nodes)


def _ends(family: Family) -> tuple[str, ...]:
    return tuple(group.nodes[-1].outputs[0] for group in family)


def _merged(graph: Graph, families: Iterable[Family]) -> Graph:
    first = {family[0].nodes[0].outputs[0]: family for family in families}
    members = {node.outputs[0] for family in first.values() for group in family for node in group.nodes}
    rewriter, joined = Rewriter(graph), dict[tuple[str, ...], str]()
    for node in rewriter.walk():
        family = first.get(node.outputs[0])
        if family is not None:
            _merge(rewriter, family, joined)
        elif node.outputs[0] not in members:
            rewriter.keep(node)
    return rewriter.finish()


def _merge(rewriter: Rewriter, family: Family, joined: dict[tuple[str, ...], str]) -> None:
    """Merge a family to one group, and a Split of its result; ``joined`` has what constants became by their names."""
    graph = rewriter.graph
    columns = [graph.type_of(end).shape[-1] for end in _ends(family)]
    made: dict[str, str] = {}
    for nodes in zip(*(group.nodes for group in family), strict=True):
        model, inputs = nodes[0], list[str]()
        for values in zip(*(node.inputs for node in nodes), strict=True):
            if values[0] in graph.constants:
                inputs.append(_side_by_side(rewriter, values, columns, joined))
            else:
                inputs.append(made.get(values[0]) or rewriter.current(values[0]))
        output = rewriter.fresh(f"{model.outputs[0]}.siblings")
        origins = union(*(node.origins for node in nodes))
        attrs = model.attrs if made else {**model.attrs, "columns": tuple(columns)}
        rewriter.add(Node(model.op, tuple(inputs), (output,), attrs, origins=origins))
        made[model.outputs[0]] = output
    rank = rewriter.type_of(output).rank
    rewriter.add(Node("Split", (output,), _ends(family), {"axis": rank - 1, "split": tuple(columns)}))


def _side_by_side(
    rewriter: Rewriter, values: tuple[str, ...], columns: Sequence[int], joined: dict[tuple[str, ...], str]
) -> str:
    if values not in joined:
        arrays = [rewriter.graph.constants[v] for v in values]
        alike = all(_has_no_columns(array) and np.array_equal(array, arrays[0]) for array in arrays)
        joined[values] = (
            values[0] if alike else rewriter.constant(f"{values[0]}.siblings", _joined(arrays, columns))
        )
    return joined[values]


def _has_no_columns(array: Array) -> bool:
    return not array.ndim or array.shape[-1] == 1


def _joined(arrays: Iterable[Array], columns: Iterable[int]) -> Array:
    """Return the columns of arrays; one that has none has the same number in each."""
    wide = [np.broadcast_to(a, (*a.shape[:-1], n)) for a, n in zip(arrays, columns, strict=True)]
    return np.concatenate(wide, axis=-1)


__all__ = ["SiblingProducts", "has_columns", "keeps_columns"]
