"""Values that need no memory of their own, because they lie inside another value's memory.

Reshape and its kin, slices, and transposes that leave the last axis alone read their source through
other strides. A Concat or Interleave is turned around: its operands are written straight into it, so
that joining costs nothing; a Reshape or Transpose between is turned around with them. Where strides
cannot express that (a reshape that would merge dimensions with a gap between, an operand that is an
output or lies in another join) the operation, or the one operand, stays a dispatch that copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import InternalError
from autotune.graph import ops
from autotune.graph.ir import Graph, Node, fresh_name
from autotune.graph.ops.definition import ViewKind
from autotune.graph.ops.facts import Part
from autotune.strides import dense_strides, reshaped_strides


@dataclass(frozen=True)
class Placement:
    """The memory of a value: that of ``root``, from element ``offset`` on, with ``strides``."""

    root: str
    offset: int
    strides: tuple[int, ...]

    def part(self, part: Part) -> Placement:
        """Return the memory of a part of the value."""
        offset, strides = part.placed(self.strides)
        return Placement(self.root, self.offset + offset, strides)


def view_kind(node: Node) -> ViewKind | None:
    """Return the way in which a node's operand and result can share memory, if at all."""
    return ops.get(node.op).view


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the strides are row-major; those of dimensions of extent 1 do not matter.

    >>> is_dense((1, 3, 4), (99, 4, 1)), is_dense((2, 3, 4), (99, 4, 1))
    (True, False)
    """
    dense = dense_strides(shape)
    return all(extent == 1 or a == b for extent, a, b in zip(shape, strides, dense, strict=True))


def separate_outputs(graph: Graph) -> Graph:
    """Give every graph output a node and memory of its own: copy (Identity) those that have none.

    An output that is a graph input, a constant, another output, or a reshape of one, needs a copy. What
    is no node's result, or named as an output before, is copied under a fresh name.
    """
    producers = graph.producers()
    claimed: set[str] = set()
    nodes, types, outputs = list(graph.nodes), dict(graph.types), list[str]()
    for output in graph.outputs:
        source = _source(output, producers)
        if source in producers and source not in claimed:
            claimed.add(source)
            outputs.append(output)
            continue
        if output not in producers or output in outputs:
            copy = fresh_name(f"{output}.copy", types)
            types[copy] = types[output].dense
            nodes.append(_copy(output, copy, producers))
        else:
            original, copy = fresh_name(f"{output}.shared", types), output
            types[original] = types[output]
            nodes = [node.renamed({output: original}) for node in nodes]
            nodes.append(_copy(original, copy, {original: producers[output]}))
        outputs.append(copy)
        producers = {v: node for node in nodes for v in node.present_outputs}
        claimed.add(copy)
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.replace(nodes=tuple(nodes), types=types, outputs=tuple(outputs))


def _copy(source: str, copy: str, producers: Mapping[str, Node]) -> Node:
    origins = producers[source].origins if source in producers else ()
    return Node("Identity", (source,), (copy,), origins=origins)


def _source(value: str, producers: Mapping[str, Node]) -> str:
    while value in producers and view_kind(producers[value]) == "reshape":
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
        self.views = {n.outputs[0]: n for n in graph.nodes if view_kind(n) == "reshape"}  # by first output
        self.copies: dict[str, tuple[int, ...]] = {}
        self._inside: dict[str, tuple[Node, int]] = {}  # value -> (the view node it is part of, index)
        for node in graph.nodes:
            kind = view_kind(node)
            if kind == "reshape":
                self._reshape(node)
            elif kind == "permutation" and views:
                self._permutation(node)
            elif kind == "window" and views:
                self._window(node)
            elif kind == "join" and views and in_place_concat:
                self._join(node)

    def is_view(self, node: Node) -> bool:
        """Return whether a node has no dispatch."""
        return node.outputs[0] in self.views

    def placement(self, value: str) -> Placement:
        """Return memory of a value."""
        found = self._placement(value)
        if found is None:
            raise InternalError(f"value {value!r} has no strides in the memory it was placed in")
        return found

    def copy_placement(self, node: Node, index: int) -> Placement:
        """Return the memory of the copied operand ``index`` of a join made in place."""
        found = self._operand_placement(node, index)
        assert found is not None  # only reshapes can fail
        return found

    # decisions ----------------------------------------------------------------------------------

    def _reshape(self, node: Node) -> None:
        """Place a view, but of a graph input with strides that do not allow it; the source lies in the
        result where the result has strides of its own."""
        source, (output,) = node.inputs[0], node.outputs
        if self._placement(output) is None:
            del self.views[output]
        elif self.graph.type_of(output).strides is not None and self._has_one_reader(source):
            self._put_inside({source: (node, 0)}, source)

    def _permutation(self, node: Node) -> None:
        source, (output,) = node.inputs[0], node.outputs
        perm = self._part(node, 0).perm
        if not perm or perm[-1] != len(perm) - 1:
            return
        self._add(node)
        if self._may_lie_anywhere(output):
            return
        if self._has_one_reader(source) and self._put_inside({source: (node, 0)}, source):
            return
        del self.views[output]

    def _window(self, node: Node) -> None:
        if node.inputs[0] in self.graph.constants:
            return
        steps = self._part(node, 0).steps
        if any(step <= 0 for step in steps) or steps[-1:] not in ((), (1,)):
            return
        self._add(node)
        if not all(self._may_lie_anywhere(output) for output in node.present_outputs):
            del self.views[node.outputs[0]]

    def _join(self, node: Node) -> None:
        (output,) = node.outputs
        self._add(node)
        copied = []
        for index, operand in enumerate(node.inputs):
            moved = self._turned(operand)
            if moved is None or not self._put_inside({**moved, operand: (node, index)}, operand):
                copied.append(index)
        if len(copied) == len(node.inputs):
            del self.views[output]
        else:
            self.copies[output] = tuple(copied)

    def _add(self, node: Node) -> None:
        self.views[node.outputs[0]] = node

    def _turned(self, operand: str) -> dict[str, tuple[Node, int]] | None:
        """Return the views that must be reversed so that the operand can be placed; None where it cannot be.

        A dispatch or a join made in place writes where it is told to. So does the source of a reshape
        or transpose that nothing else reads.
        """
        producer = self.producers.get(operand)
        if producer is None or operand in self._inside:
            return None
        if not self.is_view(producer) or view_kind(producer) == "join" or self._reads_its_result(producer):
            return {}
        source = producer.inputs[0]
        if view_kind(producer) not in ("reshape", "permutation") or len(self.consumers[source]) > 1:
            return None
        moved = self._turned(source)
        return None if moved is None else {**moved, source: (producer, 0)}

    def _put_inside(self, moved: Mapping[str, tuple[Node, int]], value: str) -> bool:
        """Place values inside of others, unless that is impossible for ``value`` or what lies with it."""
        self._inside.update(moved)
        if self._may_lie_anywhere(value):
            return True
        for name in moved:
            del self._inside[name]
        return False

    def _may_lie_anywhere(self, value: str) -> bool:
        """Return whether a value can be where it is now, with all that is read from it or written into it."""
        near = [value]
        while near:
            value = near.pop()
            if value in self.graph.outputs or self._placement(value) is None:
                return False
            near += [v for reader in self.consumers[value] for v in self._read_through(reader)]
            producer = self.producers.get(value)
            if producer is not None and self.is_view(producer):
                near += [v for v in producer.inputs if self._inside.get(v, (None,))[0] is producer]
        return True

    def _read_through(self, node: Node) -> tuple[str, ...]:
        """Return the results of a view that lie in its operand."""
        forward = self.is_view(node) and view_kind(node) != "join" and not self._reads_its_result(node)
        return node.present_outputs if forward else ()

    def _reads_its_result(self, node: Node) -> bool:
        """Return whether the node's source was placed inside its result, not the other way round."""
        inside = self._inside.get(node.inputs[0])
        return inside is not None and inside[0] is node

    def _has_one_reader(self, value: str) -> bool:
        """Return whether a dispatch writes the value, free to place it, for a single reader."""
        producer = self.producers.get(value)
        placeable = producer is not None and not self.is_view(producer)
        return placeable and value not in self._inside and len(self.consumers[value]) == 1

    # placements ---------------------------------------------------------------------------------

    def _placement(self, value: str) -> Placement | None:
        """Return memory of a value; None where a reshape on the way would have to copy."""
        found = self.graph.type_of(value)
        if value in self._inside:
            return self._operand_placement(*self._inside[value])
        producer = self.producers.get(value)
        if producer is None or not self._read_through(producer):
            return Placement(value, 0, found.strides or dense_strides(found.shape))
        source = self._placement(producer.inputs[0])
        if source is None:
            return None
        if view_kind(producer) == "reshape":
            return _reshaped(source, self.graph.type_of(producer.inputs[0]).shape, found.shape)
        return source.part(self._part(producer, producer.outputs.index(value)))

    def _operand_placement(self, node: Node, index: int) -> Placement | None:
        """Return the placement of a value that is written into the result of ``node``."""
        result = self._placement(node.outputs[0])
        if result is None:
            return None
        kind = view_kind(node)
        if kind == "reshape":
            shapes = (self.graph.type_of(v).shape for v in (node.outputs[0], node.inputs[0]))
            return _reshaped(result, *shapes)
        part = self._part(node, index)
        return result.part(part.inverse if kind == "permutation" else part)

    def _part(self, node: Node, index: int) -> Part:
        return ops.get(node.op).part(self.graph.input_types(node), node.attrs, index)


def _reshaped(source: Placement, shape: Sequence[int], reshaped: Sequence[int]) -> Placement | None:
    strides = reshaped_strides(shape, source.strides, reshaped)
    return None if strides is None else Placement(source.root, source.offset, strides)


__all__ = ["Placement", "ViewAnalysis", "is_dense", "separate_outputs", "view_kind"]
