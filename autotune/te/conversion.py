"""Conversion of arrays as ``te.cast`` defines it, which NumPy leaves to the machine where values are out of range."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.te.dtypes import integer_limits, is_float
from autotune.te.narrow import NARROW, NARROW_FLOATS

Array = np.ndarray[Any, Any]


def converted(values: Array, dtype: str) -> Array:
    """Return ``values`` in another type.

    Floating point to an integer truncates toward zero, stays within the type's limits, and takes NaN to 0.

    >>> converted(np.array([300.7, -1.5, np.nan, np.inf], np.float32), "uint8").tolist()
    [255, 0, 0, 255]
    """
    old = values.dtype.name
    if old == dtype:
        return values
    if old in NARROW:
        return converted(values.astype(np.float32 if old in NARROW_FLOATS else np.int8), dtype)
    if dtype in NARROW_FLOATS:
        single = values.astype(np.float32, copy=False)
        if NARROW_FLOATS[dtype].beyond == "none":
            single = np.where(np.isnan(single), np.float32(0), single)
        return single.astype(dtype)
    if not is_float(old) and dtype in NARROW:
        return values.astype(np.int8).astype(dtype)
    if not is_float(values.dtype.name) or is_float(dtype) or dtype == "bool":
        return values.astype(dtype, copy=False)
    low, high = integer_limits(dtype)
    # Python compares its numbers exactly: NumPy would round the limit to the type of the values. False of NaN.
    if values.size and low <= float(values.min()) and float(values.max()) <= high:
        return values.astype(dtype)
    wide = np.where(np.isnan(values), 0, values).astype(np.float64)
    inside = (wide > low - 1) & (wide < high + 1)  # limits of 64 bits are rounded to a power of two, outwards
    whole = np.where(inside, wide, 0).astype(dtype)
    return np.where(inside, whole, np.where(wide > 0, high, low).astype(dtype))


__all__ = ["converted"]
