"""Values of knobs: what a schedule function gets from ``s.knob`` and computes with.

A knob value stands for the number (text, truth value) of the configuration that is bound, and remembers the
expression of knobs that it came from. As an argument of a primitive the step keeps the expression, so that one trace
serves many configurations. Where Python itself has to know the value (``if``, ``range``, a look-up), the answer is
recorded as a *guard*: the trace is that of all configurations which answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.errors import KnobError
from autotune.schedule.knob import Config, Knob, Value
from autotune.schedule.knob_expression import (
    OPERATORS,
    Expression,
    expression_text,
    is_arithmetic,
    is_expression,
    knobs_in,
)
from autotune.te.expr import Expr, IterVar, Var, const

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule


@dataclass(frozen=True)
class Requirement:
    """A rule over knob values as a schedule function stated it, and the guards that led there."""

    name: str
    expressions: tuple[Expression, ...]
    rule: Callable[..., Any] = field(compare=False)
    help: str = field(compare=False)
    guards: Mapping[Expression, Value] = field(compare=False)


@dataclass
class KnobRecord:
    """One run of a schedule function: the configuration it sees, and what it asked for.

    Knobs that ``config`` does not name have their defaults. Guards are kept while ``recording``.
    """

    config: Config = field(default_factory=dict)
    recording: bool = False
    knobs: dict[str, Knob] = field(default_factory=dict)
    """The knobs that are known, by name."""
    used: dict[str, None] = field(default_factory=dict)
    """The names of those that were asked for, in order."""
    guards: dict[Expression, Value] = field(default_factory=dict)
    requirements: list[Requirement] = field(default_factory=list)

    def value_of(self, name: str) -> Value:
        """Return the value of a declared knob here."""
        knob = self.knobs[name]
        return knob.values[knob.index(self.config[name])] if name in self.config else knob.default

    def declare(self, knob: Knob) -> KnobValue:
        """Return the value of a knob; raises KnobError where it was declared otherwise, or cannot have its value."""
        if self.knobs.setdefault(knob.name, knob) != knob:
            raise KnobError(f"knob {knob.name!r} is declared twice, with different values or defaults")
        self.used[knob.name] = None
        return KnobValue(self, ("knob", knob.name), self.value_of(knob.name))

    def guard(self, expression: Expression, outcome: Value) -> None:
        """Note that Python saw ``outcome``."""
        if self.recording and is_expression(expression):
            self.guards.setdefault(expression, outcome)


class KnobValue:
    """The value of a knob, or of an expression of knobs.

    ``+ - * // %``, comparisons, ``& |`` and :func:`minimum`, :func:`maximum`, :func:`ceil_div` give knob values;
    ``if``, ``int()``, ``str()``, ``range()`` and the like answer with the plain value and record a guard.
    """

    __slots__ = ("expression", "record", "value")

    def __init__(self, record: KnobRecord, expression: Expression, value: Value) -> None:
        self.record = record
        self.expression = expression
        self.value = value

    def _seen(self) -> Value:
        self.record.guard(self.expression, self.value)
        return self.value

    def __bool__(self) -> bool:
        if isinstance(self.value, bool):
            return bool(self._seen())
        return bool(combined("!=", self, type(self.value)()))

    def __index__(self) -> int:
        if isinstance(self.value, str):
            raise TypeError(f"{self!r} is a text, not a number")
        return int(self._seen())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        return str(self._seen())

    def __format__(self, spec: str) -> str:
        return format(self._seen(), spec)

    def __hash__(self) -> int:
        return hash(self._seen())

    def __repr__(self) -> str:
        return f"<{expression_text(self.expression)} = {self.value!r}>"

    def as_index(self) -> Expr:
        """Return the value in an index expression: by name where an index map can hold its expression."""
        if is_arithmetic(self.expression):
            return KnobVar(self)
        return const(int(self))

    def __add__(self, other: Any) -> Any:
        return combined("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return combined("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return combined("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return combined("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return combined("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return combined("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return combined("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return combined("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return combined("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return combined("%", other, self)

    def __neg__(self) -> Any:
        return combined("-", 0, self)

    def __eq__(self, other: Any) -> Any:
        return combined("==", self, other)

    def __ne__(self, other: Any) -> Any:
        return combined("!=", self, other)

    def __lt__(self, other: Any) -> Any:
        return combined("<", self, other)

    def __le__(self, other: Any) -> Any:
        return combined("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return combined(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return combined(">=", self, other)

    def __and__(self, other: Any) -> Any:
        return combined("&", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return combined("|", self, other)

    __ror__ = __or__


class KnobVar(Var):
    """A knob value in an index expression; its name is the text of the expression."""

    __slots__ = ("knob_value",)

    def __init__(self, value: KnobValue) -> None:
        super().__init__(expression_text(value.expression))
        self.knob_value = value

    @property
    def values(self) -> dict[str, Value]:
        """The values of the knobs that the name holds."""
        record = self.knob_value.record
        return {name: record.value_of(name) for name in knobs_in(self.knob_value.expression)}


class KnobLoop(IterVar):
    """A loop whose extent depends on knobs: a schedule function reads a knob value, everything else a number."""

    __slots__ = ("_number", "schedule", "size")

    def __init__(self, name: str, size: KnobValue, kind: str, schedule: Schedule) -> None:
        self.schedule = schedule
        self.size = size
        super().__init__(name, int(size.value), kind)

    @property
    def extent(self) -> Any:
        """The iterations."""
        reading = self.size.record.recording and not self.schedule.step
        return self.size if reading else self._number

    @extent.setter
    def extent(self, number: int) -> None:
        self._number = number


def extent_of(loop: IterVar) -> Any:
    """Return the extent as a primitive computes with it: a knob value where it depends on knobs."""
    return loop.size if isinstance(loop, KnobLoop) else loop.extent


def combined(symbol: str, a: Any, b: Any) -> Any:
    """Return ``a symbol b``: a knob value where one of them is; NotImplemented for what is no plain value."""
    left, right = concrete(a), concrete(b)
    if not isinstance(left, int | str) or not isinstance(right, int | str):
        return NotImplemented
    value = OPERATORS[symbol](left, right)
    known = a if isinstance(a, KnobValue) else b
    if not isinstance(known, KnobValue):
        return value
    return KnobValue(known.record, ("knob", symbol, expression_of(a), expression_of(b)), value)


def expression_of(value: Any) -> Expression:
    """Return the expression that a knob value came from; a plain value as it is."""
    return value.expression if isinstance(value, KnobValue) else value


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller of two numbers or knob values; ``min`` would record which it is."""
    return combined("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger of two numbers or knob values."""
    return combined("max", a, b)


def ceil_div(a: Any, b: Any) -> Any:
    """Return the quotient of two numbers or knob values, rounded up."""
    return combined("ceil_div", a, b)


def concrete(value: Any) -> Any:
    """Return ``value`` with the plain values of knobs, lists included; no guard is recorded."""
    if isinstance(value, KnobValue):
        return value.value
    if type(value) in (list, tuple):
        return type(value)(concrete(item) for item in value)
    return value


def holds_knobs(value: Any) -> bool:
    """Return whether a value is a knob value or a list with one."""
    if type(value) in (list, tuple):
        return any(holds_knobs(item) for item in value)
    return isinstance(value, KnobValue)


__all__ = [
    "KnobLoop",
    "KnobRecord",
    "KnobValue",
    "KnobVar",
    "Requirement",
    "ceil_div",
    "combined",
    "concrete",
    "expression_of",
    "extent_of",
    "holds_knobs",
    "maximum",
    "minimum",
]
