"""Types of expressions and buffers, by their NumPy names."""

from __future__ import annotations

INDEX_DTYPE = "int64"
"""Type of loop variables and of index arithmetic."""

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
DTYPES = _INTEGERS + _FLOATS


def is_float(dtype: str) -> bool:
    """Whether ``dtype`` is a floating-point type."""
    return dtype in _FLOATS


def promote(a: str, b: str) -> str:
    """Common type of two operands: floating point beats integer, then the wider one.

    >>> promote("float32", "int64"), promote("int32", "int64")
    ('float32', 'int64')
    """
    return a if DTYPES.index(a) >= DTYPES.index(b) else b


__all__ = ["DTYPES", "INDEX_DTYPE", "is_float", "promote"]
