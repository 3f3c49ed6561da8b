"""Channels-last layout for the convolutional parts of a graph.

Values flow through the graph in NHWC (any spatial rank: the channel axis moves to the end) from the
first operator that has a layout to the first one that needs the original order. Transposes appear
only there, once a value. Weights are permuted at compile time: convolution kernels to HWIO, and the
rows of a matrix that multiplies a flattened feature map, so that flattening needs no transpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.errors import UsageError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node
from autotune.graph.ops.facts import Weights
from autotune.passes.attributes import integer, ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter

LAYOUTS = ("NHWC", "NCHW")


@dataclass(frozen=True)
class ConvertLayout(GraphPass):
    """Convert to ``layout``: "NHWC", or "NCHW" to leave the graph as it came."""

    name: ClassVar[str] = "convert_layout"
    layout: str = "NHWC"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"unknown layout {self.layout!r}\n  one of {', '.join(LAYOUTS)}")

    def apply(self, graph: Graph) -> Graph:
        return graph if self.layout == "NCHW" else _Conversion(graph).run()


def channels_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves axis 1 to the end.

    >>> channels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> tuple[int, ...]:
    """Return the inverse of :func:`channels_last`.

    >>> channels_first(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


class _Conversion:
    """One run of the pass: which values have a channels-last form, and what reads them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rewriter = Rewriter(graph)
        self.converted: dict[str, str] = {}  # original value -> its channels-last form
        self.flattened: dict[str, tuple[int, ...]] = {}  # flattened in channels-last order: [c, s...]
        self.consumers = graph.consumers()

    def run(self) -> Graph:
        for node in self.rewriter.walk():
            if not self._convert(node):
                for value in node.present_inputs:
                    self._original(value)
                self.rewriter.keep(node)
        for output in self.graph.outputs:
            self._original(output)
        return self.rewriter.finish()

    def _convert(self, node: Node) -> bool:
        if node.op == "MatMul" and node.inputs[0] in self.flattened:
            return self._multiply_flattened(node)
        definition = ops.get(node.op)
        if "layout" in definition.attributes:
            return self._convert_spatial(node, definition.weights)
        if not any(value in self.converted for value in node.present_inputs):
            return False
        if definition.pointwise or definition.crosses:
            return self._convert_elementwise(node)
        if definition.permutable is not None:
            return self._convert_axes(node, definition.permutable)
        return node.op == "Reshape" and self._flatten(node)

    def _convert_spatial(self, node: Node, weights: Weights | None) -> bool:
        if is_channels_last(node) or self._rank(node.inputs[0]) < 3:
            return False
        inputs = [self._channels_last(node.inputs[0])]
        if weights is not None:
            inputs.append(self._permuted(node.inputs[1], weights.channels_last(self._rank(node.inputs[1]))))
            inputs += [self.rewriter.current(v) for v in node.inputs[2:] if v != ABSENT]
        else:
            inputs += [v if v == ABSENT else self.rewriter.current(v) for v in node.inputs[1:]]
        self._emit(node, inputs, {**node.attrs, "layout": "NHWC"})
        return True

    def _convert_elementwise(self, node: Node) -> bool:
        rank = self._rank(node.outputs[0])
        converted = [v for v in node.present_inputs if v in self.converted]
        if any(self._rank(v) != rank for v in converted):
            return False
        self._emit(node, [self._aligned(v, rank) for v in node.inputs], node.attrs)
        return True

    def _convert_axes(self, node: Node, key: str) -> bool:
        order, named = channels_last(self._rank(node.inputs[0])), node.attrs[key]
        axes = named if isinstance(named, tuple) else (integer(node, key),)
        moved = tuple(sorted(order.index(axis) for axis in axes))
        attrs = {**node.attrs, key: moved if isinstance(named, tuple) else moved[0]}
        turn = sorted(range(len(axes)), key=lambda i: order.index(axes[i]))
        for name in ops.get(node.op).axis_lists:
            attrs[name] = tuple(ints(node, name)[i] for i in turn)
        kept = [axis for axis in order if axis not in axes]
        stays = bool(node.attrs.get("keepdims", 1))
        if not stays and kept != sorted(kept):
            return False
        inputs = [v if v == ABSENT else self._channels_last(v) for v in node.inputs]
        if stays:
            self._emit(node, inputs, attrs)
        else:  # what is left is in the original order
            self.rewriter.become(node.outputs[0], node.op, inputs, attrs)
        return True

    def _flatten(self, node: Node) -> bool:
        """Reshape to [n, c * spatial] for matrices whose constant rows can be permuted to fit."""
        source, (output,) = node.inputs[0], node.outputs
        batch, *features = self.graph.type_of(source).shape
        if self.graph.type_of(output).shape != (batch, int(np.prod(features))):
            return False
        readers = self.consumers[output]
        if output in self.graph.outputs or not all(
            reader.op == "MatMul"
            and reader.inputs[0] == output
            and reader.inputs[1] in self.graph.constants
            and self._rank(reader.inputs[1]) == 2
            for reader in readers
        ):
            return False
        shape = self.graph.type_of(output).shape
        self.rewriter.become(output, "Reshape", [self._channels_last(source)], {"shape": shape})
        self.flattened[output] = tuple(features)
        return True

    def _multiply_flattened(self, node: Node) -> bool:
        features = self.flattened[node.inputs[0]]
        weight = self.graph.constants[node.inputs[1]]
        rows = np.moveaxis(weight.reshape(*features, -1), 0, len(features) - 1)
        name = self.rewriter.constant(f"{node.inputs[1]}.rows", _dense(rows, weight.shape))
        self.rewriter.become(node.outputs[0], "MatMul", [node.inputs[0], name], node.attrs)
        return True

    def _emit(self, node: Node, inputs: list[str], attrs: Mapping[str, Attr]) -> None:
        outputs = []
        for output in node.outputs:
            form = output if output == ABSENT else self.rewriter.fresh(f"{output}.nhwc")
            outputs.append(form)
            if output != ABSENT:
                self.converted[output] = form
        self.rewriter.add(Node(node.op, tuple(inputs), tuple(outputs), attrs))

    def _original(self, value: str) -> None:
        """Make sure that the value itself is there, not only its channels-last form."""
        if value in self.converted and value not in self.rewriter.types:
            perm = channels_first(self._rank(value))
            self.rewriter.become(value, "Transpose", [self.converted[value]], {"perm": perm})

    def _channels_last(self, value: str) -> str:
        """Return the channels-last form of a value, made where there is none yet."""
        if value not in self.converted:
            self.converted[value] = self._permuted(value, channels_last(self._rank(value)))
        return self.converted[value]

    def _aligned(self, value: str, rank: int) -> str:
        """Return an operand that broadcasts to ``rank`` dimensions, in channels-last order."""
        own = self._rank(value)
        if own == rank:
            return self._channels_last(value)
        shape = (1,) * (rank - own) + self.graph.type_of(value).shape
        if all(extent == 1 for extent in shape):
            return self.rewriter.current(value)
        array = self.rewriter.constant_of(value)
        if array is not None:
            moved = array.reshape(shape).transpose(channels_last(rank))
            while moved.shape and moved.shape[0] == 1:
                moved = moved[0]
            return self.rewriter.constant(f"{value}.nhwc", np.ascontiguousarray(moved))
        name = self.rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.wide")
        perm = channels_last(rank)
        return self.rewriter.emit("Transpose", [name], {"perm": perm}, name=f"{value}.nhwc")

    def _permuted(self, value: str, perm: tuple[int, ...]) -> str:
        array = self.rewriter.constant_of(value)
        name = f"{value}.nhwc"
        if array is not None:
            return self.rewriter.constant(name, np.ascontiguousarray(array.transpose(perm)))
        return self.rewriter.emit("Transpose", [value], {"perm": perm}, name=name)

    def _rank(self, value: str) -> int:
        return self.graph.type_of(value).rank


def _dense(array: Array, shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(array).reshape(shape)


__all__ = ["LAYOUTS", "ConvertLayout", "channels_first", "channels_last"]
