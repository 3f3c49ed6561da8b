"""Several requests of a module at once: each stream runs one, with memory of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVar

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime.instance import Instance
from autotune.runtime.requests import Request, Requests

_LOOK_S = 0.05
"""Whoever waits for room looks so often, as nothing tells of requests that were cancelled."""

_Result = TypeVar("_Result")


class Streams:
    """At most ``count`` requests that run and ``room`` that have not ended.

    A request that is alone runs on ``whole``, with all workers of the module; several at once run beside each other on
    narrow instances, which are made when all are in use.
    """

    def __init__(self, name: str, whole: Instance, count: int, room: int) -> None:
        if count < 1 or room < 1:
            raise UsageError(f"streams and room for requests are 1 or more, got {count} and {room}")
        self._name = name
        self._whole = whole
        self._count = count
        self._limit = room
        self._free: deque[Instance] = deque()
        self._running: list[None] = []  # its length counts
        self._waiters: list[SimpleQueue[None]] = []
        self.reset()

    def reset(self) -> None:
        """Forget the requests: in the child of a fork their threads do not exist."""
        self._requests = Requests(streams=self._count)
        self._running.clear()
        self._waiters.clear()

    def submit(
        self,
        run: Callable[[Instance], _Result],
        make: Callable[[], Instance],
        timeout: float | None,
    ) -> Request[_Result]:
        """Call ``run(instance)`` in the background, perhaps with a narrow instance that ``make`` makes.

        Raises DeviceTimeoutError without room in time.
        """
        if self._full():
            self._await_room(timeout)
        return self._requests.submit(self._run, run, make)

    def _full(self) -> bool:
        return self._requests.waiting + len(self._running) >= self._limit

    def _await_room(self, timeout: float | None) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        box: SimpleQueue[None] = SimpleQueue()
        self._waiters.append(box)
        try:
            while self._full():
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - monotonic())
                if left <= 0:
                    raise DeviceTimeoutError(
                        f"{self._name} had no room for a request within {timeout:g} s: "
                        f"{len(self._running)} run and {self._requests.waiting} wait, of {self._limit} at most"
                    )
                with suppress(Empty):
                    box.get(timeout=left)
        finally:
            self._waiters.remove(box)

    def _run(self, run: Callable[[Instance], _Result], make: Callable[[], Instance]) -> _Result:
        self._running.append(None)
        try:
            if self._count == 1 or (len(self._running) == 1 and not self._requests.waiting):
                return run(self._whole)
            try:
                instance = self._free.popleft()
            except IndexError:
                instance = make()
            try:
                return run(instance)
            finally:
                self._free.append(instance)
        finally:
            self._running.pop()
            for box in list(self._waiters):
                box.put(None)


__all__ = ["Streams"]
