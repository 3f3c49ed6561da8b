"""Arithmetic on arrays that is recorded once and run for many populations.

What follows from the steps of a path is the same arithmetic for every population. So it is done with quantities that
stand for arrays: each operation on them is a line of a program, equal operations are one line, and running the program
takes nothing but the array operations themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from autotune.schedule.knob import Columns

Operation = Callable[..., Any]
Line: TypeAlias = tuple[int, Operation, Callable[[list[Any]], tuple[Any, ...]]]
"""An instruction: the place of the result, the operation, and its operands."""


class OperationRecorder:
    """The operations so far, each with the numbers of its operands."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Quantity] = {}
        self._constants: dict[int, Any] = {}
        self._knobs: dict[int, str] = {}
        self._lines: dict[int, tuple[Any, ...]] = {}

    def knob(self, name: str) -> Quantity:
        """Return the stand-in for the values of a knob."""
        made = self._made(("knob", name))
        self._knobs[made.number] = name
        return made

    def apply(self, operation: Operation, *operands: Any) -> Quantity:
        """Return the stand-in for the result of an operation, whose operands are quantities or single values."""
        key = (operation, *[o.number if type(o) is Quantity else self._constant(o) for o in operands])
        found = self._known.get(key)
        if found is None:
            found = self._made(key)
            self._lines[found.number] = key
        return found

    def _made(self, key: tuple[object, ...]) -> Quantity:
        made = self._known[key] = Quantity(self, len(self._known))
        return made

    def _constant(self, operand: Any) -> int:
        key = ("constant", type(operand), operand)
        found = self._known.get(key)
        if found is None:
            found = self._made(key)
            self._constants[found.number] = operand
        return found.number

    def program(self, results: Iterable[Any]) -> Replay:
        """Return the program that computes ``results``, quantities or single values, and no more than that."""
        wanted = [r.number if type(r) is Quantity else self._constant(r) for r in results]
        needed = set(wanted)
        for number in reversed(self._lines):  # what a line needs has a smaller number
            if number in needed:
                needed.update(self._lines[number][1:])
        places = {number: place for place, number in enumerate(sorted(needed))}
        knobs = {name: places[number] for number, name in self._knobs.items() if number in needed}
        start = [self._constants.get(number) for number in sorted(needed)]
        lines = [
            (places[number], operation, _taker([places[operand] for operand in operands]))
            for number, (operation, *operands) in self._lines.items()
            if number in needed
        ]
        return Replay(knobs, start, lines, [places[number] for number in wanted])


class Replay:
    """A recording, ready to run."""

    def __init__(
        self, knobs: Mapping[str, int], start: list[Any], lines: list[Line], results: list[int]
    ) -> None:
        self._knobs = knobs
        self._start = start
        self._lines = lines
        self._results = results

    def run(self, columns: Columns) -> list[Any]:
        """Return the results for a population: one array [n] each, or one number where they are the same for all."""
        values = self._start.copy()
        for name, place in self._knobs.items():
            values[place] = columns[name]
        for place, operation, operands in self._lines:
            values[place] = operation(*operands(values))
        return [values[place] for place in self._results]


class Quantity:
    """Stands for an array [n] in arithmetic that is recorded; what changes nothing is not."""

    __slots__ = ("apply", "number")

    def __init__(self, recording: OperationRecorder, number: int) -> None:
        self.apply = recording.apply
        self.number = number

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **_: Any) -> Any:
        return self.apply(ufunc, *operands)

    def __array_function__(self, function: Operation, types: Any, operands: Any, options: Any) -> Any:
        return self.apply(function, *operands) if not options else NotImplemented

    def __add__(self, other: Any) -> Quantity:
        return self if _is_number(other, 0) else self.apply(operator.add, self, other)

    def __radd__(self, other: Any) -> Quantity:
        return self if _is_number(other, 0) else self.apply(operator.add, other, self)

    def __sub__(self, other: Any) -> Quantity:
        return self if _is_number(other, 0) else self.apply(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Quantity:
        return self.apply(operator.sub, other, self)

    def __mul__(self, other: Any) -> Quantity:
        return self if _is_number(other, 1) else self.apply(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Quantity:
        return self if _is_number(other, 1) else self.apply(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Quantity:
        return self if _is_number(other, 1) else self.apply(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Quantity:
        return self.apply(operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Quantity:
        return self.apply(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Quantity:
        return self.apply(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Quantity:
        return self.apply(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Quantity:
        return self.apply(operator.mod, other, self)

    def __neg__(self) -> Quantity:
        return self.apply(operator.neg, self)

    def __invert__(self) -> Quantity:
        return self.apply(operator.invert, self)

    def __and__(self, other: Any) -> Quantity:
        return self.apply(operator.and_, self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Quantity:
        return self.apply(operator.or_, self, other)

    __ror__ = __or__

    def __lt__(self, other: Any) -> Quantity:
        return self.apply(operator.lt, self, other)

    def __le__(self, other: Any) -> Quantity:
        return self.apply(operator.le, self, other)

    def __gt__(self, other: Any) -> Quantity:
        return self.apply(operator.gt, self, other)

    def __ge__(self, other: Any) -> Quantity:
        return self.apply(operator.ge, self, other)

    def __eq__(self, other: object) -> Any:
        return self.apply(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return self.apply(operator.ne, self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("what an array holds is not known while arithmetic is recorded")


def _is_number(value: Any, number: int) -> bool:
    return type(value) is not Quantity and bool(value == number)


def _taker(places: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return takes the values at some places, as a tuple."""
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return operator.itemgetter(*places)


__all__ = ["OperationRecorder", "Quantity", "Replay"]
