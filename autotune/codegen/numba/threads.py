"""Threads of numba: how many there are, and calls one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CALL = threading.Lock()
"""numba's own thread pool, which it takes where neither OpenMP nor TBB is there, ends the process at a second call."""


def available() -> int:
    """Return the most threads that numba runs: ``NUMBA_NUM_THREADS``, by default the cores of the machine."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


@contextmanager
def at_a_time(threads: int) -> Iterator[None]:
    """Run what follows alone, on so many threads of numba."""
    import numba

    with _CALL:
        before = numba.get_num_threads()
        numba.set_num_threads(min(threads, available()))
        try:
            yield
        finally:
            numba.set_num_threads(before)


__all__ = ["at_a_time", "available"]
