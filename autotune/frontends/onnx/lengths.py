"""Lengths that a model computes, as sizes: what NonZero finds, the number of boxes, a sum of durations.

A value of such a length is imported at an assumed one, at most its bound, and what is made of sizes is made of it. The
model is imported so several times, as one whose inputs leave sizes open is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.errors import ModelImportError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Node, TensorType
from autotune.graph.ops.common import int_attr

_OF_SIZES = (
    "Add",
    "Cast",
    "Concat",
    "Div",
    "Equal",
    "Expand",
    "Gather",
    "Identity",
    "Mul",
    "Reshape",
    "Slice",
    "Squeeze",
    "Sub",
    "Unsqueeze",
    "Where",
)
"""Operators that make shapes of lengths; what another one computes is a length of its own."""
_LEAST_BOUND = 16
"""So that a length can be seen to grow, and to stop growing."""
_MOST_INFERRED = 1 << 20
"""Longer values than this need a bound that is given."""


@dataclass(frozen=True)
class Length:
    """A length of at most ``bound`` that ``value`` says, an integer of one element; ``given`` by the user it is
    checked."""

    value: str
    bound: int
    given: bool


@dataclass
class Lengths:
    """The lengths of a model under import: ``assumed`` is what to take for them, by their symbols."""

    assumed: Mapping[str, int]
    found: dict[str, Length] = field(default_factory=dict)
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    _symbols: dict[str, str] = field(default_factory=dict)
    _counts: dict[tuple[object, ...], str] = field(default_factory=dict)

    @property
    def values(self) -> list[str]:
        """The values that say lengths, each once."""
        return list(dict.fromkeys(length.value for length in self.found.values()))

    def same(self, count: str, nodes: Sequence[Node]) -> str:
        """Return the first value that says the same length: exporters look for the same places once for each use."""
        made = next((node for node in reversed(nodes) if count in node.outputs), None)
        key = (count,) if made is None else (made.op, made.inputs, tuple(sorted(made.attrs.items())))
        return self._counts.setdefault(key, count)

    def part(
        self,
        room: str,
        axis: int,
        count: str,
        output: str,
        types: Mapping[str, TensorType],
        bounds: Mapping[str, int],
    ) -> tuple[Node, TensorType]:
        """Return the node that stands for the part of a value that ``count`` says, and the part's type."""
        shape = types[room].shape
        size = self._of(count, output, shape[axis], bounds)
        self.parts[output] = axis, self._symbols[count]
        attrs: dict[str, Attr] = {"axes": (axis,), "starts": (0,), "ends": (size,), "steps": (1,)}
        found = (*shape[:axis], size, *shape[axis + 1 :])
        return Node("Slice", (room,), (output,), attrs, output), replace(types[room], shape=found)

    def _of(self, count: str, name: str, most: int, bounds: Mapping[str, int]) -> int:
        """Return the assumed length that a value says, at most ``most``."""
        if count not in self._symbols:
            symbol = self._symbols[count] = _symbol(name, self.found)
            given = name in bounds and bounds[name] < most
            bound = max(bounds[name] if given else most, _LEAST_BOUND)
            self.found[symbol] = Length(count, bound, given)
        symbol = self._symbols[count]
        return self.assumed.get(symbol, self.found[symbol].bound)

    def evaluated(
        self,
        value: str,
        nodes: Iterable[Node],
        types: Mapping[str, TensorType],
        constants: Mapping[str, Array],
        bounds: Mapping[str, int],
    ) -> Array | None:
        """Return what a value is made of lengths, at the assumed ones; None where it is of something else.

        Raises ModelImportError for a length that nothing bounds.
        """
        made = {output: node for node in nodes for output in node.outputs}
        return _Evaluation(self, made, types, constants, bounds).of(value)


