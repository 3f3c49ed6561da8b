"""Grouped convolutions with what may be computed group by group after them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from autotune.graph import ops
from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class GroupChain:
    """A grouped convolution, elementwise operations after it, and perhaps a shuffle of its groups."""

    nodes: tuple[Node, ...]
    groups: int

    @property
    def is_shuffled(self) -> bool:
        """Return whether it ends with a shuffle."""
        return self.nodes[-1].op == "ChannelShuffle"

    def without_shuffle(self) -> GroupChain:
        """Return the nodes before the shuffle, or all where there is none."""
        return replace(self, nodes=self.nodes[:-1]) if self.is_shuffled else self


def group_chains(graph: Graph, max_groups: int) -> Iterator[GroupChain]:
    """Yield those of channels-last convolutions of 2 to ``max_groups`` groups with constant weights, no
    depthwise ones."""
    consumers = graph.consumers()
    taken: set[str] = set()
    for node in graph.nodes:
        if not _is_grouped(graph, node, max_groups):
            continue
        chain, groups = [node], integer(node, "group")
        while True:
            value = chain[-1].outputs[0]
            readers = consumers[value]
            if value in graph.outputs or len(readers) != 1 or readers[0].outputs[0] in taken:
                break
            if not _goes_along(graph, readers[0], value, groups):
                break
            chain.append(readers[0])
            if chain[-1].op == "ChannelShuffle":
                break
        taken.update(member.outputs[0] for member in chain)
        yield GroupChain(tuple(chain), groups)


def with_chains(
    graph: Graph, chains: Iterable[GroupChain], convert: Callable[[Rewriter, GroupChain], None]
) -> Graph:
    """Return the graph with each of the chains converted as a whole, in the place of its last node."""
    ends = {chain.nodes[-1].outputs[0]: chain for chain in chains}
    inside = {node.outputs[0] for chain in ends.values() for node in chain.nodes}
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        chain = ends.get(node.outputs[0])
        if chain is not None:
            convert(rewriter, chain)
        elif node.outputs[0] not in inside:
            rewriter.keep(node)
    return rewriter.finish()


def is_pointwise(graph: Graph, node: Node) -> bool:
    """Return whether a node is a channels-last 1x1 convolution of several groups, with constant weights."""
    if node.op != "Conv" or not _is_grouped(graph, node, sys.maxsize):
        return False
    return set(ints(node, "kernel_shape")) == {1} and not any(ints(node, "pads"))


def _is_grouped(graph: Graph, conv: Node, max_groups: int) -> bool:
    definition = ops.get(conv.op)
    if definition.weights is None or not definition.weights.outputs_of_all_groups:
        return False
    biased = definition.bias_input is not None and len(conv.inputs) > definition.bias_input
    if biased or not 1 < integer(conv, "group") <= max_groups or not is_channels_last(conv):
        return False
    weight = graph.constants.get(conv.inputs[1])
    return weight is not None and weight.shape[-2] > 1


def _goes_along(graph: Graph, node: Node, value: str, groups: int) -> bool:
    """Return whether a node after the convolution can be computed group by group."""
    shape = graph.type_of(value).shape
    if node.op == "ChannelShuffle":
        readers = graph.consumers()[node.outputs[0]]
        sunk = len(readers) == 1 and is_pointwise(graph, readers[0])
        return is_channels_last(node) and integer(node, "groups") == groups and not sunk
    if not ops.get(node.op).pointwise or len(node.outputs) != 1:
        return False
    if graph.type_of(node.outputs[0]).shape != shape or node.inputs.count(value) != 1:
        return False
    return all(operand == value or _is_divisible(graph, operand, shape) for operand in node.present_inputs)


def _is_divisible(graph: Graph, operand: str, shape: tuple[int, ...]) -> bool:
    own = graph.type_of(operand).shape
    if operand in graph.constants:
        return not own or own[-1] in (1, shape[-1])
    return own == shape


__all__ = ["GroupChain", "group_chains", "is_pointwise", "with_chains"]
