"""Symbols of this process for machine code: functions of the C library, of mathematics and of Python, and the
configuration of tile registers."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from autotune.hardware import tiles_permitted

_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""Looked into where the process itself does not show a name: mathematics, and conversions of half precision."""

LOCAL_HARM: Final = "autotune_local_harm"
"""The name of the word below in code that was built to be checked."""
local_harm = ctypes.c_int64()
"""Not 0 where such code wrote beside its local memory: see :mod:`autotune.codegen.llvm.local_fences`."""

TILE_CONFIGURATION: Final = "autotune_tile_configuration"
"""The name of the bytes below in code that uses tile registers. Only a process that may use them has this symbol, so
that no such code is ever mapped, in a worker or elsewhere, before the system was asked."""
_tile_configuration = (ctypes.c_uint8 * 64)(1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8)
"""Palette 1: of each of eight tiles the bytes of a row, 64, in two bytes, and the rows, 16 (Intel SDM, LDTILECFG)."""


@cache
def process_address(name: str) -> int:
    """Return the address of a function of the process; 0 where it has none of this name."""
    if name == LOCAL_HARM:
        return ctypes.addressof(local_harm)
    if name == TILE_CONFIGURATION:
        return ctypes.addressof(_tile_configuration) if tiles_permitted() else 0
    for library in (None, *_LIBRARIES):
        handle = _opened(library)
        try:
            function = getattr(handle, name)
        except (AttributeError, ValueError):  # no such name, or one with a zero inside
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@cache
def _opened(library: str | None) -> ctypes.CDLL | None:
    """Return a library, None where the system has none of this name."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


__all__ = ["LOCAL_HARM", "TILE_CONFIGURATION", "local_harm", "process_address"]
