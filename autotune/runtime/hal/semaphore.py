"""Timelines: 64-bit counters that only go up, on which queues and threads wait for each other.

A timeline semaphore is that of Vulkan and of IREE: work signals a value when it is done, whoever needs it waits for
that value, on any device or thread. A timeline may also fail: then every wait for a value that it has not reached ends
with that error, the first one that occurred, and so it travels along what depends on it, and no further.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import monotonic

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime.hal.errors import again

MAX_VALUE = (1 << 64) - 1
"""The last value of a timeline."""

Arrival = Callable[[BaseException | None], object]
"""Called once: with None when the value is reached, with the error when it never will be."""

_LOG = logging.getLogger("autotune.runtime.hal")


class Timeline:
    """A counter of 64 bits from ``value`` on; any thread may use it. ``name`` is for messages."""

    def __init__(self, name: str = "timeline", value: int = 0) -> None:
        self.name = name
        self._value = _checked(name, value)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, Arrival]] = {}
        self._numbers = itertools.count()

    def query(self) -> int:
        """Return the last value that was signalled."""
        return self._value

    @property
    def error(self) -> BaseException | None:
        """Return the error that it failed with; None while it has not."""
        return self._error

    def signal(self, value: int) -> None:
        """Go up to a value, and let those go on that wait for it or for less.

        A timeline that has failed stays as it is. Raises UsageError for a value that is not above the last one.
        """
        _checked(self.name, value)
        with self._lock:
            if self._error is not None:
                return
            if value <= self._value:
                raise UsageError(f"{self.name} stands at {self._value}: it only goes up, got {value}")
            self._value = value
            reached = [key for key, (wanted, _) in self._waiting.items() if wanted <= value]
            arrivals = [self._waiting.pop(key)[1] for key in reached]
        _tell(arrivals, None)

    def fail(self, error: BaseException) -> None:
        """Let all waits for values above the last one end with an error, those to come too; the first error stays."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            arrivals = [arrival for _, arrival in self._waiting.values()]
            self._waiting.clear()
        _tell(arrivals, error)

    def when(self, value: int, arrival: Arrival) -> int:
        """Call a function once the value is reached, or never will be: at once where that is known already.

        It is called in the thread that signals, so it must be quick. Returns what :meth:`forget` takes.
        """
        _checked(self.name, value)
        key = next(self._numbers)
        with self._lock:
            known = self._value >= value or self._error is not None
            if not known:
                self._waiting[key] = (value, arrival)
            error = None if self._value >= value else self._error
        if known:
            _tell([arrival], error)
        return key

    def forget(self, key: int) -> None:
        """Call that function no more."""
        with self._lock:
            self._waiting.pop(key, None)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until the value is reached, at most ``timeout`` seconds.

        Raises a copy of the error of a timeline that failed before it got there, and DeviceTimeoutError.
        """
        if self._value >= _checked(self.name, value):  # the usual case takes no lock
            return
        box: SimpleQueue[BaseException | None] = SimpleQueue()
        key = self.when(value, box.put)
        try:
            error = box.get(timeout=timeout)
        except Empty:
            raise DeviceTimeoutError(
                f"{self.name} did not reach {value} within {timeout:g} s: it stands at {self._value}"
            ) from None
        finally:
            self.forget(key)
        if error is not None:
            raise again(error)

    @property
    def waiting(self) -> int:
        """Return the number of waiters for a value that is still to come."""
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<Timeline {self.name!r} at {self._value}{', failed' if self._error else ''}>"


Point = tuple[Timeline, int]
"""A value on a timeline: what to wait for, or to signal."""


def wait_all(points: Sequence[Point], timeout: float | None = None) -> None:
    """Wait for several points, at most ``timeout`` seconds in all; raises as :meth:`Timeline.wait` does."""
    deadline = None if timeout is None else monotonic() + timeout
    for timeline, value in points:
        timeline.wait(value, None if deadline is None else max(0.0, deadline - monotonic()))


def _checked(name: str, value: int) -> int:
    if not 0 <= value <= MAX_VALUE:
        raise UsageError(f"values of {name} are from 0 to 2^64 - 1, got {value}")
    return value


def _tell(arrivals: Sequence[Arrival], error: BaseException | None) -> None:
    for arrival in arrivals:
        try:
            arrival(error)
        except Exception:  # noqa: BLE001 - a caller's function: the others must be called
            _LOG.exception("a function that waited on a timeline failed")


__all__ = ["MAX_VALUE", "Arrival", "Point", "Timeline", "wait_all"]
