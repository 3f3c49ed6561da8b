"""A request in the background: a future that no signal can leave locked.

A future of :mod:`concurrent.futures` waits in a condition, whose lock is Python's: Ctrl-C that comes when it has just
been taken leaves it taken, and the thread that has the result waits for it for ever. Here whoever waits does so in
a queue of its own, natively, and all that is shared changes in single operations that are atomic: it is claimed with
``setdefault``, and lists are appended to.

``wait`` and ``as_completed`` of :mod:`concurrent.futures` look at the future below, under its lock. It is told last,
and by a thread for that where telling it might wait.
"""

from __future__ import annotations

import _thread
import logging
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic_ns
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime.cpu import layout

LONGEST_S = 1e9
"""The limit of a deadline or a timeout: longer ones do not fit into the clock's nanoseconds."""
_Result = TypeVar("_Result")
_LOG = logging.getLogger("autotune.runtime")


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
        """The memory that the executor reads, in the layout of :mod:`autotune.runtime.cpu.layout`."""
        self._name = name
        self._deadline = deadline
        # What came first, with setdefault: "begin" is "run" or "cancelled", "end" is "over" or "cancelled".
        self._fate: dict[str, str] = {}
        self._outcome: dict[str, tuple[Any, BaseException | None]] = {}
        """Empty until the request is settled, with the first of its results and errors from then on."""
        self._boxes: list[SimpleQueue[None]] = []  # one for each who waits
        self._callbacks: deque[Callable[[Future[_Result]], object]] = deque()
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
        if self._fate.setdefault("begin", "cancelled") == "cancelled":
            self._settle(None, CancelledError())
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

    def done(self) -> bool:
        """Return whether it has ended."""
        return bool(self._outcome)

    def running(self) -> bool:
        """Return whether it has begun and not ended."""
        return self._fate.get("begin") == "run" and not self._outcome

    def cancelled(self) -> bool:
        """Return whether it ended without a result because it was cancelled."""
        return bool(self._outcome) and "cancelled" in self._fate.values()

    def result(self, timeout: float | None = None) -> _Result:
        """Return what the call does once it has ended; raises what it raised, CancelledError, and TimeoutError."""
        result, error = self._awaited(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # the frames of who catches it hold neither
        found: _Result = result
        return found

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error that it failed with, once it has ended; raises CancelledError and TimeoutError
        as ``result`` does."""
        error = self._awaited(timeout)[1]
        if self.cancelled():
            raise CancelledError
        return error

    def add_done_callback(self, fn: Callable[[Future[_Result]], object]) -> None:
        """Call a function with the request once it has ended, at once where it has."""
        self._callbacks.append(fn)
        if self._outcome:
            self._call_back()

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
        """Run, and store the result."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            if self._deadline is not None:
                self.check()
            result = call(self)
        except BaseException as error:  # noqa: BLE001 - raised again by the future
            self.set_exception(error)
        else:
            self.set_result(result)

    def set_running_or_notify_cancel(self) -> bool:
        """Let it begin; False where it was cancelled before."""
        if self._fate.setdefault("begin", "run") == "run":
            self._state = "RUNNING"
            return True
        self._settle(None, CancelledError())  # whoever cancelled it was interrupted, perhaps
        return False

    def set_result(self, result: _Result) -> None:
        """Store the result, unless it was cancelled meanwhile."""
        if self._over():
            self._settle(result, None)
        else:
            self._settle(None, CancelledError())

    def set_exception(self, exception: BaseException | None) -> None:
        """Store the error, unless it was cancelled meanwhile."""
        self._settle(None, exception if self._over() else CancelledError())

    def _over(self) -> bool:
        """Return whether it ends before anybody cancelled it: then nobody can any more."""
        return self._fate.setdefault("end", "over") != "cancelled"

    def _awaited(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        """Return the outcome; raises TimeoutError where there is none in time."""
        if not self._outcome:
            box: SimpleQueue[None] = SimpleQueue()
            self._boxes.append(box)
            try:
                if not self._outcome:  # whoever settles it now sees the box
                    box.get(timeout=None if timeout is None else max(0.0, timeout))
            except Empty:
                if not self._outcome:
                    raise TimeoutError from None
            finally:
                self._boxes.remove(box)
        return self._outcome["is"]

    def _settle(self, result: Any, error: BaseException | None) -> None:
        """Keep the first outcome, and tell everybody; done again, it tells those whom an interrupted one did not."""
        result, error = self._outcome.setdefault("is", (result, error))
        for box in list(self._boxes):
            box.put(None)
        self._call_back()
        held = self._condition.acquire(blocking=False)
        try:
            if held and not self._waiters:
                self._publish(result, error)
                return
        finally:
            if held:
                self._condition.release()
        _thread.start_new_thread(self._publish, (result, error))

    def _call_back(self) -> None:
        """Call each function that is to be called once it is done, by whoever takes it first."""
        while self._callbacks:
            with suppress(IndexError):
                callback = self._callbacks.popleft()
                self._call(callback)

    def _call(self, callback: Callable[[Future[_Result]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - a caller's function: the others must be called
            _LOG.exception("a function that waited for a request failed")

    def _publish(self, result: Any, error: BaseException | None) -> None:
        """Tell the future below, and with it ``wait`` and ``as_completed``."""
        with suppress(InvalidStateError):  # it was told before
            if error is None:
                Future.set_result(self, result)
            else:
                Future.set_exception(self, error)


__all__ = ["LONGEST_S", "Request", "check_timeout"]
