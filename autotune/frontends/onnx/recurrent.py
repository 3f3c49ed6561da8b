"""LSTM, GRU and RNN as products of all steps at once and a loop over the steps.

What a step takes of its input is a product that depends on no other step: it is one matrix product before the loop. A
step is the product of the state and what follows from it. The two directions are one loop, whose steps do one of each.
Gates are in ONNX's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from autotune.frontends.onnx.activations import Activation, activations
from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.graph.ops.loop import lifted, loop_node, side_by_side

RECURRENT: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
"""Recurrent operators, and how many gates they have."""
_DIRECTIONS: Mapping[str, tuple[int, ...]] = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""For each direction of an operator whether its steps go from the end."""


@dataclass(frozen=True)
class _Cell:
    """The common part of all directions of a node. ``batch`` and ``hidden`` are sizes."""

    node: OnnxNode
    emit: Emitter
    batch: int
    hidden: int
    steps: int
    dtype: str

    @property
    def gates(self) -> int:
        return RECURRENT[self.node.op]

    @property
    def is_lstm(self) -> bool:
        return self.node.op == "LSTM"

    @property
    def linear_before_reset(self) -> bool:
        return bool(self.node.attrs.get("linear_before_reset", 0))


_Captured: TypeAlias = dict[str, str]


def recurrent(node: OnnxNode, emit: Emitter) -> None:
    """Add the nodes of a recurrent operator.

    Raises:
        ModelImportError: an activation or direction that ONNX does not have.
    """
    attrs = node.attrs
    direction = attrs.get("direction", "forward")
    if direction not in _DIRECTIONS:
        raise node.fail(f"unknown direction {direction!r}; one of {', '.join(_DIRECTIONS)}")
    ends = _DIRECTIONS[direction]
    layout = attrs.get("layout", 0)
    x = emit("Transpose", node.inputs[:1], {"perm": (1, 0, 2)}, "steps") if layout else node.inputs[0]
    (steps, batch, _), dtype = emit.type_of(x).shape, emit.type_of(x).dtype
    hidden = node.input_type(2).shape[-1]
    cell = _Cell(node, emit, batch, hidden, steps, dtype)
    chosen = activations(node, len(ends))
    lengths = _active(cell)
    loops = [
        _direction(cell, x, number, end, chosen[number], lengths, layout) for number, end in enumerate(ends)
    ]
    both = side_by_side(loops) if len(loops) > 1 else loops[0]
    emit.append(both.op, list(both.inputs), list(both.outputs), both.attrs)
    found = [(every, *states) for *states, every in (loop.outputs for loop in loops)]
    for index, results in enumerate(zip(*found, strict=True)):
        if emit.wants(index):
            _join(cell, list(results), index, layout)


def _join(cell: _Cell, results: list[str], index: int, layout: int) -> None:
    """Join one output of all directions: ``[steps, directions, batch, hidden]``, or without steps."""
    emit, axis = cell.emit, 1 if index == 0 else 0
    shape = (cell.steps, 1, cell.batch, cell.hidden)[1 - axis :]
    parts = [emit("Reshape", [value], {"shape": shape}) for value in results]
    output = cell.node.outputs[index]
    if not layout:
        emit("Concat", parts, {"axis": axis}, "", output)
        return
    joined = emit("Concat", parts, {"axis": axis})
    perm = (2, 0, 1, 3) if index == 0 else (1, 0, 2)
    emit("Transpose", [joined], {"perm": perm}, "", output)


def _active(cell: _Cell) -> str:
    """Return whether each sequence of the batch has each step: ``[steps, batch, 1]``; nothing where all have all."""
    value, emit = cell.node.input(4), cell.emit
    if value == ABSENT:
        return ABSENT
    known = cell.node.scope.constant_of(value)
    if known is not None and (known >= cell.steps).all():
        return ABSENT
    numbers = emit.constant(np.arange(cell.steps).reshape(-1, 1, 1), "int32")
    lengths = emit("Reshape", [emit("Cast", [value], {"to": "int32"})], {"shape": (1, cell.batch, 1)})
    return emit("Less", [numbers, lengths], {}, "active")


