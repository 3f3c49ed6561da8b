"""Element sizes, and knobs as arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Columns
from autotune.target import ITEM_BYTES
from autotune.te.tensor import Tensor
from search_spaces.nest import Numbers
from search_spaces.tile.knobs import WHOLE


def item_bytes(tensor: Tensor) -> int:
    """Return bytes of one element."""
    return ITEM_BYTES[tensor.dtype]


def whole(block: Numbers, total: Numbers) -> Numbers:
    """Return block sizes [n] with ``WHOLE`` replaced by the total."""
    return np.where(block == WHOLE, total, block)


def flag(columns: Columns, name: str) -> NDArray[np.bool_]:
    """Return a bool knob [n]; False for a knob that this space does not have."""
    if name in columns:
        return columns[name].astype(np.bool_)
    return np.zeros(len(columns["parallel"]), dtype=np.bool_)


def equals(columns: Columns, name: str, value: str) -> NDArray[np.bool_]:
    """Return where a knob has a value [n]; False for a knob that this space does not have."""
    if name in columns:
        return np.asarray(columns[name] == value)
    return np.zeros(len(columns["parallel"]), dtype=np.bool_)


__all__ = ["equals", "flag", "item_bytes", "whole"]
