"""Arithmetic on extents of loops: of one candidate, or of all candidates of a population at once.

A value is one number for all, or an array [n] with one for each, or an object that stands for such an array and takes
part in NumPy's functions (``__array_ufunc__``, ``__array_function__``). The operators of Python do for these; here is
what differs between numbers and arrays.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = Any
"""One number for all candidates, or what has one for each."""

_BOOL = (bool, np.bool_)


def ceil_div(a: Any, b: Any) -> Any:
    """Return the quotient of integers, rounded up."""
    return -(-a // b)


def least(a: Any, b: Any) -> Any:
    """Return the smaller of two numbers, or of each two of arrays."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def most(a: Any, b: Any) -> Any:
    """Return the larger of two numbers, or of each two of arrays."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def common_divisor(a: Any, b: Any) -> Any:
    """Return the greatest common divisor of two integers, or of each two of arrays; with 1 it is 1 for all."""
    if isinstance(a, int) and isinstance(b, int):
        return math.gcd(a, b)
    return 1 if is_one(a) or is_one(b) else np.gcd(a, b)


def where(condition: Any, a: Value, b: Value) -> Value:
    """Return one of two values for each candidate."""
    if isinstance(condition, _BOOL):
        return a if condition else b
    if type(a) is type(b) is int and a == b:
        return a
    return np.where(condition, a, b)


def either(a: Any, b: Any) -> Any:
    """Return whether one of two conditions holds, for each candidate."""
    if isinstance(a, _BOOL):
        return True if a else b
    return either(b, a) if isinstance(b, _BOOL) else a | b


def both(a: Any, b: Any) -> Any:
    """Return whether two conditions hold, for each candidate."""
    if isinstance(a, _BOOL):
        return b if a else False
    return both(b, a) if isinstance(b, _BOOL) else a & b


def negated(a: Any) -> Any:
    """Return whether a condition does not hold, for each candidate."""
    return not a if isinstance(a, _BOOL) else ~a


def is_one(extent: Value) -> bool:
    """Return whether an extent is 1 for all candidates."""
    return isinstance(extent, int) and extent == 1


__all__ = [
    "Value",
    "both",
    "ceil_div",
    "common_divisor",
    "either",
    "is_one",
    "least",
    "most",
    "negated",
    "where",
]
