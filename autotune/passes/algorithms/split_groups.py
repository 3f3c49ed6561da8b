"""Grouped convolutions as one plain convolution a group, without copying anything.

Group i reads its slice of the channels and writes its slice of the result (see ``views``: a Split
is read in place, a Concat is written in place), so every group is the same well-tiled workload. The
elementwise operations after the convolution go along, group by group. A channel shuffle after them
vanishes: the groups write their channels interleaved. 1x1 convolutions have an axis for their groups by then, where
nothing shuffles them (:mod:`autotune.passes.layout.group_axis`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Attr, Graph, Node
from autotune.passes.base import GraphPass
from autotune.passes.fusion.group_chains import GroupChain, group_chains, with_chains
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class SplitGroups(GraphPass):
    """Split channels-last convolutions of 2 to ``max_groups`` groups (not depthwise ones)."""

    name: ClassVar[str] = "split_groups"
    max_groups: int = 8

    def apply(self, graph: Graph) -> Graph:
        return with_chains(graph, group_chains(graph, self.max_groups), _split)


def _split(rewriter: Rewriter, chain: GroupChain) -> None:
    conv, *rest = chain.nodes
    (value,) = conv.outputs
    results = _convolutions(rewriter, conv, chain.groups)
    for node in rest[:-1] if chain.is_shuffled else rest:
        results = _elementwise(rewriter, node, value, results, chain.groups)
        (value,) = node.outputs
    (output,) = chain.nodes[-1].outputs
    if not chain.is_shuffled:
        rewriter.become(output, "Concat", results, {"axis": rewriter.type_of(results[0]).rank - 1})
        return
    columns = [
        rewriter.emit(
            "Reshape", [result], {"shape": (*rewriter.type_of(result).shape, 1)}, name=f"{result}.column"
        )
        for result in results
    ]
    rank = rewriter.type_of(columns[0]).rank
    woven = rewriter.emit("Concat", columns, {"axis": rank - 1}, name=f"{output}.woven")
    shape = rewriter.graph.type_of(output).shape
    rewriter.become(output, "Reshape", [woven], {"shape": shape})


def _convolutions(rewriter: Rewriter, conv: Node, groups: int) -> list[str]:
    parts = _parts(rewriter, rewriter.current(conv.inputs[0]), groups)
    weights = np.split(rewriter.constants[rewriter.current(conv.inputs[1])], groups, axis=-1)
    shared = [rewriter.current(v) for v in conv.inputs[2:]]
    attrs = {key: value for key, value in conv.attrs.items() if key != "group"}
    results = []
    for i, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        name = rewriter.constant(f"{conv.inputs[1]}.group{i}", np.ascontiguousarray(weight))
        inputs = [part, name, *shared]
        results.append(rewriter.emit(conv.op, inputs, attrs, name=f"{conv.outputs[0]}.group{i}"))
    return results


def _elementwise(rewriter: Rewriter, node: Node, value: str, results: list[str], groups: int) -> list[str]:
    """Return one node for each group; ``results`` stand for its operand ``value``."""
    operands = [
        results if v == value else _parts(rewriter, rewriter.current(v), groups) for v in node.present_inputs
    ]
    return [
        rewriter.emit(node.op, inputs, node.attrs, name=f"{node.outputs[0]}.group{i}")
        for i, inputs in enumerate(zip(*operands, strict=True))
    ]


def _parts(rewriter: Rewriter, value: str, groups: int) -> list[str]:
    """Return the channels of each group: slices of a constant, or parts of a Split."""
    shape = rewriter.type_of(value).shape
    array = rewriter.constant_of(value)
    if array is not None:
        if not shape or shape[-1] == 1:
            return [value] * groups
        slices = np.split(array, groups, axis=-1)
        return [
            rewriter.constant(f"{value}.group{i}", np.ascontiguousarray(part))
            for i, part in enumerate(slices)
        ]
    names = tuple(rewriter.fresh(f"{value}.group{i}") for i in range(groups))
    sizes = (shape[-1] // groups,) * groups
    attrs: dict[str, Attr] = {"axis": len(shape) - 1, "split": sizes}
    rewriter.add(Node("Split", (value,), names, attrs))
    return list(names)


__all__ = ["SplitGroups"]
