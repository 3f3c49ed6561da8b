"""Algebraic simplification: operations that do nothing, chains that are one, patterns with a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.errors import GraphError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.passes.attributes import ints, is_channels_last, number
from autotune.passes.base import GraphPass
from autotune.passes.canonical.known_places import gather_of_known_places
from autotune.passes.canonical.rearrange import Step, rearranged, shortened
from autotune.passes.canonical.unit_axes import without_unit_axes
from autotune.passes.rewriter import Rewriter, rewrite

Rule = Callable[[Rewriter, Node], bool]


@dataclass(frozen=True)
class Simplify(GraphPass):
    """Apply the rules below until none fires.

    Operations that copy their operand, and those with a neutral constant, vanish; reductions keep the axes that
    are put back after them; Flatten, Squeeze and Unsqueeze
    become Reshape; chains of Reshape and Transpose become as few as do the same, also around an elementwise operation
    (:mod:`autotune.passes.canonical.unit_axes`); Sum becomes Add; Reshape, Transpose,
    Reshape that shuffles channels becomes ChannelShuffle; a zero Pad joins the Conv after it;
    a sum over its count becomes a mean; operands that broadcast are read before an Expand;
    Gather of known places at equal distances becomes a Slice (:mod:`autotune.passes.canonical.known_places`).
    """

    name: ClassVar[str] = "simplify"
    max_rounds: int = 16

    def apply(self, graph: Graph) -> Graph:
        for _ in range(self.max_rounds):
            simpler = rewrite(graph, _simplify)
            if simpler is graph:
                break
            graph = simpler
        return graph


def _simplify(rewriter: Rewriter, node: Node) -> bool:
    definition = ops.get(node.op)
    if definition.is_copy(rewriter.graph.input_types(node), node.attrs):
        return _forward(rewriter, node)
    if definition.pointwise and _unexpanded(rewriter, node, definition):
        return True
    if definition.neutral is not None and _neutral(rewriter, node, definition):
        return True
    rule = _reshape if definition.view == "reshape" else _RULES.get(node.op)
    return rule is not None and rule(rewriter, node)


def _forward(rewriter: Rewriter, node: Node, value: str | None = None) -> bool:
    """Let the readers of a node read its input (or ``value``) instead."""
    value = rewriter.current(node.inputs[0]) if value is None else value
    (output, *others) = node.outputs
    if any(others) and _is_read(rewriter, others):
        return False
    graph = rewriter.graph
    if output in graph.outputs and (
        value in graph.outputs or value in graph.inputs or value in graph.constants
    ):
        return False  # the output needs memory of its own: the node is the copy into it
    rewriter.replace(output, value)
    return True


def _is_read(rewriter: Rewriter, values: list[str]) -> bool:
    graph = rewriter.graph
    return any(v in graph.outputs for v in values) or any(
        set(values) & set(node.inputs) for node in graph.nodes
    )


def _reshape(rewriter: Rewriter, node: Node) -> bool:
    """Return reshape, Flatten, Squeeze, Unsqueeze: a Reshape, or as few steps as all before it take together."""
    if _channel_shuffle(rewriter, node) or _kept_axes(rewriter, node) or without_unit_axes(rewriter, node):
        return True
    return _rearrange(rewriter, node, ("Reshape", rewriter.graph.type_of(node.outputs[0]).shape))


def _kept_axes(rewriter: Rewriter, node: Node) -> bool:
    """Return a reduction without the axes that it took, which a Reshape then puts back: one that keeps them."""
    value, shape = rewriter.current(node.inputs[0]), rewriter.graph.type_of(node.outputs[0]).shape
    producer = rewriter.producer(value)
    if producer is None or producer.attrs.get("keepdims") != 0 or "axes" not in producer.attrs:
        return False
    axes, whole = ints(producer, "axes"), rewriter.type_of(producer.inputs[0]).shape
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(whole))
    if kept != shape or len(rewriter.graph.consumers()[node.inputs[0]]) > 1 or len(producer.outputs) > 1:
        return False
    rewriter.become(node.outputs[0], producer.op, producer.inputs, {**producer.attrs, "keepdims": 1})
    return True


def _transpose(rewriter: Rewriter, node: Node) -> bool:
    return _rearrange(rewriter, node, ("Transpose", ints(node, "perm")))


def _rearrange(rewriter: Rewriter, node: Node, step: Step) -> bool:
    """Return the chain that ends in a node as the fewest steps; False where the node is the last of them already."""
    before, (output,) = rewriter.current(node.inputs[0]), node.outputs
    source, steps = shortened(rewriter, before, step)
    if not steps:
        return _forward(rewriter, node, source)
    op, argument = steps[-1]
    if source == before and steps == (step,) and node.op == op:
        return False
    last = rearranged(rewriter, source, steps[:-1], f"{output}.moved")
    rewriter.become(output, op, (last,), {"shape" if op == "Reshape" else "perm": argument})
    return True


def _channel_shuffle(rewriter: Rewriter, node: Node) -> bool:
    """Return [n, g, c/g, h, w] transposed to [n, c/g, g, h, w] and back to [n, c, h, w]."""
    transpose = rewriter.producer(rewriter.current(node.inputs[0]))
    if transpose is None or transpose.op != "Transpose":
        return False
    split = rewriter.producer(transpose.inputs[0])
    if split is None or split.op != "Reshape":
        return False
    before, after = rewriter.type_of(split.inputs[0]), rewriter.graph.type_of(node.outputs[0])
    apart = rewriter.type_of(split.outputs[0]).shape
    rank = before.rank
    swap = (0, 2, 1, *range(3, rank + 1))
    if transpose.attrs["perm"] != swap or before.shape != after.shape or rank < 3:
        return False
    if apart[:1] != before.shape[:1] or apart[3:] != before.shape[2:]:
        return False
    rewriter.become(node.outputs[0], "ChannelShuffle", split.inputs[:1], {"groups": apart[1]})
    return True


def _unexpanded(rewriter: Rewriter, node: Node, definition: ops.OpDef) -> bool:
    """Read an operand before its Expand where it broadcasts to the same result by itself."""
    inputs = list(node.inputs)
    for index, value in enumerate(node.inputs):
        producer = None if value == ABSENT else rewriter.producer(rewriter.current(value))
        if producer is None or producer.op != "Expand" or len(node.inputs) < 2:
            continue
        smaller = [*inputs[:index], producer.inputs[0], *inputs[index + 1 :]]
        types = [None if v == ABSENT else rewriter.type_of(rewriter.current(v)) for v in smaller]
        try:
            _, found = definition.complete_and_infer(types, node.attrs)
        except GraphError:  # an operand that does not broadcast
            continue
        if [t.dense for t in found] == [rewriter.graph.type_of(v).dense for v in node.outputs]:
            inputs = smaller
    if inputs == list(node.inputs):
        return False
    rewriter.add(node.replace(inputs=tuple(v if v == ABSENT else rewriter.current(v) for v in inputs)))
    return True


def _neutral(rewriter: Rewriter, node: Node, definition: ops.OpDef) -> bool:
    """Return x op constant == x, with the constant on the right, or on any side if the operator is commutative."""
    for side in (1, 0) if definition.commutative else (1,):
        array = rewriter.constant_of(rewriter.current(node.inputs[side]))
        other = rewriter.current(node.inputs[1 - side])
        same = rewriter.type_of(other).shape == rewriter.graph.type_of(node.outputs[0]).shape
        if array is not None and same and bool(np.all(array == definition.neutral)):
            return _forward(rewriter, node, other)
    return False


def _mean(rewriter: Rewriter, node: Node) -> bool:
    """Return a mean for a sum over its count, or times one over it."""
    for side in (1, 0) if node.op == "Mul" else (1,):
        factor = rewriter.constant_of(rewriter.current(node.inputs[side]))
        value, (output,) = rewriter.current(node.inputs[1 - side]), node.outputs
        total, own = rewriter.producer(value), rewriter.type_of(value)
        if factor is None or factor.size != 1 or total is None or total.op != "ReduceSum":
            continue
        if own.dtype not in ("float32", "float64") or own.shape != rewriter.graph.type_of(output).shape:
            continue
        count = max(1, math.prod(rewriter.type_of(total.inputs[0]).shape) // max(1, math.prod(own.shape)))
        share = np.asarray(1 / count if node.op == "Mul" else count, own.dtype)
        if len(rewriter.graph.consumers()[node.inputs[1 - side]]) == 1 and factor == share:
            rewriter.become(output, "ReduceMean", total.inputs, total.attrs)
            return True
    return False


def _where(rewriter: Rewriter, node: Node) -> bool:
    """Return a selection that always takes the same side."""
    condition = rewriter.constant_of(rewriter.current(node.inputs[0]))
    if condition is None or not (condition.all() or not condition.any()):
        return False
    side = rewriter.current(node.inputs[1 if condition.all() else 2])
    same = rewriter.type_of(side).dense == rewriter.graph.type_of(node.outputs[0]).dense
    return same and _forward(rewriter, node, side)


def _sum(rewriter: Rewriter, node: Node) -> bool:
    operands = [rewriter.current(v) for v in node.inputs]
    total = operands[0]
    for operand in operands[1:]:
        total = rewriter.emit("Add", (total, operand), name=node.outputs[0])
    return _forward(rewriter, node, total)


def _conv(rewriter: Rewriter, node: Node) -> bool:
    """Return Conv(Pad(x, zeros)) -> Conv(x) with more padding."""
    pad = rewriter.producer(rewriter.current(node.inputs[0]))
    if pad is None or pad.op != "Pad" or pad.attrs["mode"] != "constant":
        return False
    rank = rewriter.type_of(pad.inputs[0]).rank
    added, own = ints(pad, "pads"), ints(node, "pads")
    spatial = range(1, rank - 1) if is_channels_last(node) else range(2, rank)
    outside = [axis for axis in range(rank) if axis not in spatial]
    if len(added) != 2 * rank or any(added[a] or added[a + rank] for a in outside):
        return False
    if number(pad, "value") != 0 or any(amount < 0 for amount in added):
        return False
    extra = tuple(added[a] for a in spatial) + tuple(added[a + rank] for a in spatial)
    pads = tuple(a + b for a, b in zip(own, extra, strict=True))
    inputs = (pad.inputs[0], *(rewriter.current(v) for v in node.inputs[1:]))
    (output,) = node.outputs
    rewriter.become(output, "Conv", inputs, {**node.attrs, "pads": pads})
    return True


def _pow(rewriter: Rewriter, node: Node) -> bool:
    """Return x**1, x**2, x**3 and x**0.5 without a general power: faster, and exact where the products are.

    x**0.5 of minus infinity is infinity, as IEEE 754 has it for ``pow``.
    """
    exponent = rewriter.constant_of(rewriter.current(node.inputs[1]))
    if exponent is None or exponent.size != 1:
        return False
    x, (output,) = rewriter.current(node.inputs[0]), node.outputs
    if rewriter.type_of(x) != rewriter.graph.type_of(output):
        return False
    power = float(exponent.reshape(()))
    if power == 1:
        return _forward(rewriter, node)
    if power == 2:
        rewriter.become(output, "Mul", (x, x))
        return True
    if power == 3:
        square = rewriter.emit("Mul", (x, x), name=f"{output}.square")
        rewriter.become(output, "Mul", (square, x))
        return True
    if power == 0.5:
        dtype = rewriter.type_of(x).dtype
        low, high = (rewriter.constant(f"{output}.{n}", np.asarray(n, dtype)) for n in (-np.inf, np.inf))
        root = rewriter.emit("Sqrt", (x,), name=f"{output}.root")
        rewriter.become(output, "Where", (rewriter.emit("Equal", (x, low), name=f"{output}.low"), high, root))
        return True
    return False


_RULES: Mapping[str, Rule] = {
    "Transpose": _transpose,
    "Sum": _sum,
    "Conv": _conv,
    "Div": _mean,
    "Mul": _mean,
    "Gather": gather_of_known_places,
    "Pow": _pow,
    "Where": _where,
}

__all__ = ["Simplify"]
