"""Patterns of graphs as values: what a node is computed of, down to values that the pattern leaves open.

A pattern that occurs twice in another one stands for one value; written out twice it may stand for two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

from autotune.graph import ops
from autotune.graph.ir import Graph, Node

Accepts: TypeAlias = Callable[[Graph, Node], bool]


@dataclass(frozen=True, eq=False)
class AnyValue:
    """Any value."""


@dataclass(frozen=True, eq=False)
class AnyNumber:
    """A constant of one element, ``value`` if that is given."""

    value: float | None = None


@dataclass(frozen=True, eq=False)
class AnyConstant:
    """Any constant."""


@dataclass(frozen=True, eq=False)
class Of:
    """The result of operator ``op`` of the operands, in any order where it is commutative; ``accepts`` may
    refuse a node.

    What lies between must have no reader outside of the pattern.
    """

    op: str
    operands: tuple[Pattern, ...]
    accepts: Accepts | None = None


@dataclass(frozen=True, eq=False)
class Either:
    """The match of the first alternative that fits."""

    alternatives: tuple[Pattern, ...]


Pattern: TypeAlias = AnyValue | AnyNumber | AnyConstant | Of | Either


@dataclass(frozen=True)
class Match:
    """The value that each pattern matched, and the nodes that are inside."""

    values: Mapping[Pattern, str]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Matcher:
    """Finds patterns in one graph."""

    graph: Graph
    producers: Mapping[str, Node]
    consumers: Mapping[str, Sequence[Node]]

    @classmethod
    def of(cls, graph: Graph) -> Matcher:
        """Return a matcher of a graph."""
        return cls(graph, graph.producers(), graph.consumers())

    def match(self, pattern: Pattern, value: str) -> Match | None:
        """Return the match of a value with a pattern, so that nothing else reads what is inside; None if
        there is none."""
        for bound in self._bindings(pattern, value, {}):
            nodes = {
                self.producers[v].outputs[0]: self.producers[v] for p, v in bound.items() if isinstance(p, Of)
            }
            inside = nodes.keys() - {value}
            readers = (reader.outputs[0] for v in inside for reader in self.consumers[v])
            if inside.isdisjoint(self.graph.outputs) and nodes.keys() >= set(readers):
                return Match(bound, tuple(nodes.values()))
        return None

    def _bindings(
        self, pattern: Pattern, value: str, bound: Mapping[Pattern, str]
    ) -> Iterator[dict[Pattern, str]]:
        """Yield all ways in which a value fits a pattern, beside what is bound already."""
        if pattern in bound:
            if bound[pattern] == value:
                yield dict(bound)
            return
        here = {**bound, pattern: value}
        if isinstance(pattern, Either):
            for alternative in pattern.alternatives:
                yield from self._bindings(alternative, value, here)
        elif not isinstance(pattern, Of):
            if self._is_leaf(pattern, value):
                yield here
        else:
            yield from self._operands(pattern, value, here)

    def _operands(
        self, pattern: Of, value: str, bound: Mapping[Pattern, str]
    ) -> Iterator[dict[Pattern, str]]:
        node = self.producers.get(value)
        if node is None or node.op != pattern.op or len(node.inputs) != len(pattern.operands):
            return
        if len(node.outputs) != 1 or (pattern.accepts is not None and not pattern.accepts(self.graph, node)):
            return
        orders = permutations(node.inputs) if ops.get(node.op).commutative else iter([node.inputs])
        for order in orders:
            found: list[Mapping[Pattern, str]] = [bound]
            for operand, given in zip(pattern.operands, order, strict=True):
                found = [more for one in found for more in self._bindings(operand, given, one)]
            yield from map(dict, found)

    def _is_leaf(self, pattern: Pattern, value: str) -> bool:
        array = self.graph.constants.get(value)
        if isinstance(pattern, AnyNumber):
            if array is None or array.size != 1:
                return False
            return pattern.value is None or float(array.reshape(())) == pattern.value
        return array is not None or not isinstance(pattern, AnyConstant)


__all__ = ["Accepts", "AnyConstant", "AnyNumber", "AnyValue", "Either", "Match", "Matcher", "Of", "Pattern"]
