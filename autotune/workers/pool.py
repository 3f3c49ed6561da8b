"""Worker processes that take jobs from queues: builds, measurements and the competitors of a benchmark."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from autotune.errors import AutotuneError
from autotune.workers.process import Died, WorkerProcess

Result = TypeVar("Result")
Job = Callable[[WorkerProcess], Result]
"""A job of a worker: its requests, and what is made of the results."""
_Waiting = queue.SimpleQueue[tuple[Job[Any], Future[Any]] | None]


class WorkerPool:
    """Workers by role; a job goes to the first worker of its role that is free.

    Each worker is served by a thread of its own. One that died is started again by its next job, which is the
    business of :class:`WorkerProcess`, as are time and memory limits.
    """

    def __init__(self) -> None:
        self.broken: Exception | None = None
        """Why a worker that should have got ready did not."""
        self._workers: dict[str, list[WorkerProcess]] = defaultdict(list)
        self._waiting: dict[str, _Waiting] = defaultdict(queue.SimpleQueue)
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(
        self, role: str, worker: WorkerProcess, ready: Callable[[WorkerProcess], bool] | None = None
    ) -> None:
        """Let a worker take the jobs of a role.

        With ``ready`` it takes none before that has returned, and none at all where it returns False or raises.
        """
        self._workers[role].append(worker)
        thread = threading.Thread(
            target=self._serve,
            args=(worker, self._waiting[role], ready),
            name=f"autotune-{role}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def has(self, role: str) -> bool:
        """Return whether a worker was added to take the jobs of a role."""
        return bool(self._workers.get(role))

    def submit(self, role: str, job: Job[Result]) -> Future[Result]:
        """Have a job done; it can be cancelled as long as no worker has taken it.

        Raises RuntimeError after :meth:`close`, where nobody would.
        """
        if self._closed:
            raise RuntimeError(f"the {role} workers were ended")
        future: Future[Result] = Future()
        self._waiting[role].put((job, future))
        return future

    def call(
        self,
        role: str,
        request: Mapping[str, Any],
        timeout_s: float,
        phase: str,
        may_take: int | None = None,
    ) -> dict[str, Any]:
        """Return the answer to one request; raises what :meth:`WorkerProcess.call` raises."""
        return self.submit(role, lambda worker: worker.call(request, timeout_s, phase, may_take)).result()

    def map(self, role: str, jobs: Sequence[Job[Result]]) -> list[Result]:
        """Return the results of jobs, in their order; raises what the first raises that fails, and drops
        those that wait."""
        futures = [self.submit(role, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def drop(self, role: str) -> None:
        """Cancel the jobs of a role that no worker has taken."""
        with suppress(queue.Empty):
            while (taken := self._waiting[role].get_nowait()) is not None:
                taken[1].cancel()

    def kill(self, role: str) -> None:
        """End the processes of a role at once, and their jobs in progress; its next job starts another."""
        for worker in self._workers.get(role, ()):
            worker.interrupt()

    def close(self) -> None:
        """End all processes; jobs that wait are cancelled, and those in progress end with their worker."""
        self._closed = True
        for role, workers in self._workers.items():
            for worker in workers:
                worker.close()
            for _ in workers:
                self._waiting[role].put(None)
        for thread in self._threads:
            thread.join()

    def _serve(
        self, worker: WorkerProcess, waiting: _Waiting, ready: Callable[[WorkerProcess], bool] | None
    ) -> None:
        """Run the thread of a worker."""
        try:
            if ready is not None and not ready(worker):
                return
        except (Died, AutotuneError) as error:
            self.broken = None if self._closed else error
            return
        while (taken := waiting.get()) is not None:
            job, future = taken
            if self._closed:
                future.cancel()
            fulfil(future, partial(job, worker))


def fulfil(future: Future[Result], work: Callable[[], Result]) -> None:
    """Do what a future promises, unless it is cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised again by the future
        future.set_exception(error)


__all__ = ["Job", "WorkerPool", "fulfil"]
