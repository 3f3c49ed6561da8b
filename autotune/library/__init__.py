"""Library kernels: machine code of others that a schedule may call in place of loops of its own.

A kernel is registered for an operation and an element type. One of matrix products is a value of the knob ``kernel`` of
their spaces; one of an operator is an option of each workload that has the operator. Both are measured like any other
candidate. Code that calls one names it by a symbol, which is looked up
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
    operator_kernels,
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
    "operator_kernels",
    "register",
    "registered",
    "symbol",
    "unregister",
]
