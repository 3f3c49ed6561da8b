"""Worker pools: persistent threads that run programs together with the calling thread.

There is one pool a process and worker count, shared by all modules; a run has the pool for itself. After
``fork`` the child's pools start threads of their own.
"""

from __future__ import annotations

import _thread
import atexit
import os
import time

import numpy as np

from autotune.errors import UsageError
from autotune.hardware import usable_cores
from autotune.runtime import layout
from autotune.runtime.device import address_of
from autotune.runtime.native import executor

_SPIN_NS = 100_000
"""Several times what it takes to wake a thread."""
_STOP_NS = 1_000_000_000
_START_SECONDS = 0.1
"""A thread that does not serve by then is started again."""
MAX_WORKERS = 1024


class ThreadPool:
    """``workers - 1`` threads, started when a run finds some missing; the thread that runs is worker 0.

    Nothing here is locked: a start that is interrupted, or made twice at once, is completed by the next.
    """

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise UsageError(f"threads must be from 1 to {MAX_WORKERS}, got {workers}")
        self.workers = workers
        slots = layout.state_slots(workers) + layout.LINE
        memory = np.zeros(slots, np.int64)
        self._state = memory[-address_of(memory) % (8 * layout.LINE) // 8 :]
        self.address = address_of(self._state)
        self._executor = executor()
        self.reset()

    def reset(self) -> None:
        """Forget the threads: in the child of a fork they do not exist."""
        self._state.fill(0)
        spin_ns = 0 if self.workers > usable_cores() else _SPIN_NS
        self._state[layout.SPIN_NS] = spin_ns
        patience = self._state[layout.WORKERS + layout.PATIENCE_NS :: layout.WORKER_SLOTS]
        patience[: self.workers] = spin_ns

    @property
    def serving(self) -> int:
        """How many threads wait for runs or take part in one."""
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
        """One thread, which ends at once if another is this worker.

        Not one of :mod:`threading`: its locks are Python's, which Ctrl-C may leave taken.
        """
        try:
            _thread.start_new_thread(self._executor.serve, (self.address, worker, self.workers))
        except RuntimeError as error:
            self.stop()
            raise UsageError(
                f"cannot start thread {worker + 1} of {self.workers}: {error}; use fewer threads"
            ) from error

    def stop(self) -> None:
        """End the threads, unless one is inside a run while the process exits; the next run starts new ones."""
        self._executor.stop(self.address, _STOP_NS)


_pools: dict[int, ThreadPool] = {}


def pool_of(workers: int) -> ThreadPool:
    """The pool of this process with that many workers; raises UsageError for less than one."""
    return _pools.get(workers) or _pools.setdefault(workers, ThreadPool(workers))


def _stop_all() -> None:
    for pool in list(_pools.values()):
        pool.stop()


def _reset_all() -> None:
    for pool in list(_pools.values()):
        pool.reset()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)

__all__ = ["MAX_WORKERS", "ThreadPool", "pool_of"]
