"""Channel shuffles move down to the grouped 1x1 convolution that reads them.

A shuffle copies, and a convolution that writes its channels where a shuffle wants them writes them one by one. But a
1x1 convolution reads channels one by one anyway, and so in any order. What lies between commutes with the shuffle if
it keeps channels apart (depthwise convolutions, elementwise operations with a number a channel) and has its own
numbers in the order of before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.graph import ops
from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.fusion.group_chains import is_pointwise
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class SinkShuffles(GraphPass):
    """Compute what keeps channels apart before the channels-last shuffle ahead of it, not after."""

    name: ClassVar[str] = "sink_shuffles"

    def apply(self, graph: Graph) -> Graph:
        found = ((node, _passed(graph, node)) for node in graph.nodes if node.op == "ChannelShuffle")
        sunk = {shuffle.outputs[0]: passed for shuffle, passed in found if passed}
        after = {node.outputs[0] for passed in sunk.values() for node in passed}
        rewriter = Rewriter(graph)
        for node in rewriter.walk():
            if node.outputs[0] in sunk:
                _sink(rewriter, node, sunk[node.outputs[0]])
            elif node.outputs[0] not in after:
                rewriter.keep(node)
        return rewriter.finish()


def _passed(graph: Graph, shuffle: Node) -> list[Node]:
    """Return the nodes between a shuffle and the grouped 1x1 convolution that can read it; empty if there is none."""
    consumers, (value,) = graph.consumers(), shuffle.outputs
    passed = list[Node]()
    while is_channels_last(shuffle) and value not in graph.outputs and len(consumers[value]) == 1:
        (node,) = consumers[value]
        if is_pointwise(graph, node):
            return passed
        if not _keeps_channels_apart(graph, node, value):
            break
        passed.append(node)
        (value,) = node.outputs
    return []


def _keeps_channels_apart(graph: Graph, node: Node, value: str) -> bool:
    """Return whether a node computes each channel of a value from that alone, and numbers of the channel's own."""
    channels, definition = graph.type_of(value).shape[-1], ops.get(node.op)
    numbers = [graph.constants.get(v) for v in node.present_inputs if v != value]
    if len(node.outputs) != 1 or node.inputs.count(value) != 1:
        return False
    if any(one is None or one.shape[-1:] not in ((), (1,), (channels,)) for one in numbers):
        return False
    result = graph.type_of(node.outputs[0]).shape
    if definition.pointwise:
        return result == graph.type_of(value).shape
    kind = definition.workload_kind(graph.input_types(node), node.attrs)
    return kind == "depthwise" and is_channels_last(node) and result[-1] == channels


def _sink(rewriter: Rewriter, shuffle: Node, passed: list[Node]) -> None:
    before = _places(rewriter.graph.type_of(shuffle.outputs[0]).shape[-1], integer(shuffle, "groups"))
    value, result = shuffle.outputs[0], rewriter.current(shuffle.inputs[0])
    for node in passed:
        operands = [result if v == value else _ordered(rewriter, v, before) for v in node.present_inputs]
        (value,) = node.outputs
        result = rewriter.emit(node.op, operands, node.attrs, name=f"{value}.unshuffled")
    rewriter.become(value, shuffle.op, [result], shuffle.attrs)


def _places(channels: int, groups: int) -> NDArray[np.intp]:
    """Return for each channel before a shuffle its place after it."""
    return np.arange(channels).reshape(channels // groups, groups).T.ravel()


def _ordered(rewriter: Rewriter, value: str, order: NDArray[np.intp]) -> str:
    """Return a constant with its last dimension in another order, if that is the channels."""
    name = rewriter.current(value)
    array = rewriter.constants[name]
    if array.shape[-1:] != order.shape:
        return name
    return rewriter.constant(f"{value}.unshuffled", np.ascontiguousarray(array[..., order]))


__all__ = ["SinkShuffles"]
