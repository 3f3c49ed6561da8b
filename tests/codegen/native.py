"""Calls kernels of object code on NumPy arrays, without the runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def call_kernel(
    address: int, buffers: Sequence[Any], tiles: int, scratch_bytes: int = 0, *, begin: int = 0
) -> None:
    """Run the tiles from ``begin`` to ``tiles`` on the calling thread; ``buffers`` are those of its table."""
    table = np.array([buffer.ctypes.data for buffer in buffers] or [0], np.int64)
    scratch = np.empty(scratch_bytes + 64, np.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    _KERNEL(address)(table.ctypes.data, begin, tiles, aligned)
