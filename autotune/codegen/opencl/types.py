"""Types of OpenCL C, values as text, and constants.

Numbers of two bytes are kept in memory as ``ushort`` and computed with as ``float``; truth values are ``uchar`` in
memory. Whole numbers of 64 bits that are known to fit are computed with in 32: the text of such a value has type
``int``.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from autotune.errors import BuildError
from autotune.te.dtypes import HALVES, is_float, is_unsigned
from autotune.te.expr import Const

_REGISTER = {
    "float64": "double",
    "float32": "float",
    "float16": "float",
    "bfloat16": "float",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint64": "ulong",
    "uint32": "uint",
    "uint16": "ushort",
    "uint8": "uchar",
    "bool": "int",
}
_MEMORY = {**_REGISTER, "float16": "ushort", "bfloat16": "ushort", "bool": "uchar"}

INT_LIMITS = -(2**31) + 1, 2**31 - 1
"""Numbers that are computed with in 32 bits where they are known to stay within these."""


class Value(NamedTuple):
    """An expression of OpenCL C: its text, the dtype whose register type it has, and its number where it is known.

    ``depth`` counts the brackets inside of each other. A value of dtype int64 that fits has the text of an ``int``, and
    ``narrow`` says so.
    The same part of another backend is :class:`autotune.codegen.llvm.types.Value`.
    """

    text: str
    dtype: str
    number: int | None = None
    depth: int = 0
    narrow: bool = False

    @property
    def ctype(self) -> str:
        """Type of the text."""
        return "int" if self.narrow else _REGISTER[self.dtype]


def register_type(dtype: str) -> str:
    """Return the type of OpenCL C that values are computed with. Raises BuildError for types that this
    backend has not."""
    if dtype not in _REGISTER:
        raise BuildError(f"code for OpenCL devices has no type {dtype}\n  it has: {', '.join(_REGISTER)}")
    return _REGISTER[dtype]


def memory_type(dtype: str) -> str:
    """Return the type of OpenCL C of elements in memory. Raises BuildError for types that this backend has not."""
    register_type(dtype)
    return _MEMORY[dtype]


def whole(number: int, dtype: str = "int64") -> Value:
    """Return an integer constant."""
    narrow = dtype == "int64" and INT_LIMITS[0] <= number <= INT_LIMITS[1]
    return Value(_integer(number, "int32" if narrow else dtype), dtype, number, 0, narrow)


def _integer(number: int, dtype: str) -> str:
    if dtype == "bool":
        return str(int(bool(number)))
    suffix = {"int64": "L", "uint64": "UL", "uint32": "U"}.get(dtype, "")
    if dtype in ("int64", "int32") and number == -(2 ** (63 if dtype == "int64" else 31)):
        text = f"({number + 1}{suffix} - 1)"
    else:
        text = f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"
    return f"(({_REGISTER[dtype]}){text})" if dtype not in ("int64", "uint64", "int32", "uint32") else text


def constant(node: Const) -> Value:
    """Return a constant of any type."""
    if not is_float(node.dtype):
        return whole(int(node.value), node.dtype)
    return Value(floating(float(node.value), node.dtype), node.dtype)


def floating(value: float, dtype: str) -> str:
    """Return a floating-point constant, exactly.

    >>> floating(0.5, "float32"), floating(-1.0, "float64")
    ('0x1.0000000000000p-1f', '(-0x1.0000000000000p+0)')
    """
    if dtype in HALVES:
        value = _rounded(value, dtype)
    elif dtype == "float32":
        value = _single(value)
    suffix = "" if dtype == "float64" else "f"
    if math.isnan(value):
        return "as_double(0x7ff8000000000000UL)" if dtype == "float64" else "as_float(0x7fc00000U)"
    if math.isinf(value):
        bits = "as_double(0x{}ff0000000000000UL)" if dtype == "float64" else "as_float(0x{}f800000U)"
        return bits.format("7" if value > 0 else "f")
    text = f"{abs(value).hex()}{suffix}"
    return text if math.copysign(1.0, value) > 0 else f"(-{text})"


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _rounded(value: float, dtype: str) -> float:
    """Return the nearest number of a type of two bytes."""
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float64).astype(np.dtype(dtype)))


def vector_type(dtype: str, lanes: int) -> str:
    """Return a vector of register values."""
    return f"{_REGISTER[dtype]}{lanes}"


def unsigned(dtype: str) -> str:
    """Return the register type of the unsigned integers of the same size, of 32 bits at least.

    C computes with shorter ones in ``int``, whose products of two ``ushort`` overflow.
    """
    return "ulong" if dtype in ("int64", "uint64") else "uint"


def wraps(dtype: str) -> bool:
    """Return whether arithmetic must be told to wrap: in C that of signed numbers does not, nor that of short ones."""
    return not is_unsigned(dtype) or dtype in ("uint16", "uint8")


__all__ = [
    "INT_LIMITS",
    "Value",
    "constant",
    "floating",
    "memory_type",
    "register_type",
    "unsigned",
    "vector_type",
    "whole",
    "wraps",
]
