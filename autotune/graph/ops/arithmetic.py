"""Arithmetic of coordinates, written once for arrays and for expressions, so that both round alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune import te


@dataclass(frozen=True)
class Arithmetic:
    """Operations in which NumPy's arrays and te's expressions differ; both have Python's operators."""

    low: Callable[[Any, Any], Any]
    high: Callable[[Any, Any], Any]
    floor: Callable[[Any], Any]
    ceil: Callable[[Any], Any]
    nearest: Callable[[Any], Any]
    """Halves to even."""
    where: Callable[[Any, Any, Any], Any]
    integer: Callable[[Any], Any]
    """Whole floating-point numbers as int64, NaN as 0."""
    real: Callable[[Any, str], Any]
    """Numbers in a floating-point type."""

    def within(self, k: Any, extent: int) -> Any:
        """Return an index as it is, or that of the end that it lies beyond."""
        return self.low(self.high(k, 0), extent - 1)


def _as_integer(x: Any) -> Any:
    return np.nan_to_num(x, nan=0.0, posinf=2.0**31, neginf=-(2.0**31)).astype(np.int64)


ARRAYS = Arithmetic(
    np.minimum,
    np.maximum,
    np.floor,
    np.ceil,
    np.round,
    np.where,
    _as_integer,
    lambda x, dtype: np.asarray(x).astype(dtype),
)
EXPRESSIONS = Arithmetic(
    te.minimum,
    te.maximum,
    te.floor,
    te.ceil,
    te.round,
    te.if_then_else,
    # Vector units convert 32 bits at once, 64 one by one.
    lambda x: te.cast(te.cast(x, "int32"), "int64"),
    te.cast,
)

__all__ = ["ARRAYS", "EXPRESSIONS", "Arithmetic"]
