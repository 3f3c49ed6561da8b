"""Grouped convolutions with an axis for their groups: one dispatch for all of them, without copying anything.

A group of a 1x1 convolution, or one of many groups, is a small product: a dispatch a group
(:mod:`autotune.passes.algorithms.split_groups`) would wake the workers for every one. Few groups with windows are left
to that:
plain convolutions may be computed by more algorithms. What comes before and after is the same values, their channels
apart by groups.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph
from autotune.passes.algorithms.split_groups import SplitGroups
from autotune.passes.base import GraphPass
from autotune.passes.fusion.group_chains import GroupChain, group_chains, is_pointwise, with_chains
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class GroupAxis(GraphPass):
    """Give channels-last convolutions of several groups an axis for these (not depthwise ones), where they have no
    window or at least ``many`` groups."""

    name: ClassVar[str] = "group_axis"
    many: int = SplitGroups.max_groups + 1

    def apply(self, graph: Graph) -> Graph:
        chains = (chain for chain in group_chains(graph, sys.maxsize) if self._is_taken(graph, chain))
        return with_chains(graph, (chain.without_shuffle() for chain in chains), _convert)

    def _is_taken(self, graph: Graph, chain: GroupChain) -> bool:
        conv, many = chain.nodes[0], chain.groups >= self.many
        return conv.op == "Conv" and (many or (is_pointwise(graph, conv) and not chain.is_shuffled))


def _convert(rewriter: Rewriter, chain: GroupChain) -> None:
    (conv, *rest), groups = chain.nodes, chain.groups
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
    """Return a value with its channels, the last dimension, apart by groups."""
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
