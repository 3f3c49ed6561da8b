"""A model's graph for all requests up to a bucket's sizes: it takes the request's sizes, and masks what they leave.

Where an operator sums or compares along an axis that is longer than the request, ``Where(index < size, x, neutral)``
stands before it. These nodes are fused like any others. TVM's and XLA's bounded dynamic dimensions do the same.
A constant whose numbers depend on sizes (positions behind a cache, a causal mask) is computed from the request's, by
the nodes that the import had evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddedGraph
from autotune.compiler.dynamic.computed import as_sum
from autotune.compiler.dynamic.lengths import cut_outputs, part
from autotune.compiler.dynamic.loops import passed_on, repeated
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.rules import effect_of
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.errors import GraphError, PaddingError
from autotune.graph.ir import ABSENT, Node, fresh_name
from autotune.graph.ops.branch import is_branch
from autotune.graph.ops.loop import is_loop
from autotune.runtime.axes import Axes, size_of


def padded(observed: Observed, inputs: Mapping[str, Axes]) -> PaddedGraph:
    """Return the graph of a bucket; ``inputs`` are the axes of the model's inputs, which are zero at padding.

    Raises PaddingError that names the node whose result would depend on padding.
    """
    padding = _Padding(observed, inputs)
    for name, axes in inputs.items():
        padding.writer.zeros[name] = frozenset(factor for each in axes for factor in each)
    return padding.run()


def _padded_body(observed: Observed, inputs: Mapping[str, Axes]) -> PaddedGraph:
    """Return the same of the body of a loop, whose inputs are anything at padding."""
    return _Padding(observed, inputs).run()


class _Padding:
    """One pass over the nodes, in order: axes of each value, and new nodes."""

    def __init__(self, observed: Observed, inputs: Mapping[str, Axes]) -> None:
        self.observed, self.graph, self.inputs = observed, observed.graph, inputs
        constants = self.graph.constants
        types = {name: self.graph.type_of(name) for name in (*self.graph.inputs, *constants)}
        traced = observed.traced
        self.writer = GraphWriter(observed.sizes, types, constants, [*traced.types], traced.lengths)
        self.axes = self.writer.axes
        self.axes.update(inputs)

    def run(self) -> PaddedGraph:
        self.observed.check()
        for node in self.graph.nodes:
            self._append(node)
        for name in self.graph.outputs:
            self._define(name)
        found, counted = cut_outputs(self.observed, self.writer)
        graph = self.graph.replace(
            inputs=(*self.graph.inputs, *self.writer.size_inputs.values()),
            outputs=found,
            nodes=tuple(self.writer.nodes),
            types=self.writer.types,
            constants=self.writer.constants,
            counted=counted,
        )
        outputs = {name: self.axes[name] for name in found}
        return PaddedGraph(graph.pruned(), self.writer.size_inputs, self.inputs, outputs)

    def _append(self, node: Node) -> None:
        case = NodeCase(node, self.observed, self.writer)
        for index, value in enumerate(node.inputs):
            if value != ABSENT and node.op not in ("Shape", "Size") and not case.takes_coordinates(index):
                self._define(value)
        effect = self._effect(case)
        inputs = list(node.inputs)
        for mask in effect.masks:
            value = inputs[mask.index]
            inputs[mask.index] = self.writer.masked(
                value, self.axes[node.inputs[mask.index]], mask.place, mask.fill
            )
        if effect.write is not None:
            effect.write(self.writer, inputs)
        elif effect.mean_over:
            self._mean(node, inputs[0], effect)
        else:
            self.writer.emit(node.replace(inputs=tuple(inputs)))
        for value, axes in zip(node.outputs, effect.results, strict=True):
            if value != ABSENT:
                self.observed.check_axes(value, axes)
                self.observed.grown.meet(axes)
                self.axes[value] = axes
                self.writer.zeros[value] = effect.zeros

    def _define(self, value: str) -> None:
        """Define the axes of a value; a constant that depends on sizes is computed first."""
        if value in self.axes:
            return
        axes = self.observed.constant_axes(value)
        if axes is not None:
            self.axes[value] = axes
            if value not in self.writer.constants:
                self.writer.constants[value] = self.observed.traced.constants[value]
                self.writer.types[value] = self.observed.type_of(value)
            return
        node = self.observed.made_by(value)
        if node is None:
            raise PaddingError(
                f"numbers of the constant {value!r} depend on sizes, in a way that is not known"
            )
        for output in node.present_outputs:
            self.writer.constants.pop(output, None)
            self.writer.types.pop(output, None)
        change = as_sum(self.observed, value)
        if change is None:
            self._append(node)
        else:
            array = self.observed.traced.constants[value]
            rest = self.writer.constant(f"{value}.rest", array - size_of(change, self.observed.sizes))
            self.writer.emit(Node("Add", (rest, self.writer.size(change)), (value,)))
            self.axes[value] = self.observed.axes_of(value)

    def _effect(self, case: NodeCase) -> Effect:
        node = case.node
        if node.outputs[0] in self.observed.traced.parts:
            return part(case)
        try:
            if is_branch(node):
                return passed_on(case)
            return repeated(case, _padded_body) if is_loop(node) else effect_of(case)
        except (GraphError, KeyError) as error:
            raise PaddingError(
                f"node {node.name!r} ({node.op}) has axes of an unknown kind: {error}"
            ) from error

    def _mean(self, node: Node, value: str, effect: Effect) -> None:
        """Divide a sum over what was masked by the number of places of the request."""
        writer = self.writer
        factors = [factor for place in effect.mean_over for factor in self.axes[node.inputs[0]][place]]
        dtype = writer.types[value].dtype
        divisor = writer.node("Cast", (writer.product(factors),), "divisor", to=dtype)
        total = fresh_name(f"{node.outputs[0]}.sum", writer.types)
        writer.emit(node.replace(op="ReduceSum", inputs=(value,), outputs=(total,), name=total))
        writer.emit(node.replace(op="Div", inputs=(total, divisor), attrs={}))


__all__ = ["PaddedGraph", "padded"]
