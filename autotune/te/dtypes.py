"""Types of expressions and buffers, by their NumPy names."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # NumPy knows "bfloat16" by name from here on

from autotune.te.narrow import NARROW

INDEX_DTYPE = "int64"
"""Type of loop variables and of index arithmetic."""

HALVES = ("bfloat16", "float16")
"""Types of two bytes that numbers are stored in; arithmetic on them is that of float32, rounded once."""

_FLOATS = (*HALVES, "float32", "float64")
_UNSIGNED_BITS = {"bool": 1, "uint2": 2, "uint4": 4, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_SIGNED_BITS = {"int2": 2, "int4": 4, "int8": 8, "int16": 16, "int32": 32, "int64": 64}
_INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
"""By width, and at one width signed numbers last."""

DTYPES = _INTEGERS + _FLOATS
"""Types that are computed with."""

STORAGE_DTYPES = DTYPES + NARROW
"""Types of elements in memory."""


_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32"}
_KNOWN = frozenset(STORAGE_DTYPES)


def dtype_named(dtype: Any) -> str:
    """Return the type that a name, a NumPy type or one of C's names means; raises TypeError.

    >>> dtype_named("float"), dtype_named("int8")
    ('float32', 'int8')
    """
    if isinstance(dtype, str) and dtype in _KNOWN:
        return dtype
    name = (
        _ALIASES.get(dtype, dtype)
        if isinstance(dtype, str)
        else getattr(dtype, "name", None) or (getattr(dtype, "__name__", ""))
    )
    if name not in _KNOWN:
        raise TypeError(f"unknown dtype {dtype!r}; known: {', '.join(STORAGE_DTYPES)}")
    return str(name)


def is_float(dtype: str) -> bool:
    """Return whether ``dtype`` is a floating-point type."""
    return dtype in _FLOATS


def is_unsigned(dtype: str) -> bool:
    """Return whether ``dtype`` holds integers (or truth values) that are never negative."""
    return dtype in _UNSIGNED_BITS


def integer_limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and largest value of an integer type.

    >>> integer_limits("int8"), integer_limits("uint16"), integer_limits("bool")
    ((-128, 127), (0, 65535), (0, 1))
    """
    if dtype in _UNSIGNED_BITS:
        return 0, (1 << _UNSIGNED_BITS[dtype]) - 1
    half = 1 << (_SIGNED_BITS[dtype] - 1)
    return -half, half - 1


def wrapped(value: int, dtype: str) -> int:
    """Return the value of an integer type that is ``value`` modulo two to the power of its bits; not for bool.

    >>> wrapped(300, "uint8"), wrapped(200, "int8")
    (44, -56)
    """
    low, high = integer_limits(dtype)
    return (value - low) % (high - low + 1) + low


def float_limits(dtype: str) -> Any:
    """Return ``numpy.finfo`` of a floating-point type, bfloat16 among them."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def promote(a: str, b: str) -> str:
    """Return the common type of two operands: floating point beats integer, then the wider one, then the signed one.

    >>> promote("float32", "int64"), promote("int32", "int64"), promote("uint8", "int8")
    ('float32', 'int64', 'int8')
    >>> promote("float16", "bfloat16")  # neither holds all values of the other
    'float32'
    """
    if {a, b} == set(HALVES):
        return "float32"
    return a if DTYPES.index(a) >= DTYPES.index(b) else b


__all__ = [
    "DTYPES",
    "HALVES",
    "INDEX_DTYPE",
    "STORAGE_DTYPES",
    "dtype_named",
    "float_limits",
    "integer_limits",
    "is_float",
    "is_unsigned",
    "promote",
    "wrapped",
]
