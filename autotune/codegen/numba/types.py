"""Types of numba, values as text of Python, and constants.

Numbers of two bytes are ``uint16`` in memory and computed with as ``float32``; shorter ones are bytes. numba computes
with integers in 64 bits, so that a result of a shorter type is brought back to it, which wraps.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from autotune.te.dtypes import HALVES, is_float
from autotune.te.expr import Const
from autotune.te.narrow import NARROW


class Level(IntEnum):
    """Precedence of Python's operators: a text in brackets, or a call, binds closest."""

    CONDITION = 0
    OR = 1
    AND = 2
    NOT = 3
    COMPARE = 4
    BIT_OR = 5
    BIT_XOR = 6
    BIT_AND = 7
    SHIFT = 8
    SUM = 9
    PRODUCT = 10
    SIGN = 11
    ATOM = 12


class Value(NamedTuple):
    """An expression as text of Python.

    The text has exactly the type of ``dtype`` in numba, ``float32`` for numbers of two bytes. ``level`` is the
    precedence of its outermost operator, ``depth`` counts what is inside of each other.
    The same part of another backend is :class:`autotune.codegen.opencl.types.Value`.
    """

    text: str
    dtype: str
    level: Level = Level.ATOM
    depth: int = 0

    def at(self, level: Level) -> str:
        """Return the text, in brackets where an operator of this level would take it apart."""
        return self.text if self.level >= level else f"({self.text})"


def register_type(dtype: str) -> str:
    """Return NumPy's name of what values are computed with; those of eight bits and fewer are moved as their bits."""
    return "float32" if dtype in HALVES else "uint8" if dtype in NARROW else dtype


def memory_type(dtype: str) -> str:
    """Return NumPy's name of elements in memory: numbers that numba has no type for are their bits."""
    return "uint16" if dtype in HALVES else "bool_" if dtype == "bool" else register_type(dtype)


def as_stored(dtype: str) -> bool:
    """Return whether arrays of a type are passed to numba as those of :func:`memory_type`."""
    return dtype in HALVES or dtype in NARROW


def constant(node: Const) -> Value:
    """Return a constant of any type.

    >>> constant(Const(3, "int64")).text, constant(Const(3, "uint8")).text, constant(Const(0.5, "float32")).text
    ('3', 'np.uint8(3)', 'np.float32(0.5)')
    """
    dtype = node.dtype
    if dtype == "bool":
        return Value(str(bool(node.value)), dtype)
    if not is_float(dtype):
        text = str(int(node.value))
        if dtype == "int64":
            return Value(text, dtype, Level.SIGN if text.startswith("-") else Level.ATOM)
        return Value(f"np.{dtype}({text})", dtype)
    with np.errstate(over="ignore"):
        number = float(np.asarray(node.value, np.float64).astype(dtype))
    special = "np.nan" if math.isnan(number) else "np.inf" if math.isinf(number) else ""
    text = f"{'-' if special and number < 0 else ''}{special}" if special else _shortest(number, dtype)
    if dtype == "float64":
        return Value(text, dtype, Level.SIGN if text.startswith("-") else Level.ATOM)
    return Value(f"np.float32({text})", dtype)


def _shortest(number: float, dtype: str) -> str:
    """Return the shortest decimal that is this number in its type."""
    if dtype == "float64":
        return repr(number)
    shorter = str(np.float32(number))
    return shorter if np.float32(float(shorter)) == np.float32(number) else repr(number)


def typed(dtype: str, text: str, depth: int) -> Value:
    """Return an expression brought to a type."""
    return Value(f"np.{register_type(dtype)}({text})", dtype, Level.ATOM, depth)


__all__ = ["Level", "Value", "as_stored", "constant", "memory_type", "register_type", "typed"]
