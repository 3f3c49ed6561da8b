"""Products of bytes whose columns are no whole vectors, with columns of zeros beyond them.

    IntegerMatMul(x, w) of 10 columns -> Slice(IntegerMatMul(x, w and 6 columns of 0))

Dot products and matrix units make blocks of columns of one size; what is left is made one by one, which takes many
times as long. Elementwise operations that follow work on all columns and are cut after the last one: a slice costs
nothing (:mod:`autotune.passes.layout.views`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter

_BLOCK = 16
"""Columns of a tile and of the longest vector of sums."""
_MANY = 128
"""Columns of which half a block more is little."""
_WHOLE: Mapping[str, int] = {"IntegerConv": _BLOCK // 2, "IntegerMatMul": _BLOCK}
"""Columns of which any multiple stays as it is where they are few: images of half a block more are read again by what
follows."""


@dataclass(frozen=True)
class FilledColumns(GraphPass):
    """Add columns of zeros to weights, and cut the results."""

    name: ClassVar[str] = "filled_columns"

    def apply(self, graph: Graph) -> Graph:
        if not any(node.op in _WHOLE for node in graph.nodes):
            return graph
        return _Filling(graph).run()


class _Filling:
    """The state of the pass: ``wide`` has values with columns beyond, by the old ones."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rewriter = Rewriter(graph)
        self.wide: dict[str, str] = {}
        self.cut: set[str] = set()

    def run(self) -> Graph:
        for node in self.rewriter.walk():
            if not (self._filled(node) or self._followed(node)):
                for value in node.present_inputs:
                    self._cut(value)
                self.rewriter.keep(node)
            for value in node.present_outputs:
                if value in self.graph.outputs:
                    self._cut(value)
        return self.rewriter.finish()

    def _cut(self, value: str) -> None:
        """Define the old value, once, by its columns of the wide one."""
        if value in self.wide and value not in self.cut:
            shape = self.graph.type_of(value).shape
            attrs: dict[str, Attr] = {"starts": (0,), "ends": (shape[-1],), "axes": (len(shape) - 1,)}
            self.rewriter.become(value, "Slice", [self.wide[value]], attrs)
            self.cut.add(value)

    def _filled(self, node: Node) -> bool:
        """Multiply by more columns, if the node is a product of rows by known weights."""
        if node.op not in _WHOLE or not _has_columns_last(node):
            return False
        x, w, *fill = node.inputs
        weights = self.rewriter.constant_of(self.rewriter.current(w))
        shape = self.graph.type_of(node.outputs[0]).shape
        whole = _WHOLE[node.op] if shape[-1] < _MANY else _BLOCK
        if weights is None or shape[-1] % whole == 0 or math.prod(shape[:-1]) <= 1:
            return False
        self._cut(x)
        wide = self.rewriter.constant(f"{w}.filled", _grown(weights, shape[-1], "constant"))
        operands = [self.rewriter.current(x), wide, *map(self.rewriter.current, fill)]
        self._make(node, operands)
        return True

    def _followed(self, node: Node) -> bool:
        """Compute an elementwise operation of wide values on all columns, if its other operands are the
        same for all or rows."""
        if ops.get(node.op).role != "elementwise" or len(node.outputs) != 1:
            return False
        if not any(value in self.wide for value in node.inputs) or not all(
            self._may_widen(value, node.outputs[0]) for value in node.present_inputs
        ):
            return False
        self._make(node, [value if value == ABSENT else self._widened(value) for value in node.inputs])
        return True

    def _make(self, node: Node, operands: list[str]) -> None:
        output = node.outputs[0]
        self.wide[output] = self.rewriter.emit(node.op, operands, node.attrs, name=f"{output}.wide")

    def _may_widen(self, value: str, result: str) -> bool:
        of, to = self.graph.type_of(value), self.graph.type_of(result)
        if value in self.wide:
            return of.shape == to.shape
        return of.rank == 0 or of.shape[-1] == 1 or of.size == of.shape[-1] == to.shape[-1]

    def _widened(self, value: str) -> str:
        """Return an operand with as many columns, where it has more than one."""
        if value in self.wide:
            return self.wide[value]
        now, kind = self.rewriter.current(value), self.graph.type_of(value)
        if kind.rank == 0 or kind.shape[-1] == 1:
            return now
        array = self.rewriter.constant_of(now)
        if array is not None:
            return self.rewriter.constant(f"{value}.wide", _grown(array, kind.shape[-1], "edge"))
        ends = (0,) * (kind.rank - 1)
        pads = (*ends, 0, *ends, -kind.shape[-1] % _BLOCK)
        return self.rewriter.emit("Pad", [now], {"pads": pads, "mode": "edge"}, name=f"{value}.wide")


def _has_columns_last(node: Node) -> bool:
    return node.op == "IntegerMatMul" or (is_channels_last(node) and integer(node, "group") == 1)


def _grown(array: Array, columns: int, mode: Literal["constant", "edge"]) -> Array:
    """Return an array with zeros beyond its columns, or the last of these, which divides as it does."""
    return np.pad(array, [*[(0, 0)] * (array.ndim - 1), (0, -columns % _BLOCK)], mode=mode)


__all__ = ["FilledColumns"]
