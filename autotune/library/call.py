"""Calls of functions outside of the code, from Python: what the interpreter does where machine code has a call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.library.registry import address

Array = np.ndarray[Any, Any]
Given = Array | np.generic
"""An array, of which the function gets a pointer, or a number."""


def call(symbol: str, given: Sequence[Given]) -> None:
    """Call the function behind a symbol; what it writes to arrays is in them afterwards."""
    dense = [np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value for value in given]
    types = [_TYPES[v.dtype.name] if isinstance(v, np.generic) else ctypes.c_void_p for v in dense]
    function = ctypes.CFUNCTYPE(None, *types)(address(symbol))
    function(*(v.item() if isinstance(v, np.generic) else v.ctypes.data for v in dense))
    for array, copy in zip(given, dense, strict=True):
        if isinstance(array, np.ndarray) and array is not copy:
            array[...] = copy.reshape(array.shape)


_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
"""Numbers that are passed by value, as C has them."""

NUMBERS = tuple(_TYPES)

__all__ = ["NUMBERS", "call"]
