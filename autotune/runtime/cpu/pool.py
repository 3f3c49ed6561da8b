"""Worker pools: persistent threads that run programs together with the calling thread.

There is one pool a process, worker count and stream, shared by all modules, and one a CPU device that is a part of the
cores; a run has the pool for itself. After ``fork`` the child's pools start threads of their own.
"""

from __future__ import annotations

import _thread
import atexit
import os
import time
import weakref
from collections.abc import Collection
from contextlib import suppress

import numpy as np

from autotune.errors import UsageError
from autotune.hardware import usable_cores
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.balance import TILES_OF_A_WINDOW
from autotune.runtime.cpu.device import address_of
from autotune.runtime.cpu.native import executor

_SPIN_NS = 100_000
"""Several times what it takes to wake a thread."""
_STOP_NS = 1_000_000_000
_START_SECONDS = 0.1
"""A thread that does not serve by then is started again."""
MAX_WORKERS = 1024


class ThreadPool:
    """``workers - 1`` threads, started when a run finds some missing; the thread that runs is worker 0.

    Its threads stay on ``cores``, where some are given and the system can bind threads to cores. Nothing here is
    locked: a start that is interrupted, or made twice at once, is completed by the next.
    """

    def __init__(self, workers: int, cores: Collection[int] = ()) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise UsageError(f"threads must be from 1 to {MAX_WORKERS}, got {workers}")
        self.workers = workers
        self._cores = frozenset(cores)
        slots = layout.state_slots(workers) + layout.LINE
        memory = np.zeros(slots, np.int64)
        self._state = memory[-address_of(memory) % (8 * layout.LINE) // 8 :][: slots - layout.LINE]
        self._shares = self._state[layout.shares_at(workers) :]
        self._bounds = self._shares[layout.SHARES : layout.SHARES + workers + 1]
        self.address = address_of(self._state)
        self._executor = executor()
        self._ends = 0
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Forget the threads: in the child of a fork they do not exist."""
        self._state.fill(0)
        cores = min(usable_cores(), len(self._cores) or self.workers)
        spin_ns = 0 if self.workers > cores else _SPIN_NS
        self._state[layout.SPIN_NS] = spin_ns
        patience = self._state[layout.WORKERS + layout.PATIENCE_NS :: layout.WORKER_SLOTS]
        patience[: self.workers] = spin_ns
        self.balance()

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of a command's tiles that each worker begins with (:mod:`autotune.runtime.cpu.balance`)."""
        return tuple((np.diff(self._bounds) / layout.WHOLE).tolist())

    def balance(self, window: int = TILES_OF_A_WINDOW) -> None:
        """Begin with equal shares, which follow what the workers do, ``window`` tiles at a time; never where it is 0.

        No run may be in progress.
        """
        self._shares[layout.SEEN], self._shares[layout.WINDOW] = 0, window
        self._bounds[:] = [layout.WHOLE * worker // self.workers for worker in range(self.workers + 1)]
        estimates = layout.SHARES + self._bounds.size
        self._shares[estimates : estimates + self.workers] = np.diff(self._bounds)

    @property
    def serving(self) -> int:
        """Return the number of threads that wait for runs or take part in one."""
        return int(self._state[layout.SERVING])

    def start(self) -> None:
        """Start the threads that are missing, and wait until all serve; raises UsageError."""
        while self.serving < self.workers - 1:
            for worker in range(1, self.workers):
                if not self._state[layout.WORKERS + worker * layout.WORKER_SLOTS + layout.SERVED]:
                    self._start(worker)
            deadline = time.monotonic() + _START_SECONDS
            while self.serving < self.workers - 1 and time.monotonic() < deadline:
                time.sleep(0)

    def _start(self, worker: int) -> None:
        """Start one thread, which ends at once if another is this worker.

        Not one of :mod:`threading`: its locks are Python's, which Ctrl-C may leave taken.
        """
        try:
            _thread.start_new_thread(self._serve, (worker, self._ends))
        except RuntimeError as error:
            self.stop()
            raise UsageError(
                f"cannot start thread {worker + 1} of {self.workers}: {error}; use fewer threads"
            ) from error

    def _serve(self, worker: int, ends: int) -> None:
        """Serve as a worker, unless the pool was stopped since this thread was asked for.

        A loaded machine may let a thread begin long after: it keeps the pool, whose memory it would write to.
        """
        if ends == self._ends:
            stay_on(self._cores)
            self._executor.serve(self.address, worker, self.workers)

    def stop(self) -> None:
        """End the threads, unless one is inside a run while the process exits; the next run starts new ones."""
        self._ends += 1
        self._executor.stop(self.address, _STOP_NS)


_pools: dict[tuple[int, int], ThreadPool] = {}
_all: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def stay_on(cores: Collection[int]) -> None:
    """Keep the calling thread on some cores; where there are none of them, or no way to, it stays as it is."""
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # cores that were taken from this process meanwhile
            os.sched_setaffinity(0, cores)


def pool_of(workers: int, stream: int = 0) -> ThreadPool:
    """Return the pool of this process with that many workers for a stream; raises UsageError for less
    than one worker."""
    key = workers, stream
    return _pools.get(key) or _pools.setdefault(key, ThreadPool(workers))


def _stop_all() -> None:
    for pool in list(_all):
        pool.stop()


def _reset_all() -> None:
    for pool in list(_all):
        pool.reset()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)

__all__ = ["MAX_WORKERS", "ThreadPool", "pool_of", "stay_on"]
