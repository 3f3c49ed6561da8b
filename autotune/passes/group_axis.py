"""Grouped convolutions with an axis for their groups: one dispatch for all of them, without copying anything.

A group of a 1x1 convolution, or one of many groups, is a small product: a dispatch a group
(:mod:`autotune.passes.split_groups`) would wake the workers for every one. Few groups with windows are left to that:
plain convolutions may be computed by more algorithms. What comes before and after is the same values, their channels
apart by groups.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph, Node
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.group_chains import GroupChain, group_chains, is_pointwise
from autotune.passes.rewriter import Rewriter
from autotune.passes.split_groups import SplitGroups


@dataclass(frozen=True)
class GroupAxis(GraphPass):
    """Give channels-last convolutions of several groups an axis for these (not depthwise ones), where they have no
    window or at least ``many`` groups."""

    name: ClassVar[str] = "group_axis"
    many: int = SplitGroups.max_groups + 1

    def apply(self, graph: Graph) -> Graph:
        chains = (self._taken(graph, chain) for chain in group_chains(graph, sys.maxsize))
        ends = {nodes[-1].outputs[0]: nodes for nodes in chains if nodes}
        inside = {node.outputs[0] for nodes in ends.values() for node in nodes}
        rewriter = Rewriter(graph)
        for node in rewriter.walk():
            nodes = ends.get(node.outputs[0])
            if nodes is not None:
                _convert(rewriter, nodes)
            elif node.outputs[0] not in inside:
                rewriter.keep(node)
        return rewriter.finish()

    def _taken(self, graph: Graph, chain: GroupChain) -> tuple[Node, ...]:
        """The nodes that get the axis; no shuffle is among them."""
        conv, many = chain.nodes[0], chain.groups >= self.many
        if conv.op != "Conv" or not (many or (is_pointwise(graph, conv) and not chain.is_shuffled)):
            return ()
        return chain.nodes[:-1] if chain.is_shuffled else chain.nodes


def _convert(rewriter: Rewriter, nodes: Sequence[Node]) -> None:
    conv, *rest = nodes
    groups = integer(conv, "group")
    x, weights = (rewriter.current(v) for v in conv.inputs)
    (value,) = conv.outputs
    attrs = {key: conv.attrs[key] for key in ("kernel_shape", "strides", "dilations", "pads")}
    apart = _apart(rewriter, weights, groups)
    result = rewriter.emit("GroupedConv", [x, apart], attrs, name=f"{value}.groups")
    for node in rest:
        operands = [
            result if v == value else _apart(rewriter, rewriter.current(v), groups)
            for v in node.present_inputs
        ]
        (value,) = node.outputs
        result = rewriter.emit(node.op, operands, node.attrs, name=f"{value}.groups")
    shape = rewriter.graph.type_of(value).shape
    rewriter.become(value, "Reshape", [result], {"shape": shape})


def _apart(rewriter: Rewriter, value: str, groups: int) -> str:
    """A value with its channels, the last dimension, apart by groups."""
    shape = rewriter.type_of(value).shape
    if not shape:
        return value
    *outer, channels = shape
    apart: tuple[int, ...] = (*outer, 1, 1) if channels == 1 else (*outer, groups, channels // groups)
    array = rewriter.constant_of(value)
    if array is not None:
        return rewriter.constant(f"{value}.groups", array.reshape(apart))
    attrs: dict[str, Attr] = {"shape": apart}
    return rewriter.emit("Reshape", [value], attrs, name=f"{value}.groups")


__all__ = ["GroupAxis"]
