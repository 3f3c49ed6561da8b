"""PoCL 3.0, the OpenCL driver of the package index: what it needs to be told.

It computes wrong numbers where a branch that differs from work item to work item stands in a loop with barriers, and
never comes to an end with some code that has such branches in a loop before a barrier, which all work items come by:
code with barriers it compiles without optimisations, with which all random programs agree. So is code with local memory
alone: where only constants are stored there, its LLVM crashes, which folds a load from memory without an initial value.

It does not run on processors newer than itself. Its LLVM of 2022 calls one that it does not know "generic", which its
own compiler then refuses ("unknown target CPU 'generic'", pocl issue 1049), and no option or variable of PoCL names
another. A Zen 4 it takes for a Zen 3 ("znver3") that has AVX-512: its vectors then hold wrong numbers, or its compiler
aborts. So the name is put right where the driver keeps it: the field behind the target triple in its description of
the device. Nothing is touched unless both fields hold exactly what is expected of this version. The name is that of the
processor that PoCL's own library of functions was compiled for: LLVM inlines functions only into code that has all of
their features, and "x86-64-v4" lacks some that "skylake-avx512" has. Each `vload16` would be a call, around which all
vectors go to memory and back: code took 2 to 4 times as long.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import Any

_TRIPLE = b"x86_64-unknown-linux-gnu"
_UNKNOWN = b"generic"
_TAKEN_FOR = {"x86-64-v4": b"znver3"}
"""The name of a lesser processor that those of a level are taken for."""
PROCESSORS = {"x86-64-v4": "skylake-avx512", "x86-64-v3": "haswell", "x86-64-v2": "nehalem"}
"""Names of clang's for instruction sets, the most capable first."""
_WORDS = 256
"""Of the description that are looked through; the field is word 80."""


def options(device: Any, source: str) -> list[str]:
    """Return options to build a program with on a device of any driver."""
    found = ["-cl-std=CL1.2", "-w"]
    if _is_pocl(device) and ("barrier(" in source or "__local" in source):
        found.append("-cl-opt-disable")
    return found


def _is_pocl(device: Any) -> bool:
    return "PoCL 3.0" in str(device.platform.version)


def name_processor(device: Any, level: str) -> bool:
    """Tell PoCL's compiler which instruction set a device has, where it does not know its processor.

    ``level`` is a level of x86-64, as "x86-64-v3". Returns whether that was necessary.
    """
    if not _is_pocl(device) or not os.path.exists("/proc/self/mem"):
        return False
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = struct.unpack(f"{_WORDS}Q", os.pread(memory, 8 * _WORDS, device.int_ptr))
        texts = [_text(memory, word) for word in words]
    except OSError:
        return False  # the description ends before
    finally:
        os.close(memory)
    wrong = (_UNKNOWN, _TAKEN_FOR.get(level, _UNKNOWN))
    found = [n for n in range(1, _WORDS) if texts[n] in wrong and texts[n - 1] == _TRIPLE]
    if len(found) != 1:
        return False
    ctypes.c_uint64.from_address(device.int_ptr + 8 * found[0]).value = ctypes.addressof(
        _kept(PROCESSORS.get(level, level))
    )
    return True


@cache
def _kept(level: str) -> ctypes.Array[ctypes.c_char]:
    """Return the name in memory that stays as long as the process."""
    return ctypes.create_string_buffer(level.encode())


def _text(memory: int, address: int) -> bytes:
    """Return the text at an address, empty where there is none to read."""
    try:
        return os.pread(memory, 64, address).split(b"\0", 1)[0]
    except (OSError, OverflowError):
        return b""


__all__ = ["PROCESSORS", "name_processor", "options"]
