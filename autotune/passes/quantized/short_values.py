"""Values that are stored in bfloat16, and products of them.

A model says where numbers are rounded: ``Cast(Cast(x, "bfloat16"), "float32")`` has the numbers of a bfloat16, which is
what lies in memory between dispatches then:

    Conv(Cast(x), w), MatMul(Cast(x), w)  -> ShortConv(x, w), ShortMatMul(x, w), if w has numbers of bfloat16;
                                             also GroupedConv
    MaxPool(Cast(x)), Reshape, Concat ... -> the same of x
    Cast(AveragePool(Cast(x)))            -> AveragePool(x), which rounds once
    Cast(Reshape(x), "bfloat16")          -> Reshape(Cast(x)), also Transpose, so that what makes x converts it
    Cast(Cast(x, "float32"), "bfloat16")  -> x
    anything else                         -> reads a conversion of its own, so that it is its prologue

The first conversion of each pair is the epilogue of what makes the value. No number changes but by the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.passes.base import GraphPass
from autotune.passes.quantized.quantized_operators import SELECTING
from autotune.passes.rewriter import Rewriter

_SHORT, _WIDE = "bfloat16", "float32"
_PRODUCTS = {"Conv": "ShortConv", "GroupedConv": "ShortGroupedConv", "MatMul": "ShortMatMul"}
_SELECTING = (*SELECTING, "ChannelShuffle")
_VIEWS = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass(frozen=True)
class ShortValues(GraphPass):
    """Compute on bfloat16 values where a model has rounded numbers to them."""

    name: ClassVar[str] = "short_values"

    def apply(self, graph: Graph) -> Graph:
        if not any(node.op == "Cast" and node.attrs["to"] == _SHORT for node in graph.nodes):
            return graph
        return _Shortening(graph).run()


class _Shortening:
    """One run of the pass; ``short`` has the bfloat16 value of each that is a conversion of one."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.consumers = graph.consumers()
        self.short = dict[str, str]()

    def run(self) -> Graph:
        for node in self.rewriter.walk():
            if not any(rule(node) for rule in (self._cast, self._product, self._selecting, self._pool)):
                self._converted(node)
        return self.rewriter.finish()

    def _of(self, value: str) -> str | None:
        return None if value == ABSENT else self.short.get(self.rewriter.current(value))

    def _cast(self, node: Node) -> bool:
        if node.op != "Cast":
            return False
        ((value,), (output,)) = node.inputs, node.outputs
        source = self.rewriter.current(value)
        if node.attrs["to"] == _SHORT and (found := self._of(value)) is not None:
            self.rewriter.replace(output, found)
            return True
        if node.attrs["to"] == _SHORT and self._is_only_viewed(value):
            self.rewriter.replace(output, self._before_views(value))
            return True
        if node.attrs["to"] == _WIDE and self.rewriter.type_of(source).dtype == _SHORT:
            self.short[output] = source
        self.rewriter.keep(node)
        return True

    def _is_only_viewed(self, value: str) -> bool:
        """Return whether a value is a view that one node reads."""
        producer = self.rewriter.producer(self.rewriter.current(value))
        alone = len(self.consumers.get(value, ())) == 1 and value not in self.rewriter.graph.outputs
        return alone and producer is not None and producer.op in _VIEWS

    def _before_views(self, value: str) -> str:
        """Return a value in bfloat16, converted where what it is a view of is made."""
        current = self.rewriter.current(value)
        if (found := self._of(value)) is not None:
            return found
        producer = self.rewriter.producer(current)
        if producer is None or not self._is_only_viewed(value):
            return self.rewriter.emit("Cast", [current], {"to": _SHORT}, name=f"{value}.{_SHORT}")
        inner = self._before_views(producer.inputs[0])
        return self.rewriter.emit(producer.op, [inner], producer.attrs, name=f"{value}.{_SHORT}")

    def _product(self, node: Node) -> bool:
        if node.op not in _PRODUCTS or len(node.inputs) != 2:
            return False
        x, w = self._of(node.inputs[0]), self._weights(node.inputs[1])
        if x is None or w is None:
            return False
        attrs = {key: value for key, value in node.attrs.items() if key != "columns"}
        self.rewriter.become(node.outputs[0], _PRODUCTS[node.op], [x, w], attrs)
        return True

    def _weights(self, value: str) -> str | None:
        """Return a value in bfloat16, if it is one or a constant of such numbers; None for others."""
        array = self.rewriter.constant_of(self.rewriter.current(value))
        if array is None:
            return self._of(value)
        return self.rewriter.constant(f"{value}.{_SHORT}", array.astype(_SHORT)) if _is_short(array) else None

    def _selecting(self, node: Node) -> bool:
        """Select elements among bfloat16 ones."""
        joins = node.op == "Concat"
        if not joins and (node.op not in _SELECTING or (node.op == "MaxPool" and len(node.outputs) > 1)):
            return False
        read = [self._of(value) for value in (node.inputs if joins else node.inputs[:1])]
        if None in read:
            return False
        others = [v if v == ABSENT else self.rewriter.current(v) for v in node.inputs[len(read) :]]
        self._selected(node, [*(value for value in read if value is not None), *others])
        return True

    def _pool(self, node: Node) -> bool:
        """Take averages of bfloat16 elements where nothing but their rounding is read."""
        if ops.get(node.op).kind != "pool" or len(node.outputs) > 1 or self._of(node.inputs[0]) is None:
            return False
        (output,) = node.outputs
        rounded = all(each.attrs.get("to") == _SHORT for each in self.consumers[output])
        if not rounded or output in self.rewriter.graph.outputs:
            return False
        self._selected(node, [self.short[self.rewriter.current(node.inputs[0])]])
        return True

    def _selected(self, node: Node, inputs: Sequence[str]) -> None:
        names = [v if v == ABSENT else self.rewriter.fresh(f"{v}.{_SHORT}") for v in node.outputs]
        self.rewriter.add(node.replace(inputs=tuple(inputs), outputs=tuple(names)))
        for output, name in zip(node.outputs, names, strict=True):
            if output != ABSENT:
                self.rewriter.become(output, "Cast", [name], {"to": _WIDE})
                self.short[output] = name

    def _converted(self, node: Node) -> None:
        """Keep a node, which reads conversions of its own where others read the same."""
        inputs = [v if v == ABSENT else self.rewriter.current(v) for v in node.inputs]
        for i, value in enumerate(inputs):
            found = self.short.get(value)
            if found is not None and len(self.consumers[node.inputs[i]]) > 1:
                inputs[i] = self.rewriter.emit("Cast", [found], {"to": _WIDE}, name=f"{value}.read")
        if tuple(inputs) == node.inputs:
            self.rewriter.keep(node)
        else:
            self.rewriter.add(node.replace(inputs=tuple(inputs)))


def _is_short(array: Array) -> bool:
    """Return whether all numbers are those of bfloat16."""
    if array.dtype != np.float32:
        return False
    return bool(np.array_equal(array, array.astype(_SHORT).astype(_WIDE)))


__all__ = ["ShortValues"]
