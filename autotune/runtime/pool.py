"""Worker pools: persistent threads that run programs together with the calling thread.

There is one pool a process and worker count, shared by all modules; a run has the pool for itself. After
``fork`` the child's pools start threads of their own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from autotune.errors import UsageError
from autotune.hardware import usable_cores
from autotune.runtime import layout
from autotune.runtime.command_buffer import Program
from autotune.runtime.device import address_of
from autotune.runtime.native import executor

_BARRIER_SPINS = 200
_BARRIER_SPINS_CROWDED = 10
_IDLE_NS = 100_000
_STOP_SECONDS = 1.0
MAX_WORKERS = 1024

_Result = TypeVar("_Result")


class WorkerPool:
    """``workers - 1`` threads, started at the first run; the caller of :meth:`run` is worker 0."""

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise UsageError(f"threads must be from 1 to {MAX_WORKERS}, got {workers}")
        self.workers = workers
        slots = layout.state_slots(workers) + layout.LINE
        memory = np.zeros(slots, np.int64)
        self._state = memory[-address_of(memory) % (8 * layout.LINE) // 8 :]
        self.address = address_of(self._state)
        self._executor = executor()
        self._execute = self._executor.execute
        self.reset()

    def reset(self) -> None:
        """Forget the threads: in the child of a fork they do not exist."""
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._state.fill(0)
        crowded = self.workers > usable_cores()
        self._state[layout.SPIN] = _BARRIER_SPINS_CROWDED if crowded else _BARRIER_SPINS
        self._state[layout.IDLE_NS] = _IDLE_NS

    def run(self, program: Program) -> None:
        """Run a program recorded for this pool; blocks, with the GIL released."""
        self.shared(self._execute, program)(program.address)

    def shared(self, call: Callable[..., _Result], program: Program) -> Callable[..., _Result]:
        """``call``, which runs a program of this pool, such that it has the workers for itself.

        A program without parallel commands runs on the calling thread alone, and needs no turn.
        """
        if self.workers == 1 or not program.header[layout.PARALLEL]:
            return call

        def alone(*arguments: Any) -> _Result:
            lock = self._lock
            lock.acquire()  # at half the cost of a with statement
            try:
                if not self._threads:
                    self._start()
                return call(*arguments)
            finally:
                lock.release()

        return alone

    def _start(self) -> None:
        self._state[layout.STOP] = 0
        generation = int(self._state[layout.GENERATION])
        for worker in range(1, self.workers):
            thread = threading.Thread(
                target=self._executor.serve,
                args=(self.address, worker, self.workers, generation),
                name=f"autotune-worker-{worker}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:
                self._end_threads()
                raise UsageError(
                    f"cannot start thread {worker + 1} of {self.workers}: {error}; use fewer threads"
                ) from error
            self._threads.append(thread)

    def stop(self) -> None:
        """End the threads; the next run starts new ones."""
        if not self._lock.acquire(timeout=_STOP_SECONDS):
            return  # a daemon thread is inside a run while the process exits
        try:
            self._end_threads()
        finally:
            self._lock.release()

    def _end_threads(self) -> None:
        """Wake the idle threads to end; the lock is held."""
        if self._threads:
            self._executor.stop(self.address)
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        self._threads.clear()


_pools: dict[int, WorkerPool] = {}
_pools_lock = threading.Lock()


def pool_of(workers: int) -> WorkerPool:
    """The pool of this process with that many workers; raises UsageError for less than one."""
    with _pools_lock:
        if workers not in _pools:
            _pools[workers] = WorkerPool(workers)
        return _pools[workers]


def _stop_all() -> None:
    for pool in _pools.values():
        pool.stop()


def _reset_all() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()
    for pool in _pools.values():
        pool.reset()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)

__all__ = ["MAX_WORKERS", "WorkerPool", "pool_of"]
