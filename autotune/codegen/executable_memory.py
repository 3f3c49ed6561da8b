"""Memory for machine code: written first, then made executable and no longer writable."""

from __future__ import annotations

import ctypes
import mmap
import os

from autotune.errors import BuildError

PAGE = mmap.PAGESIZE
"""Bytes that are protected alike."""


class ExecutableMemory:
    """``size`` bytes, zeros at first, at ``address``; unmapped with the object. Raises BuildError without memory."""

    def __init__(self, size: int) -> None:
        try:
            self._pages = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise BuildError(f"there is no memory for {size} bytes of machine code: {error}") from error
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes in, as long as they may be written to."""
        self._pages[offset : offset + len(data)] = data

    def protect(self, begin: int, end: int, *, execute: bool) -> None:
        """Let whole pages be read, and perhaps executed, and nothing else; raises BuildError."""
        if end == begin:
            return
        allowed = mmap.PROT_READ | (mmap.PROT_EXEC if execute else 0)
        library = ctypes.CDLL(None, use_errno=True)
        start, length = ctypes.c_void_p(self.address + begin), ctypes.c_size_t(end - begin)
        if library.mprotect(start, length, allowed):
            reason = os.strerror(ctypes.get_errno())
            raise BuildError(f"this system does not let machine code be mapped: {reason}")


__all__ = ["PAGE", "ExecutableMemory"]
