"""Arithmetic on what may be one number for all candidates, or an array with one for each."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from autotune.schedule.knob_expression import ceil_div, least, most

Value: TypeAlias = Any
"""One number for all candidates, or an array of them [n]."""


def where(condition: Any, a: Value, b: Value) -> Value:
    """One of two values for each candidate."""
    if isinstance(condition, bool):
        return a if condition else b
    return np.where(condition, a, b)


def either(a: Any, b: Any) -> Any:
    """Whether one of two conditions holds, for each candidate."""
    if isinstance(a, bool):
        return True if a else b
    return either(b, a) if isinstance(b, bool) else a | b


def both(a: Any, b: Any) -> Any:
    """Whether two conditions hold, for each candidate."""
    if isinstance(a, bool):
        return b if a else False
    return both(b, a) if isinstance(b, bool) else a & b


def negated(a: Any) -> Any:
    """Whether a condition does not hold, for each candidate."""
    return not a if isinstance(a, bool) else ~a


__all__ = ["Value", "both", "ceil_div", "either", "least", "most", "negated", "where"]