def _part(cell: _Cell, index: int, number: int, layout: int = 0) -> str:
    """Return an input's part for one direction, without the axis of directions; nothing where it is absent."""
    value, emit = cell.node.input(index), cell.emit
    if value == ABSENT:
        return ABSENT
    shape = emit.type_of(value).shape
    axis = 1 if layout else 0
    if shape[axis] > 1:
        cut = {"starts": (number,), "ends": (number + 1,), "axes": (axis,)}
        value = emit("Slice", [value], cut, "direction")
    return emit("Reshape", [value], {"shape": shape[:axis] + shape[axis + 1 :]}, "direction")


def _direction(
    cell: _Cell, x: str, number: int, end: int, chosen: Sequence[Activation], active: str, layout: int
) -> Node:
    """Return the loop of one direction, whose outputs are of the last step the hidden state, and the cell's for an
    LSTM; and of all steps."""
    emit, node, hidden = cell.emit, cell.node, cell.hidden
    captured: _Captured = {}
    weights = emit("Transpose", [_part(cell, 1, number)], {"perm": (1, 0)}, "input_weights")
    taken = emit("MatMul", [x, weights], {}, "of_input")
    bias = _part(cell, 3, number)
    if bias != ABSENT:
        taken = emit("Add", [taken, _input_bias(cell, bias, captured)], {}, "with_bias")
    captured["weights"] = emit("Transpose", [_part(cell, 2, number)], {"perm": (1, 0)}, "weights")
    if cell.is_lstm and node.input(7) != ABSENT:
        peepholes = _part(cell, 7, number)
        for name, begin in zip("iof", range(0, 3 * hidden, hidden), strict=True):
            cut = {"starts": (begin,), "ends": (begin + hidden,), "axes": (0,)}
            captured[f"peephole_{name}"] = emit("Slice", [peepholes], cut, f"peephole_{name}")
    states = [_initial(cell, 5, number, layout)]
    if cell.is_lstm:
        states.append(_initial(cell, 6, number, layout))
    if node.op == "GRU" and not cell.linear_before_reset:
        for name, begin, end_ in (("weights_zr", 0, 2 * hidden), ("weights_h", 2 * hidden, 3 * hidden)):
            cut = {"starts": (begin,), "ends": (end_,), "axes": (1,)}
            captured[name] = emit("Slice", [captured["weights"]], cut, name)
        del captured["weights"]
    scanned = [taken, *([active] if active != ABSENT else [])]
    body, constants = lifted(_body(cell, chosen, captured, masked=active != ABSENT))
    captured |= {name: emit.constant(array, cell.dtype) for name, array in constants.items()}
    results = [emit.fresh(f"{node.name}.{number}.{suffix}") for suffix in ("state", "cell")[: len(states)]]
    every = emit.fresh(f"{node.name}.{number}.states")
    return loop_node(
        [*states, *scanned, *captured.values()],
        [*results, every],
        body,
        carried=len(states),
        scanned=len(scanned),
        trips=cell.steps,
        from_end=(end,) * (len(scanned) + 1),
    )


def _initial(cell: _Cell, index: int, number: int, layout: int) -> str:
    found = _part(cell, index, number, layout)
    if found != ABSENT:
        return found
    return cell.emit.constant(np.zeros((cell.batch, cell.hidden)), cell.dtype)


def _input_bias(cell: _Cell, bias: str, captured: _Captured) -> str:
    """Return the bias that is added before the loop; that of a GRU's new state stays in it where a gate
    multiplies it."""
    emit, width = cell.emit, cell.gates * cell.hidden
    split: tuple[int, ...] = (width, width)
    inside = 0
    if cell.node.op == "GRU" and cell.linear_before_reset:
        inside = cell.hidden
        split = (width, width - inside, inside)
    begins = np.cumsum([0, *split]).tolist()
    parts = [
        emit("Slice", [bias], {"starts": (begin,), "ends": (begin + extent,), "axes": (0,)}, "bias")
        for begin, extent in zip(begins, split, strict=False)
    ]
    recurrence = parts[1]
    if inside:
        captured["bias"] = parts[2]
        zeros = emit.constant(np.zeros(inside), cell.dtype)
        recurrence = emit("Concat", [recurrence, zeros], {"axis": 0}, "bias")
    return emit("Add", [parts[0], recurrence], {}, "bias")


# one step -----------------------------------------------------------------------------------------


