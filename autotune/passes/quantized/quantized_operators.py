"""Operators between DequantizeLinear and QuantizeLinear (QDQ) on the integers themselves.

Quantisers write y = Q(f(DQ(x), DQ(w))): f is in float32, but what is meant are integers. With s the scales:

    Conv(DQ(x), DQ(w), b)    -> DQ(ConvInteger(x, w) + round(b / (s_x s_w))), of int32 sums; also MatMul and Gemm
    MatMul(DQ(a), DQ(b))     -> DQ(MatMulInteger(a, b)), neither a constant
    Q(DQ(x))                 -> x where the steps are the same, else x * (s_x / s_y) rounded
    Q(Relu(v)), Q(Clip(v))   -> Q(v) with other bounds
    Q(DQ(a) + DQ(b))         -> a * (s_a / s_y) + b * (s_b / s_y), rounded
    Q(Concat(v, ...))        -> Concat(Q(v), ...)
    MaxPool(DQ(x))           -> DQ(MaxPool(x)); also what only moves elements, and Concat of equal steps
    AveragePool(DQ(x))       -> (AveragePool(x) - zero) * s_x

so that values between operators are eight bits and what follows a product is its epilogue. Results are within one step
of those of the graph as it was: sums are exact, and a division is a multiplication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node
from autotune.passes.attributes import ints
from autotune.passes.base import GraphPass
from autotune.passes.quantized.quantized_values import SMALL, Quantized, QuantizedValues
from autotune.passes.rewriter import Rewriter

SELECTING = (
    *(
        "MaxPool",
        "GlobalMaxPool",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Split",
    ),
    *("Identity", "Dropout", "Expand", "DepthToSpace", "SpaceToDepth", "Gather"),
)
"""Operators that select elements of their first operand, and so the integers that stand for them."""


@dataclass(frozen=True)
class QuantizedOperators(GraphPass):
    """Compute on quantised values; those between operators are brought to ``activations`` ("uint8", "int8")."""

    name: ClassVar[str] = "quantized_operators"
    activations: str = "uint8"

    def apply(self, graph: Graph) -> Graph:
        if not any(node.op == "DequantizeLinear" for node in graph.nodes):
            return graph
        return _Rewriting(graph, self.activations).run()


class _Rewriting:
    """One run of the pass."""

    def __init__(self, graph: Graph, activations: str) -> None:
        self.graph = graph
        self.activations = activations
        self.rewriter = Rewriter(graph)
        self.values = QuantizedValues(self.rewriter, {})
        self.consumers = graph.consumers()
        self.moved: dict[str, Quantized] = {}
        """Quantised values of the old graph that are of the other signedness in the new one."""

    def run(self) -> Graph:
        for node in self.rewriter.walk():
            rule = _RULES.get(node.op)
            if rule is None or not rule(self, node):
                self.rewriter.keep(node)
                if node.op == "DequantizeLinear":
                    self.values.learn(self.rewriter.producers[node.outputs[0]])
        return self.rewriter.finish()

    def current(self, node: Node, index: int) -> str:
        """Return an input in the new graph; ABSENT if there is none."""
        if index >= len(node.inputs) or node.inputs[index] == ABSENT:
            return ABSENT
        return self.rewriter.current(node.inputs[index])

    def array(self, value: str) -> Array | None:
        """Return a constant, or the numbers that constant integers stand for."""
        found = self.values.of(value)
        if found is None:
            return self.rewriter.constant_of(value)
        q = self.rewriter.constant_of(found.value)
        if q is None:
            return None
        centred = q.astype(np.int64) - found.along(found.zero, q.ndim).astype(np.int64)
        return centred.astype(np.float32) * found.along(found.scale, q.ndim)

    # -- to and from integers --------------------------------------------------------------------------------

    def quantize(self, node: Node) -> bool:
        x, scale, zero = (self.current(node, i) for i in range(3))
        steps, to, (output,) = self.rewriter.constant_of(scale), str(node.attrs["to"]), node.outputs
        offset = np.zeros((), to) if zero == ABSENT else self.rewriter.constant_of(zero)
        if steps is None or offset is None:
            return False
        array = self.rewriter.constant_of(x)
        if array is not None:
            (q,) = ops.get(node.op).reference([array, steps, offset], node.attrs)
            self.rewriter.replace(output, self.rewriter.constant(output, q))
            return True
        if steps.size > 1 or offset.size > 1 or steps.dtype != np.float32 or to not in SMALL or not steps > 0:
            return False
        aim = Quantized(output, steps.reshape(()), offset.reshape(()), 1)
        if to != self.activations:
            aim = self._other_sign(aim)
            limits = np.iinfo(self.activations)
            self.moved[output] = _of(aim, self.quantized(x, aim, (limits.min, limits.max), output))
            return output not in self.graph.outputs and all(map(self._own_steps, self.consumers[output]))
        limits = np.iinfo(to)
        self.rewriter.replace(output, self.quantized(x, aim, (limits.min, limits.max), output))
        return True

    def _other_sign(self, found: Quantized) -> Quantized:
        zero = int(found.zero) + (128 if self.activations == "uint8" else -128)
        return Quantized(found.value, found.scale, np.asarray(zero, self.activations), found.axis)

    def quantized(self, x: str, aim: Quantized, bounds: tuple[float, float], stem: str) -> str:
        """Return the integers of ``aim``'s steps that stand for a value, within bounds."""
        value, (low, high) = x, bounds
        scale, zero, to = float(aim.scale), int(aim.zero), str(aim.zero.dtype)
        while (found := self.values.of(value)) is None and (inner := self._bounded(value)) is not None:
            least, most = (_steps(bound, aim) for bound in _bounds(inner))
            low, high = (min(max(bound, low), high) for bound in (least, most))
            value = inner.inputs[0]
        if found is not None and found.same_steps(aim):
            return self.values.clipped(found.value, low, high, stem)
        if found is not None:
            steps = self.values.scaled(found, scale, stem)
            return self.values.rounded(steps, zero, low, high, to, stem)
        producer = self._own(value)
        if producer is not None and producer.op == "Concat":
            parts = [
                self.quantized(v, aim, (low, high), f"{stem}.{i}") for i, v in enumerate(producer.inputs)
            ]
            return self.values.emit("Concat", parts, stem, "joined", **producer.attrs)
        if producer is not None and producer.op in ("Add", "Sum"):
            terms = [self._term(v, scale, f"{stem}.{i}") for i, v in enumerate(producer.inputs)]
            if all(terms):
                steps = self.values.emit("Add", [t for t in terms if t], stem, "sum")
                return self.values.rounded(steps, zero, low, high, to, stem)
        operands = [value, self.values.constant(stem, "scale", aim.scale)]
        operands.append(self.values.constant(stem, "zero", aim.zero))
        q = self.values.emit("QuantizeLinear", operands, stem, "q", to=to)
        return self.values.clipped(q, low, high, stem)

    def _term(self, value: str, scale: float, stem: str) -> str | None:
        """Return an operand of a sum in steps of ``scale``; None where it is neither integers nor a constant."""
        found, array = self.values.of(value), self.array(value)
        if array is not None:
            return self.values.constant(stem, "steps", (array / np.float32(scale)).astype(np.float32))
        return None if found is None else self.values.scaled(found, scale, stem)

    def _own(self, value: str) -> Node | None:
        """Return the node that makes a value which one node reads."""
        if value in self.graph.outputs or len(self.consumers.get(value, ())) > 1:
            return None
        return self.rewriter.producer(value)

    def _bounded(self, value: str) -> Node | None:
        producer = self._own(value)
        return producer if producer is not None and producer.op in ("Relu", "Clip") else None

    def dequantize(self, node: Node) -> bool:
        found, own = self.moved.get(node.inputs[0]), self._own_steps(node)
        if found is None or own is None:
            return False
        self.values.dequantize(node.outputs[0], _of(self._other_sign(own), found.value))
        return True

    def _own_steps(self, node: Node) -> Quantized | None:
        """Return the quantisation of a DequantizeLinear's integers, where that is one scale and one zero
        point, known."""
        if node.op != "DequantizeLinear":
            return None
        scale, zero = (self.rewriter.constant_of(self.current(node, i)) for i in (1, 2))
        if self.current(node, 2) == ABSENT:
            zero = np.zeros((), self.graph.type_of(node.inputs[0]).dtype)
        if scale is None or zero is None or scale.size > 1 or zero.size > 1:
            return None
        if scale.dtype != np.float32 or not 0 < scale.item() < np.inf:
            return None
        return Quantized(node.inputs[0], scale.reshape(()), zero.reshape(()), 1)

    # -- operators -------------------------------------------------------------------------------------------

    def move(self, node: Node) -> bool:
        """Return the operator on integers, one scale and zero point for all of which stay."""
        found = self.values.small(self.current(node, 0))
        if found is None or (node.op == "MaxPool" and len(node.present_outputs) > 1):
            return False
        outputs = tuple(self.rewriter.fresh(f"{output}.q") for output in node.outputs)
        others = tuple(self.current(node, i) for i in range(1, len(node.inputs)))
        self.rewriter.add(Node(node.op, (found.value, *others), outputs, node.attrs))
        for output, q in zip(node.outputs, outputs, strict=True):
            self.values.dequantize(output, _of(found, q))
        return True

    def bound(self, node: Node) -> bool:
        """Return Relu and Clip of integers."""
        found = self.values.small(self.current(node, 0))
        if found is None:
            return False
        low, high = (_steps(bound, found) for bound in _bounds(node))
        limits = np.iinfo(found.zero.dtype)
        least, most = ((b - int(found.zero)) * float(found.scale) for b in (low, high))
        given_least, given_most = _bounds(node)
        outside = (low == limits.min and given_least <= least, high == limits.max and given_most >= most)
        if not (outside[0] or least == given_least) or not (outside[1] or most == given_most):
            return False  # a bound between two steps, for which no integer stands
        value = self.values.clipped(found.value, low, high, node.outputs[0])
        self.values.dequantize(node.outputs[0], _of(found, value))
        return True

    def join(self, node: Node) -> bool:
        found = [self.values.small(self.current(node, i)) for i in range(len(node.inputs))]
        first = found[0]
        if first is None or not all(each is not None and each.same_steps(first) for each in found):
            return False
        operands = [each.value for each in found if each is not None]
        q = self.values.emit("Concat", operands, node.outputs[0], "q", **node.attrs)
        self.values.dequantize(node.outputs[0], _of(first, q))
        return True

    def average(self, node: Node) -> bool:
        """Return means of integers in float32, then moved and scaled, as means of real numbers are."""
        found, (output,) = self.values.small(self.current(node, 0)), node.outputs
        if found is None:
            return False
        padded = node.op == "AveragePool" and (any(ints(node, "pads")) or node.attrs.get("ceil_mode"))
        if padded and node.attrs.get("count_include_pad") and found.zero.any():
            return False
        real = self.values.cast(found.value, "float32", output)
        value = self.values.emit(node.op, [real], output, "mean", **node.attrs)
        if found.zero.any():
            offset = self.values.constant(output, "zero", found.zero.astype(np.float32))
            value = self.values.emit("Sub", [value, offset], output, "centred")
        self.rewriter.become(output, "Mul", (value, self.values.constant(output, "scale", found.scale)))
        return True

    def conv(self, node: Node) -> bool:
        x, w = self.values.small(self.current(node, 0)), self.values.weights(self.current(node, 1), 0)
        if x is None or w is None:
            return False
        return self._product(node, "ConvInteger", x, w, 1, self.current(node, 2), node.attrs)

    def matmul(self, node: Node) -> bool:
        left, right = (self.current(node, i) for i in range(2))
        x, w = self.values.small(left), self.values.weights(right, -1)
        if w is not None and self.values.type_of(w.value).rank != 2:
            return False
        w = w or self.values.small(right)
        if x is None or w is None:
            return False
        return self._product(node, "MatMulInteger", x, w, -1, ABSENT, {})

    def gemm(self, node: Node) -> bool:
        turned = bool(node.attrs["transB"])
        x, w = (
            self.values.small(self.current(node, 0)),
            self.values.weights(self.current(node, 1), int(not turned)),
        )
        plain = node.attrs["alpha"] == 1 and node.attrs["beta"] == 1 and not node.attrs["transA"]
        if x is None or w is None or not plain:
            return False
        array = self.rewriter.constants[w.value]
        if turned:
            name = self.values.constant(w.value, "transposed", np.ascontiguousarray(array.T))
            w = Quantized(name, w.scale, w.zero, 1)
        return self._product(node, "MatMulInteger", x, w, -1, self.current(node, 2), {})

    def _product(
        self, node: Node, op: str, x: Quantized, w: Quantized, axis: int, bias: str, attrs: Mapping[str, Attr]
    ) -> bool:
        """Return sums of products in int32, with the bias in their steps, that stand for the operator's result."""
        (output,) = node.outputs
        rank = self.graph.type_of(output).rank
        sums = Quantized(
            output, (x.scale.reshape(()) * w.scale).astype(np.float32), np.zeros((), np.int32), axis
        )
        added: list[Array] = []
        if bias != ABSENT:
            real = self.array(bias)
            if real is None:
                return False
            if axis == 1:
                real = real.reshape(-1, *(1,) * (rank - 2))
            whole = np.rint(real.astype(np.float64) / sums.along(sums.scale, rank))
            if not np.all(np.abs(whole) < 2**30):
                return False
            added.append(whole.astype(np.int32))
        zeros = [self.values.constant(output, f"zero{i}", each.zero) for i, each in enumerate((x, w))]
        total = self.values.emit(op, [x.value, w.value, *zeros], output, "sums", **attrs)
        for array in added:
            total = self.values.emit(
                "Add", [total, self.values.constant(output, "bias", array)], output, "biased"
            )
        self.values.dequantize(output, _of(sums, total))
        return True


