"""Which values need no memory of their own, because they lie inside another value's memory.

Reshape and its kin, slices, and transposes that leave the last axis alone read their source through
other strides. A Concat or Interleave is turned around: its operands are written straight into it, so
that joining costs nothing. Where that is impossible the operation stays a dispatch that copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node, fresh_name
from autotune.graph.ops.interleave import phases
from autotune.passes.attributes import integer, ints, permutation
from autotune.strides import dense_strides

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
JOINS = ("Concat", "Interleave")
"""Operations whose operands are written straight into their result."""


@dataclass(frozen=True)
class Placement:
    """Where a value lies: in the memory of ``root``, from element ``offset`` on, with ``strides``."""

    root: str
    offset: int
    strides: tuple[int, ...]


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the strides are row-major; those of dimensions of extent 1 do not matter.

    >>> is_dense((1, 3, 4), (99, 4, 1)), is_dense((2, 3, 4), (99, 4, 1))
    (True, False)
    """
    dense = dense_strides(shape)
    return all(extent == 1 or a == b for extent, a, b in zip(shape, strides, dense, strict=True))


def separate_outputs(graph: Graph) -> Graph:
    """Give every graph output memory of its own: copy (Identity) those that would share it.

    An output that is a graph input, a constant, another output, or a reshape of one, needs a copy.
    """
    producers = graph.producers()
    claimed: set[str] = set()
    nodes, types = list(graph.nodes), dict(graph.types)
    for output in graph.outputs:
        source = _source(output, producers)
        if source in producers and source not in claimed:
            claimed.add(source)
            continue
        if output not in producers:
            continue  # an input or a constant as it is: the frontend's Identity was kept
        original = fresh_name(f"{output}.shared", types)
        types[original] = types[output]
        nodes = [node.renamed({output: original}) for node in nodes]
        nodes.append(Node("Identity", (original,), (output,)))
        producers = {v: node for node in nodes for v in node.present_outputs}
        claimed.add(output)
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.replace(nodes=tuple(nodes), types=types)


def _source(value: str, producers: Mapping[str, Node]) -> str:
    while value in producers and producers[value].op in RESHAPES:
        value = producers[value].inputs[0]
    return value


