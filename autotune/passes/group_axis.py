"""Grouped 1x1 convolutions with an axis for their groups: one dispatch for all of them, without copying anything.

A group of a 1x1 convolution is a small product: a dispatch a group (:mod:`autotune.passes.split_groups`) would wake
the workers for every one. Windows are left to that: plain convolutions may be computed by more algorithms. What
comes before and after is the same values, their channels apart by groups.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph
from autotune.passes.base import GraphPass
from autotune.passes.group_chains import GroupChain, group_chains, is_pointwise
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class GroupAxis(GraphPass):
    """Give channels-last 1x1 convolutions of several groups an axis for these (not depthwise ones)."""

    name: ClassVar[str] = "group_axis"

    def apply(self, graph: Graph) -> Graph:
        chains = [c for c in group_chains(graph, sys.maxsize) if is_pointwise(graph, c.nodes[0])]
        ends = {chain.nodes[-1].outputs[0]: chain for chain in chains if not chain.is_shuffled}
        inside = {node.outputs[0] for chain in ends.values() for node in chain.nodes}
        rewriter = Rewriter(graph)
        for node in rewriter.walk():
            chain = ends.get(node.outputs[0])
            if chain is not None:
                _convert(rewriter, chain)
            elif node.outputs[0] not in inside:
                rewriter.keep(node)
        return rewriter.finish()


def _convert(rewriter: Rewriter, chain: GroupChain) -> None:
    conv, *rest = chain.nodes
    x, weights = (rewriter.current(v) for v in conv.inputs)
    (value,) = conv.outputs
    attrs = {key: conv.attrs[key] for key in ("kernel_shape", "strides", "dilations", "pads")}
    apart = _apart(rewriter, weights, chain.groups)
    result = rewriter.emit("GroupedConv", [x, apart], attrs, name=f"{value}.groups")
    for node in rest:
        operands = [
            result if v == value else _apart(rewriter, rewriter.current(v), chain.groups)
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
