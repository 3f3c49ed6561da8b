"""LLVM types and constants as text."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from autotune.te.dtypes import is_float
from autotune.te.narrow import NARROW

_TYPES = {
    "bfloat16": "i16",
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "i64",
    "uint32": "i32",
    "uint16": "i16",
    "uint8": "i8",
    "bool": "i1",
    **dict.fromkeys(NARROW, "i8"),
}


class Value(NamedTuple):
    """An SSA value or constant: its text, dtype and lanes (1 for a scalar).

    ``number`` is the value of an integer that is known while code is emitted.
    The same part of another backend is :class:`autotune.codegen.opencl.types.Value`.
    """

    text: str
    dtype: str
    lanes: int = 1
    number: int | None = None


def scalar_type(dtype: str) -> str:
    """Return LLVM type of a value in a register; a bfloat16 is its bits, no instruction takes it for a number."""
    return _TYPES[dtype]


def memory_type(dtype: str) -> str:
    """Return LLVM type of a value in memory; a bool takes a byte there."""
    return "i8" if dtype == "bool" else _TYPES[dtype]


def vector(type_text: str, lanes: int) -> str:
    """Return the type, or a vector of it."""
    return type_text if lanes == 1 else f"<{lanes} x {type_text}>"


def type_of(value: Value) -> str:
    """Return LLVM type of a value."""
    return vector(_TYPES[value.dtype], value.lanes)


def suffix(dtype: str, lanes: int) -> str:
    """Return the overload suffix of an intrinsic: ``v16f32`` or ``f32``."""
    name = _TYPES[dtype]
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(name, name)
    return short if lanes == 1 else f"v{lanes}{short}"


def constant(value: int | float | bool, dtype: str) -> str:
    """Return a scalar constant; floating point in LLVM's exact hexadecimal form."""
    if dtype == "bool":
        return "true" if value else "false"
    if not is_float(dtype):
        return str(int(value))
    if dtype == "bfloat16":
        return str(np.asarray(value, dtype).view(np.int16))
    if dtype == "float16":
        return "0xH" + struct.pack(">e", value).hex().upper()
    number = float(value)
    if dtype == "float32":
        number = struct.unpack("<f", _packed_float(number))[0]
    return "0x" + struct.pack(">d", number).hex().upper()


def _packed_float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def number(value: int, dtype: str = "int64") -> Value:
    """Return an integer constant."""
    return Value(str(value), dtype, 1, value)
