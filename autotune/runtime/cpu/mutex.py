"""Mutual exclusion among native code: what no signal can interrupt between taking a lock and giving it back.

A lock of Python's that is taken in one bytecode and given back in another stays taken for ever when Ctrl-C
comes in between. These are words of memory, taken and given back inside of one native call: the futex lock
of three states of Drepper's "Futexes Are Tricky". Whoever may wait must not hold the GIL.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.atomics import compare_exchange, exchange, park, unpark
from autotune.runtime.cpu.translate.functions import native

_FREE: Final = 0
_TAKEN: Final = 1
_AWAITED: Final = 2  # taken, and others sleep until it is free


@native
def try_lock(mutex: int) -> bool:
    """Take it if it is free; says whether it was."""
    return compare_exchange(mutex, _FREE, _TAKEN) == _FREE


@native
def lock(mutex: int) -> None:
    """Take it, after those who have it."""
    if not try_lock(mutex):
        while exchange(mutex, _AWAITED) != _FREE:
            park(mutex, _AWAITED)


@native
def unlock(mutex: int) -> None:
    """Give it back, and wake one of those who wait."""
    if exchange(mutex, _FREE) == _AWAITED:
        unpark(mutex, 1)


__all__ = ["lock", "try_lock", "unlock"]
