"""Functions that this process has already, by name: those of the C library, of mathematics and of Python."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""Looked into where the process itself does not show a name: mathematics, and conversions of half precision."""

LOCAL_HARM: Final = "autotune_local_harm"
"""The name of the word below in code that was built to be checked."""
local_harm = ctypes.c_int64()
"""Not 0 where such code wrote beside its local memory: see :mod:`autotune.codegen.llvm.local_fences`."""


@cache
def process_address(name: str) -> int:
    """Return the address of a function of the process; 0 where it has none of this name."""
    if name == LOCAL_HARM:
        return ctypes.addressof(local_harm)
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


__all__ = ["LOCAL_HARM", "local_harm", "process_address"]