@dataclass
class _StepGraph:
    """The graph of a step as it is put together; ``h`` and ``c`` are the state before it, ``x`` its input's part."""

    cell: _Cell
    builder: GraphBuilder
    chosen: Sequence[Activation]
    captured: Mapping[str, str]
    h: str
    c: str
    x: str

    def __call__(self, op: str, *inputs: str) -> str:
        return self.builder.node(op, *inputs)

    def activate(self, index: int, value: str) -> str:
        """Return the result of the activation with this number for what a gate sums up."""
        bound = float(self.cell.node.attrs.get("clip", 0.0))
        if bound > 0:
            value = self.builder.node("Clip", value, min=-bound, max=bound)
        return self.chosen[index].add(self.builder, value)

    def plain(self, index: int, value: str) -> str:
        """Return the same for what is not clipped: the state of a cell."""
        return self.chosen[index].add(self.builder, value)

    def gates(self, value: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return parts of equal size."""
        if len(names) == 1:
            return (value,)
        split = (self.cell.hidden,) * len(names)
        return self.builder.nodes("Split", [value], names, axis=1, split=split)


def _body(cell: _Cell, chosen: Sequence[Activation], captured: _Captured, *, masked: bool) -> Graph:
    builder = GraphBuilder(f"{cell.node.op.lower()} step")
    state = (cell.batch, cell.hidden)
    h = builder.input("h", state, cell.dtype)
    c = builder.input("c", state, cell.dtype) if cell.is_lstm else ABSENT
    x = builder.input("x", (cell.batch, cell.gates * cell.hidden), cell.dtype)
    active = builder.input("active", (cell.batch, 1), "bool") if masked else ABSENT
    for name, value in captured.items():
        found = cell.emit.type_of(value)
        builder.input(name, found.shape, found.dtype)
    step = _StepGraph(cell, builder, chosen, captured, h, c, x)
    before = [h, c] if cell.is_lstm else [h]
    after = _STEPS[cell.node.op](step)
    if not masked:
        return builder.graph(*after, after[0])
    kept = [builder.node("Where", active, new, old) for new, old in zip(after, before, strict=True)]
    zero = builder.constant("zero", np.zeros((), cell.dtype))
    return builder.graph(*kept, builder.node("Where", active, after[0], zero))


def _lstm(step: _StepGraph) -> list[str]:
    gates = step("Add", step("MatMul", step.h, "weights"), step.x)
    i, o, f, new = step.gates(gates, ("i", "o", "f", "new"))
    peepholes = "peephole_i" in step.captured

    def seen(gate: str, name: str, state: str) -> str:
        return step("Add", gate, step("Mul", f"peephole_{name}", state)) if peepholes else gate

    i = step.activate(0, seen(i, "i", step.c))
    if step.cell.node.attrs.get("input_forget", 0):
        f = _rest(step, i)
    else:
        f = step.activate(0, seen(f, "f", step.c))
    c = step("Add", step("Mul", f, step.c), step("Mul", i, step.activate(1, new)))
    o = step.activate(0, seen(o, "o", c))
    return [step("Mul", o, step.plain(2, c)), c]


def _gru(step: _StepGraph) -> list[str]:
    hidden = step.cell.hidden
    x_zr, x_h = step.builder.nodes("Split", [step.x], ["x_zr", "x_h"], axis=1, split=(2 * hidden, hidden))
    if step.cell.linear_before_reset:
        product = step("MatMul", step.h, "weights")
        p_zr, p_h = step.builder.nodes(
            "Split", [product], ["p_zr", "p_h"], axis=1, split=(2 * hidden, hidden)
        )
        z, r = step.gates(step("Add", p_zr, x_zr), ("z", "r"))
        if "bias" in step.captured:
            p_h = step("Add", p_h, "bias")
        of_state = step("Mul", step.activate(0, r), p_h)
    else:
        z, r = step.gates(step("Add", step("MatMul", step.h, "weights_zr"), x_zr), ("z", "r"))
        of_state = step("MatMul", step("Mul", step.activate(0, r), step.h), "weights_h")
    z, new = step.activate(0, z), step.activate(1, step("Add", of_state, x_h))
    return [step("Add", step("Mul", _rest(step, z), new), step("Mul", z, step.h))]


def _rnn(step: _StepGraph) -> list[str]:
    return [step.activate(0, step("Add", step("MatMul", step.h, "weights"), step.x))]


def _rest(step: _StepGraph, gate: str) -> str:
    """Return 1 - gate."""
    one = step.builder.constant("one", np.ones((), step.cell.dtype))
    return step("Sub", one, gate)


_STEPS: Mapping[str, Callable[[_StepGraph], list[str]]] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}

__all__ = ["RECURRENT", "recurrent"]