def _of(found: Quantized, value: str) -> Quantized:
    return Quantized(value, found.scale, found.zero, found.axis)


def _bounds(node: Node) -> tuple[float, float]:
    if node.op == "Relu":
        return 0.0, np.inf
    low, high = (node.attrs.get(key, default) for key, default in (("min", -np.inf), ("max", np.inf)))
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    return float(low), float(high)


def _steps(bound: float, aim: Quantized) -> float:
    """Return the integer that stands for a bound."""
    limits = np.iinfo(aim.zero.dtype)
    steps = np.rint(np.float32(bound) / np.float32(aim.scale)) + float(aim.zero)
    return float(min(max(steps, limits.min), limits.max))


Rule = Callable[[_Rewriting, Node], bool]

_RULES: Mapping[str, Rule] = {
    "AveragePool": _Rewriting.average,
    "Clip": _Rewriting.bound,
    "Concat": _Rewriting.join,
    "Conv": _Rewriting.conv,
    "DequantizeLinear": _Rewriting.dequantize,
    "Gemm": _Rewriting.gemm,
    "GlobalAveragePool": _Rewriting.average,
    "MatMul": _Rewriting.matmul,
    "QuantizeLinear": _Rewriting.quantize,
    "Relu": _Rewriting.bound,
    **dict.fromkeys(SELECTING, _Rewriting.move),
}


__all__ = ["SELECTING", "QuantizedOperators"]
