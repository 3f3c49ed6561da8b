"""Calls in the background: as many at a time as there are streams, in the order of submission."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future
from queue import Empty, SimpleQueue
from time import monotonic_ns
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime import layout

LONGEST_S = 1e9
"""What a deadline or a timeout may be: longer ones do not fit into the clock's nanoseconds."""
_LINGER_S = 0.05
"""A thread without requests waits this long for the next: a burst takes one thread. So long may the process wait."""

_Result = TypeVar("_Result")


def check_timeout(seconds: float | None) -> None:
    """Raise UsageError for a time to wait that is none; None is without end."""
    if seconds is not None and not 0 <= seconds <= LONGEST_S:
        raise UsageError(f"a timeout is 0 to {LONGEST_S:g} seconds, or None for no end, got {seconds:g}")


class Request(Future[_Result]):
    """A future that can be awaited too.

    Cancelled, it does not begin, or ends at the next command of its program; cancelling the task that awaits it cancels
    it. ``deadline`` is in seconds from now: a request that has not ended by then fails with DeviceTimeoutError when it
    would begin, or at its next command. Raises UsageError for a deadline that is not in the future.
    """

    def __init__(self, name: str = "", deadline: float | None = None) -> None:
        super().__init__()
        self.row: NDArray[np.int64] = np.zeros(layout.REQUEST_SLOTS, np.int64)
        """What the executor reads, in the layout of :mod:`autotune.runtime.layout`."""
        self._name = name
        self._deadline = deadline
        self._fate: dict[
            str, str
        ] = {}  # what comes first of an end and of being cancelled: setdefault is atomic
        if deadline is not None:
            if not 0 < deadline <= LONGEST_S:
                raise UsageError(
                    f"the deadline of a request is in more than 0 seconds, got {deadline:g}\n"
                    f"  at most {LONGEST_S:g}; leave it out for none"
                )
            self.row[layout.DEADLINE_NS] = monotonic_ns() + int(deadline * 1e9)
        self._interrupt: Callable[[], object] | None = None

    @property
    def deadline_ns(self) -> int:
        """By when it has to end, of ``time.monotonic_ns``; 0 where it may take as long as it does."""
        return int(self.row[layout.DEADLINE_NS])

    def __await__(self) -> Generator[Any, None, _Result]:
        import asyncio  # whoever awaits has it

        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """End it without a result; False where it has one already."""
        if super().cancel():
            return True
        if self._fate.setdefault("end", "cancelled") != "cancelled":
            return False
        self.row[layout.CANCELLED] = 1
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt()
        return True

    def when_cancelled(self, interrupt: Callable[[], object]) -> None:
        """Call a function when it is cancelled while it runs, at once where it was: for what reads no ``row``."""
        self._interrupt = interrupt
        if self.row[layout.CANCELLED]:
            interrupt()

    def cancelled(self) -> bool:
        """Whether it ended without a result because it was cancelled."""
        return super().cancelled() or (self._fate.get("end") == "cancelled" and self.done())

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What it failed with, once it has ended; raises CancelledError and TimeoutError as ``result`` does."""
        found = super().exception(timeout)
        if self.cancelled():
            raise CancelledError
        return found

    def check(self) -> None:
        """Raise DeviceTimeoutError behind the deadline, CancelledError where it was cancelled."""
        deadline = self._deadline
        if deadline is not None and monotonic_ns() > self.row[layout.DEADLINE_NS]:
            raise DeviceTimeoutError(
                f"a request of {self._name} did not end within {deadline:g} s, its deadline"
            )
        if self.row[layout.CANCELLED]:
            raise CancelledError

    def answer(self, call: Callable[[Request[_Result]], _Result]) -> None:
        """Run, and keep what comes of it."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            if self._deadline is not None:
                self.check()
            result = call(self)
        except BaseException as error:  # noqa: BLE001 - raised again by the future
            self.fail(error)
        else:
            self.succeed(result)

    def succeed(self, result: _Result) -> None:
        """It ran to its end: keep the result, unless it was cancelled meanwhile."""
        if self._over():
            self.set_result(result)
        else:
            self.set_exception(CancelledError())

    def fail(self, error: BaseException) -> None:
        """It ended with an error: keep that, unless it was cancelled meanwhile."""
        self.set_exception(error if self._over() else CancelledError())

    def _over(self) -> bool:
        """Whether it ends before anybody cancelled it: then nobody can any more."""
        return self._fate.setdefault("end", "over") != "cancelled"


class Requests:
    """Functions that run in threads which begin with a request and end without, at most ``streams`` at a time.

    They begin in the order of submission. The process ends when all are done. A submission that Ctrl-C interrupts
    leaves its request to the next; the executors of :mod:`concurrent.futures` would leave a thread that nobody ends,
    and the process hangs. ``enter`` is called first in every thread.
    """

    def __init__(self, enter: Callable[[], None] | None = None, streams: int = 1) -> None:
        self._enter = enter
        self._waiting: deque[tuple[Request[Any], Callable[[Request[Any]], Any]]] = deque()
        self._idle: list[None] = []  # its length counts threads that wait for a request
        self._wakes: SimpleQueue[None] = SimpleQueue()  # one for each of these that is to look
        # Taken by threads of ours only, where no signal is handled; one a stream.
        self._served = [threading.Lock() for _ in range(streams)]

    @property
    def waiting(self) -> int:
        """How many requests have not begun."""
        return len(self._waiting)

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Request[_Result]:
        """Run a function in the background; any thread may ask."""
        request: Request[_Result] = Request()
        self.submit_all([(request, lambda _: function(*arguments))])
        return request

    def submit_all(
        self,
        calls: Sequence[tuple[Request[_Result], Callable[[Request[_Result]], _Result]]],
    ) -> None:
        """Run several in the background, each a function of its request; threads are woken once for all."""
        self._waiting.extend(calls)
        # Whoever is neither idle nor to be started looks for itself, when it is done with what it does.
        lacking = len(calls)
        for _ in range(min(lacking, len(self._idle))):
            self._wakes.put(None)
            lacking -= 1
        for stream in self._served if lacking > 0 else ():
            if lacking > 0 and not stream.locked():
                threading.Thread(target=self._serve, args=(stream,), name="autotune-requests").start()
                lacking -= 1

    def _serve(self, stream: threading.Lock) -> None:
        if self._enter is not None:
            self._enter()
        # Whoever submits while the lock is taken relies on this: after giving it back, look once more.
        while self._waiting and stream.acquire(blocking=False):
            try:
                self._answer_all()
            finally:
                stream.release()

    def _answer_all(self) -> None:
        """Until none came for a while."""
        while True:
            try:
                request, call = self._waiting.popleft()
            except IndexError:
                if not self._awaited():
                    return
            else:
                request.answer(call)
                del request, call  # whoever waits for the next must not keep the arrays of this one

    def _awaited(self) -> bool:
        """Whether there may be another request, after a while at most."""
        self._idle.append(None)
        try:
            if not self._waiting:  # whoever came before saw nobody idle
                self._wakes.get(timeout=_LINGER_S)
        except Empty:
            return False
        finally:
            self._idle.pop()
        return True


__all__ = ["LONGEST_S", "Request", "Requests", "check_timeout"]
