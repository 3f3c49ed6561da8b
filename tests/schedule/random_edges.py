"""Random expressions at the edges of arithmetic: conversions out of range, divisions by zero, guarded reads.

All results are integers with a small bound, held in the type of the program, so that executions can be compared bit
by bit: quotients that are infinite or NaN only go into conversions and predicates.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SMALL_TYPES = {"int8": 128, "uint8": 255, "int16": 1 << 15, "uint16": (1 << 16) - 1}
"""Types that values are forced into, with the largest magnitude of each."""


@dataclass
class Value:
    """A scalar expression's text with what is known of its values."""

    text: str
    bound: float
    exact: bool


def random_edge(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    """An expression of exact values ``a`` and ``b`` of type ``dtype``."""
    return rng.choice((_converted, _divided, _guarded_quotient, _remainder, _undefined))(rng, dtype, a, b)


def _back(text: str, dtype: str) -> str:
    return f'te.cast({text}, "{dtype}")'


def _quotient(a: Value, b: Value) -> str:
    """A quotient by what may be zero, the sign of which is nobody's promise."""
    return f"{a.text} / te.abs({b.text})"


def _converted(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    """A number far out of range, with a fraction, or a quotient by what may be zero, as a small integer."""
    small = rng.choice(list(SMALL_TYPES))
    scale = rng.choice((1, 7, 100, 1000))
    text = f"{a.text} * {scale}"
    if dtype != "int32":
        text = rng.choice((f"{text} + 0.5", f"{text} - 0.75", _quotient(a, b), text))
        if rng.random() < 0.3:
            text = f"te.minimum(te.maximum({text}, -3.0), {rng.choice((100, 255, 1000))}.0)"
    return Value(_back(f'te.cast({text}, "{small}")', dtype), SMALL_TYPES[small], True)


def _divided(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    """Integers divided by what may be zero."""
    kind = rng.choice((*SMALL_TYPES, "int32", "int32"))
    how = rng.choice(("te.floordiv", "te.floormod", "te.truncdiv", "te.truncmod"))
    x, y = (_back(v.text, kind) for v in (a, b))
    return Value(_back(f"{how}({x}, {y})", dtype), SMALL_TYPES.get(kind, max(a.bound, b.bound)), True)


def _guarded_quotient(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    x, y = (_back(v.text, "int32") for v in (a, b))
    how = rng.choice(("//", "%"))
    text = f"te.if_then_else({y} != 0, {x} {how} {y}, {rng.randint(-2, 2)})"
    return Value(_back(text, dtype), max(a.bound, b.bound, 2), True)


def _remainder(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    divisor = f"(te.abs({b.text}) + 1)"
    text = rng.choice(
        (f"te.fmod({a.text}, {divisor})", f"{a.text} % {divisor}", f"te.fmod({a.text}, -{divisor})")
    )
    return Value(f"({text})", b.bound + 1, True)


def _undefined(rng: random.Random, dtype: str, a: Value, b: Value) -> Value:
    """Quotients by what may be zero, asked for what they are."""
    if dtype == "int32":
        return _divided(rng, dtype, a, b)
    predicate = rng.choice(("isnan", "isinf"))
    text = f"te.if_then_else(te.{predicate}({_quotient(a, b)}), {b.text}, {a.text})"
    return Value(text, max(a.bound, b.bound), True)
