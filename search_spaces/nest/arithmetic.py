"""Arithmetic on what may be one number for all candidates, or an array with one for each."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = Any
"""One number for all candidates, or an array of them [n]."""


def ceil_div(a: Value, b: Value) -> Value:
    """The quotient of integers, rounded up."""
    return -(-a // b)


def least(a: Value, b: Value) -> Value:
    """The smaller of two numbers, or of each two of arrays."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def most(a: Value, b: Value) -> Value:
    """The larger of two numbers, or of each two of arrays."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


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
