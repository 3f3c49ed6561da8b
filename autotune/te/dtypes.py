"""Types of expressions and buffers, by their NumPy names."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # NumPy knows "bfloat16" by name from here on

INDEX_DTYPE = "int64"
"""Type of loop variables and of index arithmetic."""

HALVES = ("bfloat16", "float16")
"""Types of two bytes that numbers are stored in; arithmetic on them is that of float32, rounded once."""

_FLOATS = (*HALVES, "float32", "float64")
_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
DTYPES = _INTEGERS + _FLOATS


def is_float(dtype: str) -> bool:
    """Whether ``dtype`` is a floating-point type."""
    return dtype in _FLOATS


def float_limits(dtype: str) -> Any:
    """``numpy.finfo`` of a floating-point type, bfloat16 among them."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def promote(a: str, b: str) -> str:
    """Common type of two operands: floating point beats integer, then the wider one.

    >>> promote("float32", "int64"), promote("int32", "int64")
    ('float32', 'int64')
    >>> promote("float16", "bfloat16")  # neither holds all values of the other
    'float32'
    """
    if {a, b} == set(HALVES):
        return "float32"
    return a if DTYPES.index(a) >= DTYPES.index(b) else b


__all__ = ["DTYPES", "HALVES", "INDEX_DTYPE", "float_limits", "is_float", "promote"]
