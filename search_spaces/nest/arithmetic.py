"""Arithmetic on what may be one number for all candidates, or stand for an array with one for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from autotune.schedule.knob_expression import ceil_div, least, most
from search_spaces.nest.recorded import Quantity

_BOOL = (bool, np.bool_)
Value: TypeAlias = Any
"""One number for all candidates, or an array of them [n], or a quantity that stands for one."""
Knobs: TypeAlias = Mapping[str, Value]
"""The values of knobs by name."""


def where(condition: Any, a: Value, b: Value) -> Value:
    """Return one of two values for each candidate."""
    if _is_known(condition):
        return a if condition else b
    for one in (condition, a, b):
        if isinstance(one, Quantity):
            return one.apply(np.where, condition, a, b)
    return np.where(condition, a, b)


def either(a: Any, b: Any) -> Any:
    """Return whether one of two conditions holds, for each candidate."""
    if _is_known(a):
        return True if a else b
    return either(b, a) if _is_known(b) else a | b


def both(a: Any, b: Any) -> Any:
    """Return whether two conditions hold, for each candidate."""
    if _is_known(a):
        return b if a else False
    return both(b, a) if _is_known(b) else a & b


def negated(a: Any) -> Any:
    """Return whether a condition does not hold, for each candidate."""
    return not a if _is_known(a) else ~a


def is_one(extent: Value) -> bool:
    """Return whether an extent is 1 for all candidates."""
    return isinstance(extent, int) and extent == 1


def _is_known(condition: Any) -> bool:
    """Return whether a condition is the same for all candidates."""
    return isinstance(condition, _BOOL)


__all__ = ["Knobs", "Value", "both", "ceil_div", "either", "is_one", "least", "most", "negated", "where"]
