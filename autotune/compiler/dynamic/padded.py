"""A model's graph for all requests up to a bucket's sizes: it takes the request's sizes, and masks what they leave.

Where an operator sums or compares along an axis that is longer than the request, ``Where(index < size, x, neutral)``
stands before it. These nodes are fused like any others. TVM's and XLA's bounded dynamic dimensions do the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.compiler.dynamic.axes import coordinates
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.rules import Case, Effect, Mask, effect_of
from autotune.errors import GraphError, PaddingError
from autotune.graph.build import complete_node
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node, TensorType, fresh_name
from autotune.graph.ops.common import FLOATS
from autotune.runtime.axes import Axes, axis


@dataclass(frozen=True)
class Padded:
    """A graph that answers requests of up to a bucket's sizes.

    ``size_inputs`` are the names of its inputs that take the request's size of a symbol, int64 []: they follow the
    model's own. ``inputs`` and ``outputs`` are the axes of the model's inputs and outputs.
    """

    graph: Graph
    size_inputs: Mapping[str, str]
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]


def padded(observed: Observed, inputs: Mapping[str, Axes]) -> Padded:
    """The graph of a bucket; ``inputs`` are the axes of the model's inputs.

    Raises PaddingError that names the node whose result would depend on padding.
    """
    observed.check()
    return _Padding(observed, inputs).run()


class _Padding:
    """One pass over the nodes, in order: axes of each value, and new nodes."""

    def __init__(self, observed: Observed, inputs: Mapping[str, Axes]) -> None:
        self.observed, self.graph = observed, observed.graph
        self.types: dict[str, TensorType] = {v: self.graph.type_of(v) for v in self.graph.inputs}
        self.constants: dict[str, Array] = dict(self.graph.constants)
        self.types |= {name: TensorType.of(array) for name, array in self.constants.items()}
        self.inputs = inputs
        self.axes: dict[str, Axes] = dict(inputs)
        self.nodes: list[Node] = []
        self.size_inputs: dict[str, str] = {}
        self.taken = {**self.graph.types}
        self.made: dict[tuple[object, ...], str] = {}
        """Masks, by what they are for: each is made once."""

    def run(self) -> Padded:
        for node in self.graph.nodes:
            for value in node.present_inputs:
                if value not in self.axes:
                    self.axes[value] = self.observed.constant_axes(value)
            self._append(node)
        graph = self.graph.replace(
            inputs=(*self.graph.inputs, *self.size_inputs.values()),
            nodes=tuple(self.nodes),
            types=self.types,
            constants=self.constants,
        )
        outputs = {
            name: self.axes[name] if name in self.axes else self.observed.constant_axes(name)
            for name in self.graph.outputs
        }
        return Padded(graph, self.size_inputs, self.inputs, outputs)

    def _append(self, node: Node) -> None:
        effect = self._effect(node)
        inputs = list(node.inputs)
        for mask in effect.masks:
            inputs[mask.index] = self._masked(inputs[mask.index], self.axes[node.inputs[mask.index]], mask)
        if effect.mean_over:
            self._mean(node, inputs[0], effect)
        else:
            self._emit(node.replace(inputs=tuple(inputs)))
        for value, axes in zip(node.outputs, effect.results, strict=True):
            if value != ABSENT:
                self.observed.check_axes(value, axes)
                self.axes[value] = axes

    def _effect(self, node: Node) -> Effect:
        known = [None if v == ABSENT else self.axes[v] for v in node.inputs]
        types = [None if v == ABSENT else self.graph.type_of(v) for v in node.inputs]
        results = [self.graph.type_of(v) for v in node.present_outputs]
        case = Case(node, known, types, results, self.observed.sizes, self.observed.axes_of)
        try:
            return effect_of(case)
        except (GraphError, KeyError) as error:
            raise PaddingError(
                f"node {node.name!r} ({node.op}) has axes of an unknown kind: {error}"
            ) from error

    def _masked(self, value: str, axes: Axes, mask: Mask) -> str:
        """A value that is ``mask.fill`` at padding of an axis."""
        tensor = self.types[value]
        for symbol in (factor for factor in axes[mask.place] if isinstance(factor, str)):
            real = self._is_real(axes, mask.place, symbol)
            fill = self._constant("fill", np.array(_fill(mask.fill, tensor.dtype), tensor.dtype))
            value = self._node("Where", (real, value, fill), f"{value}.real")
        return value

    def _is_real(self, axes: Axes, place: int, symbol: str) -> str:
        """bool, of extent 1 but at one axis: whether a request has the place there, as far as a symbol goes."""
        behind = len(axes) - place - 1
        key = (axes[place], behind, symbol)
        if key not in self.made:
            found = coordinates(axes[place], symbol, self.observed.sizes).reshape(-1, *([1] * behind))
            index = self._constant(f"{symbol}.index", found)
            self.made[key] = self._node("Less", (index, self._size(symbol)), f"{symbol}.is_real")
        return self.made[key]

    def _size(self, symbol: str) -> str:
        if symbol not in self.size_inputs:
            name = fresh_name(f"{symbol}.size", self.taken)
            self.taken[name] = self.types[name] = TensorType((), "int64")
            self.size_inputs[symbol] = name
        return self.size_inputs[symbol]

    def _mean(self, node: Node, value: str, effect: Effect) -> None:
        """A sum over what was masked, divided by how many places the request has."""
        axes = [factor for place in effect.mean_over for factor in self.axes[node.inputs[0]][place]]
        symbols = [factor for factor in axes if isinstance(factor, str)]
        fixed = math.prod(factor for factor in axes if isinstance(factor, int))
        count = self._constant("count", np.array(fixed, np.int64))
        for symbol in symbols:
            count = self._node("Mul", (count, self._size(symbol)), "count")
        dtype = self.types[value].dtype
        divisor = self._node("Cast", (count,), "divisor", to=dtype)
        total = fresh_name(f"{node.outputs[0]}.sum", self.taken)
        self._emit(node.replace(op="ReduceSum", inputs=(value,), outputs=(total,), name=total))
        self._emit(node.replace(op="Div", inputs=(total, divisor), attrs={}))

    def _constant(self, name: str, array: Array) -> str:
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.made:
            self.made[key] = name = fresh_name(name, self.taken)
            self.constants[name] = array
            self.taken[name] = self.types[name] = TensorType.of(array)
            self.axes[name] = tuple(axis(size) for size in array.shape)
        return self.made[key]

    def _node(self, op: str, inputs: Sequence[str], name: str, **attrs: Attr) -> str:
        output = fresh_name(name, self.taken)
        self._emit(Node(op, tuple(inputs), (output,), attrs))
        return output

    def _emit(self, node: Node) -> None:
        complete, types = complete_node(node, self.types)
        self.types.update(types)
        self.taken.update(types)
        self.nodes.append(complete)


def _fill(value: float, dtype: str) -> float | int:
    if dtype in FLOATS or math.isfinite(value):
        return value
    limits = np.iinfo(dtype)
    return int(limits.max if value > 0 else limits.min)


__all__ = ["Padded", "padded"]
