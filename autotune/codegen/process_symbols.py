"""Functions that this process has already, by name: those of the C library, of mathematics and of Python."""

from __future__ import annotations

import ctypes
from functools import cache

_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""Looked into where the process itself does not show a name: mathematics, and conversions of half precision."""


@cache
def process_address(name: str) -> int:
    """Return the address of a function of the process; 0 where it has none of this name."""
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


__all__ = ["process_address"]