@dataclass(frozen=True)
class _Evaluation:
    lengths: Lengths
    made: Mapping[str, Node]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    bounds: Mapping[str, int]

    def of(self, value: str) -> Array | None:
        if value in self.constants:
            return self.constants[value]
        node, found = self.made.get(value), self.types[value]
        if value not in self.bounds and value not in self.lengths._symbols:
            inputs = self._inputs(node)
            if node is not None and inputs is not None:
                return ops.get(node.op).reference(inputs, node.attrs)[node.outputs.index(value)]
        if found.size != 1 or np.dtype(found.dtype).kind not in "iu" or node is None:
            return None
        return np.full(found.shape, self._length(value), found.dtype)

    def _inputs(self, node: Node | None) -> Sequence[Array | None] | None:
        """Return the operands of a node that makes shapes; None of another."""
        if node is None or node.op not in _OF_SIZES:
            return None
        found = [None if v == ABSENT else self.of(v) for v in node.inputs if self._is_small(v)]
        whole = len(found) == len(node.inputs)
        whole = whole and all(a is not None or v == ABSENT for a, v in zip(found, node.inputs, strict=True))
        return found if whole else None

    def _is_small(self, value: str) -> bool:
        found = self.types.get(value)
        return found is None or (found.size <= 64 and np.dtype(found.dtype).kind in "iub")

    def _length(self, value: str) -> int:
        most = self.most(value)
        if most is None and value not in self.bounds:
            raise ModelImportError(
                f"{value!r} is a length that is known only when it is computed, and nothing says how long it can be\n"
                f"  give a bound, for example --shape {value}=1024, or shapes={{{value!r}: 1024}}"
            )
        return self.lengths._of(value, value, _MOST_INFERRED if most is None else most, self.bounds)

    def most(self, value: str) -> int | None:
        """Return a number that no element of an integer or boolean value exceeds; None where none is known."""
        if value in self.constants:
            array = self.constants[value]
            return int(array.max()) if array.size and array.dtype.kind in "iub" else None
        if self.types[value].dtype == "bool":
            return 1
        node = self.made.get(value)
        rule = _MOST.get(node.op) if node is not None else None
        return None if node is None or rule is None else rule(self, node)


def _same(known: _Evaluation, node: Node) -> int | None:
    return known.most(node.inputs[0])


def _largest(known: _Evaluation, node: Node) -> int | None:
    found = [known.most(value) for value in node.present_inputs]
    return None if None in found else max(each for each in found if each is not None)


def _smallest(known: _Evaluation, node: Node) -> int | None:
    return min((most for v in node.present_inputs if (most := known.most(v)) is not None), default=None)


def _total(known: _Evaluation, node: Node) -> int | None:
    most = known.most(node.inputs[0])
    summed = known.types[node.inputs[0]].size // max(known.types[node.outputs[0]].size, 1)
    return None if most is None or most < 0 else most * summed


def _running(known: _Evaluation, node: Node) -> int | None:
    most, shape = known.most(node.inputs[0]), known.types[node.inputs[0]].shape
    return None if most is None or most < 0 else most * shape[int_attr(node.attrs, "axis")]


def _place(known: _Evaluation, node: Node) -> int | None:
    shape = known.types[node.inputs[0]].shape
    return shape[int_attr(node.attrs, "axis")] - 1


def _added(known: _Evaluation, node: Node) -> int | None:
    found = [known.most(value) for value in node.inputs]
    return None if None in found else sum(each for each in found if each is not None)


_MOST = {
    **dict.fromkeys(
        (
            "Cast",
            "Expand",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
            "ReduceMax",
            "ReduceMin",
            "Reshape",
            "Slice",
            "Squeeze",
            "Transpose",
            "Unsqueeze",
        ),
        _same,
    ),
    "Add": _added,
    "ArgMax": _place,
    "ArgMin": _place,
    "Concat": _largest,
    "CumSum": _running,
    "Max": _largest,
    "Min": _smallest,
    "ReduceSum": _total,
}
"""Bounds of results by those of operands."""


def _symbol(value: str, taken: Mapping[str, object]) -> str:
    """Return a name for a length: that of a value, without what expressions in sizes are written with."""
    plain = re.sub(r"\W", "_", value)
    name, number = f"{plain}.length", 1
    while name in taken:
        name, number = f"{plain}_{number}.length", number + 1
    return name


__all__ = ["Length", "Lengths"]
