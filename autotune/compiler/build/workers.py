"""This process and build workers beside it, which share the work on the workloads of one model.

LLVM holds a lock in each process, and Python another: only processes use more than one core. A build worker starts
while this process works already, and takes the next piece whenever it has none. What comes out depends on the pieces
alone, whoever works on them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from autotune import errors, library, settings
from autotune.compiler.shared import SharedWork
from autotune.errors import AutotuneError, BuildError, InternalError, UsageError
from autotune.graph import ops
from autotune.hardware import usable_cores
from autotune.workers.pool import WorkerPool, fulfil
from autotune.workers.process import Died, WorkerProcess, python_module

COMMAND = python_module("autotune.compiler.build.worker")
WORTH = 16
"""Workloads that repay the start of a build worker, which is about as long as eight of them take."""
_LIMIT_S = 3600.0
_ROLE = "build"

Result = TypeVar("Result")
Output = TypeVar("Output", covariant=True)


class BuildJob(Protocol[Output]):
    """A piece of work. Nothing is shared with a build worker: text goes there, and comes back."""

    @property
    def what(self) -> str:
        """Return the subject of the work, for messages."""

    def run(self) -> Output:
        """Do it here."""

    def request(self) -> dict[str, Any] | None:
        """Return the request to a build worker, as JSON; None where only this process can do it."""

    def result(self, answer: Mapping[str, Any]) -> Output:
        """Read what a build worker answered."""


class BuildWorkers:
    """``workers`` processes beside this one; without any, or outside of ``with``, this process works alone.
    ``shared`` is what was done for other models, and what is done for this one.

    Raises BuildError when a build worker cannot start, or ends while it works.
    """

    def __init__(
        self, workers: int = 0, command: Sequence[str] = COMMAND, shared: SharedWork | None = None
    ) -> None:
        self.shared = shared or SharedWork()
        # Modules are found where this process finds them, whatever was done to its path.
        path = os.pathsep.join(filter(None, sys.path))
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
        self._processes = [
            WorkerProcess(command, environment, name="build worker", error=BuildError) for _ in range(workers)
        ]
        self._pool = WorkerPool()

    @classmethod
    def of(cls, workloads: int, shared: SharedWork | None = None) -> BuildWorkers:
        """Start a process a usable core (``AUTOTUNE_BUILDERS`` says otherwise), as far as so many
        workloads repay them, which are not in the ``shared`` work."""
        return cls(min(builders() - 1, workloads // WORTH), shared=shared)

    def __enter__(self) -> BuildWorkers:
        for worker in self._processes:
            self._pool.add(_ROLE, worker, ready=_is_equal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def run(self, tasks: Sequence[BuildJob[Result]]) -> list[Result]:
        """Return the results, in the order of the tasks. Raises what the first of the tasks raises that fail."""
        return self.finish(self.begin(tasks))

    def begin(self, tasks: Sequence[BuildJob[Result]]) -> Round[Result]:
        """Let the workers start; this process joins in by :meth:`finish`."""
        work = Round(tasks)
        for number, task in enumerate(tasks):
            request = task.request() if self._pool.has(_ROLE) else None
            if request is not None:
                work.futures[number] = self._pool.submit(_ROLE, partial(work.by_worker, number, request))
        return work

    def finish(self, work: Round[Result]) -> list[Result]:
        """Return the results of :meth:`run`, of tasks that were begun."""
        work.join()
        if self._pool.broken is not None:
            raise BuildError(f"{self._pool.broken}\n  {_ALONE}")
        return work.results()


def builders() -> int:
    """Return processes that compile together. Raises UsageError for a setting that is no positive number."""
    wanted = settings.current().builders
    if not wanted:
        return usable_cores()
    if not wanted.isdecimal() or int(wanted) < 1:
        name = settings.environment_name("builders")
        raise UsageError(f"{name} is {wanted!r}; allowed: a number of processes, from 1")
    return int(wanted)


_ALONE = f"{settings.environment_name('builders')}=1 compiles without build workers"


def _is_equal(worker: WorkerProcess) -> bool:
    """Start a build worker; whether it knows every operator and library kernel that was registered in this process."""
    asked = {"do": "know", "ops": ops.registered(), "kernels": library.registered()}
    return bool(worker.call(asked, _LIMIT_S, "starting")["all"])


def _answered(task: BuildJob[Result], request: Mapping[str, Any], worker: WorkerProcess) -> Result:
    """Return the result of a task by a build worker; raises the error that it met."""
    try:
        answer = worker.call(request, _LIMIT_S, task.what)
    except Died as death:
        raise BuildError(f"a build worker did not finish {task.what}: {death}\n  {_ALONE}") from death
    if "error" in answer:
        kind = getattr(errors, answer["error"], InternalError)
        raise kind(answer["message"])
    return task.result(answer)


def error_answer(error: Exception) -> dict[str, Any]:
    """Return an error on its way back to the process that asked."""
    import traceback

    if isinstance(error, AutotuneError):
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": InternalError.__name__, "message": "".join(traceback.format_exception(error))}


class Round(Generic[Result]):
    """Tasks that build workers and this process take one by one, in order; after a failure no more are taken."""

    def __init__(self, tasks: Sequence[BuildJob[Result]]) -> None:
        self.futures: list[Future[Result] | None] = [None] * len(tasks)
        """For each task that a build worker may take, or that was taken, its result."""
        self._tasks = tasks
        self._failed = False

    def join(self) -> None:
        """Take what no build worker has taken yet, and wait for what was."""
        for number, task in enumerate(self._tasks):
            waiting = self.futures[number]
            if (waiting is None or waiting.cancel()) and not self._failed:
                here: Future[Result] = Future()
                self.futures[number] = here
                fulfil(here, partial(self._attempt, task.run))
        for future in self._taken():
            future.exception()

    def results(self) -> list[Result]:
        """Return all results; tasks are taken in order, so that the first failure is the same every time."""
        return [future.result() for future in self._taken()]

    def by_worker(self, number: int, request: Mapping[str, Any], worker: WorkerProcess) -> Result:
        """Have a task done by a build worker."""
        return self._attempt(partial(_answered, self._tasks[number], request, worker))

    def _attempt(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except Exception:
            self._failed = True
            for future in self.futures:
                if future is not None:
                    future.cancel()
            raise

    def _taken(self) -> list[Future[Result]]:
        return [future for future in self.futures if future is not None and not future.cancelled()]


__all__ = ["COMMAND", "WORTH", "BuildJob", "BuildWorkers", "Round", "builders", "error_answer"]
