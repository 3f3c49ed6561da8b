"""This process and build workers beside it, which share the work on the workloads of one model.

LLVM holds a lock in each process, and Python another: only processes use more than one core. A build worker starts
while this process works already, and takes the next piece whenever it has none. What comes out depends on the pieces
alone, whoever works on them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from autotune import errors, library, settings
from autotune.errors import AutotuneError, BuildError, InternalError, UsageError
from autotune.graph import ops
from autotune.hardware import usable_cores
from autotune.workers.process import Died, WorkerProcess, python_module

COMMAND = python_module("autotune.compiler.build_worker")
WORTH = 16
"""Workloads that repay the start of a build worker, which is about as long as eight of them take."""
_LIMIT_S = 3600.0

Result = TypeVar("Result")
Output = TypeVar("Output", covariant=True)
Done = Callable[[int], None]


class Work(Protocol[Output]):
    """A piece of work. Nothing is shared with a build worker: text goes there, and comes back."""

    @property
    def what(self) -> str:
        """What is worked on, for messages."""

    def run(self) -> Output:
        """Do it here."""

    def request(self) -> dict[str, Any] | None:
        """What a build worker needs for it, as JSON; None where only this process can do it."""

    def result(self, answer: Mapping[str, Any]) -> Output:
        """Read what a build worker answered."""


class BuildWorkers:
    """``workers`` processes beside this one; without any, or outside of ``with``, this process works alone.

    Raises BuildError when a build worker cannot start, or ends while it works.
    """

    def __init__(self, workers: int = 0, command: Sequence[str] = COMMAND) -> None:
        # Modules are found where this process finds them, whatever was done to its path.
        path = os.pathsep.join(filter(None, sys.path))
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
        self._processes = [
            WorkerProcess(command, environment, name="build worker", error=BuildError) for _ in range(workers)
        ]
        self._threads: list[threading.Thread] = []
        self._turn = threading.Condition()
        self._round: Round[Any] | None = None
        self._closed = False
        self._broken: BuildError | None = None

    @classmethod
    def of(cls, workloads: int) -> BuildWorkers:
        """A process a usable core (``AUTOTUNE_BUILDERS`` says otherwise), as far as so many workloads repay them."""
        return cls(min(builders() - 1, workloads // WORTH))

    def __enter__(self) -> BuildWorkers:
        for worker in self._processes:
            thread = threading.Thread(target=self._serve, args=(worker,), name="autotune-build", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for worker in self._processes:
            worker.close()
        for thread in self._threads:
            thread.join()

    def run(self, tasks: Sequence[Work[Result]], done: Done = lambda _: None) -> list[Result]:
        """The results, in the order of the tasks; ``done`` hears of each that is finished, by its number.

        Raises what the first of the tasks raises that fail.
        """
        return self.finish(self.begin(tasks, done))

    def begin(self, tasks: Sequence[Work[Result]], done: Done = lambda _: None) -> Round[Result]:
        """Let the workers start; this process joins in by :meth:`finish`, which is due before other tasks begin."""
        work = Round(tasks, done)
        with self._turn:
            self._round = work
            self._turn.notify_all()
        return work

    def finish(self, work: Round[Result]) -> list[Result]:
        """What :meth:`run` returns, of tasks that were begun."""
        while (number := work.take()) is not None:
            work.attempt(number, work.tasks[number].run)
        with self._turn:
            self._round = None
        work.wait()
        if self._broken is not None:
            raise self._broken
        return work.results()

    def _serve(self, worker: WorkerProcess) -> None:
        """What the thread of a build worker does."""
        try:
            if not _is_equal(worker):
                return
        except (Died, BuildError) as error:
            if not self._closed:
                self._broken = BuildError(f"{error}\n  {_ALONE}")
            return
        while (taken := self._next()) is not None:
            work, number, request = taken
            task = work.tasks[number]
            work.attempt(number, lambda: task.result(_answer(worker, request, task.what)))  # noqa: B023 - done at once

    def _next(self) -> tuple[Round[Any], int, dict[str, Any]] | None:
        """The next piece that a build worker can do; waits for one, and ends with the workers."""
        with self._turn:
            while not self._closed:
                work = self._round
                if work is not None:
                    number = work.take(as_worker=True)
                    if number is not None:
                        request = work.tasks[number].request()
                        assert request is not None
                        return work, number, request
                self._turn.wait()
        return None


def builders() -> int:
    """Processes that compile together. Raises UsageError for a setting that is no positive number."""
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
    asked = {"do": "know", "ops": list(ops.names()), "kernels": library.registered()}
    return bool(worker.call(asked, _LIMIT_S, "starting")["all"])


def _answer(worker: WorkerProcess, request: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What a build worker answers; raises the error that it met."""
    try:
        answer = worker.call(request, _LIMIT_S, what)
    except Died as death:
        raise BuildError(f"a build worker did not finish {what}: {death}\n  {_ALONE}") from death
    if "error" in answer:
        kind = getattr(errors, answer["error"], InternalError)
        raise kind(answer["message"])
    return answer


def error_answer(error: Exception) -> dict[str, Any]:
    """An error on its way back to the process that asked."""
    import traceback

    if isinstance(error, AutotuneError):
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": InternalError.__name__, "message": "".join(traceback.format_exception(error))}


@dataclass
class Round(Generic[Result]):
    """Tasks that are handed out one by one; after a failure no more are."""

    tasks: Sequence[Work[Result]]
    done: Done
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _ends: dict[int, Callable[[], Result]] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)
    _failed: bool = False

    def take(self, *, as_worker: bool = False) -> int | None:
        """The number of the next task."""
        with self._lock:
            if self._failed:
                return None
            waiting = (n for n in range(len(self.tasks)) if n not in self._taken)
            number = next((n for n in waiting if not as_worker or self.tasks[n].request() is not None), None)
            if number is not None:
                self._taken.add(number)
            return number

    def attempt(self, number: int, work: Callable[[], Result]) -> None:
        """Do a task that was taken, and keep how it ends."""
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised again by results()
            caught = error
            self._end(number, lambda: _raise(caught), failed=True)
        else:
            self._end(number, lambda: result)

    def _end(self, number: int, end: Callable[[], Result], *, failed: bool = False) -> None:
        with self._lock:
            self._ends[number] = end
            self._failed |= failed
            self.done(number)
            self._lock.notify_all()

    def wait(self) -> None:
        """Until all that was taken has ended."""
        with self._lock:
            self._lock.wait_for(lambda: len(self._ends) == len(self._taken))

    def results(self) -> list[Result]:
        """All results; tasks are taken in order, so that the first failure is the same every time."""
        return [self._ends[number]() for number in sorted(self._ends)]


def _raise(error: Exception) -> Any:
    raise error


__all__ = ["COMMAND", "WORTH", "BuildWorkers", "Round", "Work", "builders", "error_answer"]