class ViewAnalysis:
    """Decides, node by node in graph order, what becomes a view; then resolves placements.

    ``views`` are the nodes without a dispatch, ``copies`` the operands that must be copied into a
    join that is otherwise made in place (operand positions by its output).
    """

    def __init__(self, graph: Graph, in_place_concat: bool = True, views: bool = True) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.consumers = graph.consumers()
        self.views: dict[str, Node] = {}  # first output -> node
        self.copies: dict[str, tuple[int, ...]] = {}
        self._inside: dict[str, tuple[Node, int]] = {}  # value -> (the view node it is part of, index)
        for node in graph.nodes:
            if node.op in RESHAPES:
                self._reshape(node, in_place_concat and views)
            elif not views:
                continue
            elif node.op == "Transpose":
                self._transpose(node)
            elif node.op in ("Slice", "Split"):
                self._slice(node)
            elif node.op in JOINS and in_place_concat:
                self._join(node)

    def is_view(self, node: Node) -> bool:
        """Whether a node has no dispatch."""
        return node.outputs[0] in self.views

    def placement(self, value: str) -> Placement:
        """Memory of a value."""
        found = self.graph.type_of(value)
        shape = found.shape
        if value in self._inside:
            node, index = self._inside[value]
            return self._operand_placement(node, index)
        producer = self.producers.get(value)
        if producer is None or not self.is_view(producer) or producer.op in JOINS:
            return Placement(value, 0, found.strides or dense_strides(shape))
        if self._reads_its_result(producer):
            return Placement(value, 0, dense_strides(shape))
        source = self.placement(producer.inputs[0])
        if producer.op in RESHAPES:
            return Placement(source.root, source.offset, dense_strides(shape))
        if producer.op == "Transpose":
            perm = permutation(producer, len(shape))
            return Placement(source.root, source.offset, tuple(source.strides[axis] for axis in perm))
        starts, steps = self._window(producer, producer.outputs.index(value))
        offset = sum(a * s for a, s in zip(starts, source.strides, strict=True))
        strides = tuple(s * step for s, step in zip(source.strides, steps, strict=True))
        return Placement(source.root, source.offset + offset, strides)

    def _add(self, node: Node) -> None:
        self.views[node.outputs[0]] = node

    def _reads_its_result(self, node: Node) -> bool:
        """Whether the node's source was placed inside its result, not the other way round."""
        inside = self._inside.get(node.inputs[0])
        return inside is not None and inside[0] is node

    def _may_be_strided(self, value: str) -> bool:
        if value in self.graph.outputs:
            return False
        return not any(reader.op in RESHAPES for reader in self.consumers[value])

    def _has_one_reader(self, value: str) -> bool:
        """Whether a dispatch writes the value, free to place it, for a single reader."""
        producer = self.producers.get(value)
        placeable = producer is not None and not self.is_view(producer)
        return placeable and value not in self._inside and len(self.consumers[value]) == 1

    def _reshape(self, node: Node, in_place_concat: bool) -> None:
        """Always a view; a column (a dimension of 1 added at the end) that a Concat weaves together
        with others is written in place."""
        self._add(node)
        source, (output,) = node.inputs[0], node.outputs
        woven = [reader.op for reader in self.consumers[output]] == ["Concat"]
        if not (in_place_concat and woven and self._is_column(node)):
            return
        if source not in self.graph.outputs and self._has_one_reader(source):
            self._inside[source] = (node, 0)

    def _is_column(self, node: Node) -> bool:
        shape = self.graph.type_of(node.inputs[0]).shape
        return self.graph.type_of(node.outputs[0]).shape == (*shape, 1)

    def _transpose(self, node: Node) -> None:
        source, (output,) = node.inputs[0], node.outputs
        rank = self.graph.type_of(source).rank
        if not rank or permutation(node, rank)[-1] != rank - 1:
            return
        if self._may_be_strided(output):
            self._add(node)
        elif self._may_be_strided(source) and self._has_one_reader(source):
            self._add(node)
            self._inside[source] = (node, 0)

    def _slice(self, node: Node) -> None:
        if node.inputs[0] in self.graph.constants:
            return
        steps = self._window(node, 0)[1]
        regular = all(step > 0 for step in steps) and steps[-1:] in ((), (1,))
        if regular and all(self._may_be_strided(output) for output in node.present_outputs):
            self._add(node)

    def _join(self, node: Node) -> None:
        (output,) = node.outputs
        fitting = [
            index
            for index, operand in enumerate(node.inputs)
            if node.inputs.count(operand) == 1 and self._may_be_strided(operand) and self._fits(operand)
        ]
        if not fitting:
            return
        self._add(node)
        for index in fitting:
            self._inside[node.inputs[index]] = (node, index)
        self.copies[output] = tuple(i for i in range(len(node.inputs)) if i not in fitting)

    def _fits(self, operand: str) -> bool:
        """Whether the operand can be placed: written by a dispatch, a join made in place, or a
        view whose source was placed inside it."""
        producer = self.producers.get(operand)
        if producer is None or operand in self._inside:
            return False
        if not self.is_view(producer) or producer.op in JOINS:
            return True
        return self._reads_its_result(producer)

    def _operand_placement(self, node: Node, index: int) -> Placement:
        """Placement of a value that is written into the result of ``node``."""
        result = self.placement(node.outputs[0])
        if node.op in RESHAPES:
            return Placement(result.root, result.offset, result.strides[:-1])
        if node.op == "Transpose":
            perm = permutation(node, len(result.strides))
            strides = tuple(result.strides[perm.index(axis)] for axis in range(len(perm)))
            return Placement(result.root, result.offset, strides)
        if node.op == "Interleave":
            return _phase_placement(result, ints(node, "strides"), index)
        axis = integer(node, "axis") % len(result.strides)
        start = sum(self.graph.type_of(v).shape[axis] for v in node.inputs[:index])
        offset = result.offset + start * result.strides[axis]
        return Placement(result.root, offset, result.strides)

    def copy_placement(self, node: Node, index: int) -> Placement:
        """Where the copied operand ``index`` of a join made in place goes."""
        return self._operand_placement(node, index)

    def _window(self, node: Node, part: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Start and step of each dimension that output ``part`` of a Slice or Split reads."""
        shape = self.graph.type_of(node.inputs[0]).shape
        starts, steps = [0] * len(shape), [1] * len(shape)
        if node.op == "Split":
            axis = integer(node, "axis", 0) % len(shape)
            starts[axis] = sum(self.graph.type_of(v).shape[axis] for v in node.outputs[:part])
        else:
            given = ints(node, "starts")
            axes = ints(node, "axes") or tuple(range(len(given)))
            for i, axis in enumerate(axes):
                step = (ints(node, "steps") or (1,) * len(axes))[i]
                extent = shape[axis]
                steps[axis] = step
                starts[axis] = slice(given[i], None, step).indices(extent)[0]
        return tuple(starts), tuple(steps)


def _phase_placement(result: Placement, strides: Sequence[int], index: int) -> Placement:
    """Operand ``index`` of an Interleave: every stride-th row, from its phase on."""
    phase = phases(strides)[index]
    spatial = result.strides[1:-1]
    offset = result.offset + sum(p * step for p, step in zip(phase, spatial, strict=True))
    wider = (s * step for s, step in zip(strides, spatial, strict=True))
    return Placement(result.root, offset, (result.strides[0], *wider, result.strides[-1]))


__all__ = [
    "JOINS",
    "RESHAPES",
    "Placement",
    "ViewAnalysis",
    "is_dense",
    "separate_outputs",
]
