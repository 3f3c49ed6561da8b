"""Numbers that knobs decide: integer arguments of schedule steps as data, and their values for a population.

A quantity is a plain integer, ``("knob", name)`` or ``("knob", op, a, b)``, as the steps of a sketch hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InternalError

Quantity: TypeAlias = int | tuple[Any, ...]
Value: TypeAlias = Any
"""One number for all candidates, or an array of them [n]."""

_FOLDED: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceil_div": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}
_ARRAYS: Mapping[str, Callable[[Value, Value], Value]] = {
    **_FOLDED,
    "min": np.minimum,
    "max": np.maximum,
}


def is_knob(value: object) -> bool:
    """Whether an encoded argument depends on knobs."""
    return isinstance(value, tuple) and bool(value) and value[0] == "knob"


def combined(op: str, a: Quantity, b: Quantity) -> Quantity:
    """A quantity of two others; a plain integer where both are."""
    if isinstance(a, int) and isinstance(b, int):
        return _FOLDED[op](a, b)
    return ("knob", op, a, b)


def value_of(quantity: Quantity, columns: Mapping[str, NDArray[Any]]) -> Value:
    """The value of a quantity for the candidates in ``columns``; raises InternalError for an unknown operation."""
    if not isinstance(quantity, tuple):
        return quantity
    if len(quantity) == 2:
        return columns[quantity[1]]
    _, op, a, b = quantity
    if op not in _ARRAYS:
        raise InternalError(f"a knob is used in the unknown operation {op!r}")
    return _ARRAYS[op](value_of(a, columns), value_of(b, columns))


__all__ = ["Quantity", "Value", "combined", "is_knob", "value_of"]
