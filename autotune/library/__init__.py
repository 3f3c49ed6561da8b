"""Library kernels: machine code of others that a schedule may call in place of loops of its own.

A kernel is registered for an operation and an element type; from then on it is a value of the knob ``kernel`` of
that operation's space, and is measured like any other. Code that calls one names it by a symbol, which is looked up
when the code is loaded. See ``docs/library-kernels.md``.
"""

from __future__ import annotations

from autotune.library.call import NUMBERS, call
from autotune.library.registry import (
    EXTERN,
    OPERATIONS,
    LibraryKernel,
    address,
    extern_symbol,
    kernel,
    kernels,
    library_symbols,
    register,
    registered,
    symbol,
    unregister,
)

__all__ = [
    "EXTERN",
    "NUMBERS",
    "OPERATIONS",
    "LibraryKernel",
    "address",
    "call",
    "extern_symbol",
    "kernel",
    "kernels",
    "library_symbols",
    "register",
    "registered",
    "symbol",
    "unregister",
]
