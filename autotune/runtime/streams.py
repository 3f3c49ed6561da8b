"""Several requests of a module at once: how many run and wait, and which leave workers for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVar

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime import layout
from autotune.runtime.request import Request, check_timeout
from autotune.runtime.requests import Requests

_LOOK_S = 0.05
"""Whoever waits for room looks so often, as nothing tells of requests that were cancelled."""

_Result = TypeVar("_Result")
Call = Callable[[Request[_Result]], _Result]


class Streams:
    """At most ``count`` requests that run and ``room`` that have not ended.

    A request that is alone may have all workers; where there are more, each is told to leave some for others.
    """

    def __init__(self, name: str, count: int, room: int) -> None:
        if count < 1 or room < 1:
            raise UsageError(f"streams and room for requests are 1 or more, got {count} and {room}")
        self._name = name
        self._count = count
        self._limit = room
        self._running: list[None] = []  # its length counts
        self._waiters: list[SimpleQueue[None]] = []
        self.reset()

    def reset(self) -> None:
        """Forget the requests: in the child of a fork their threads do not exist."""
        self._requests = Requests(streams=self._count)
        self._running.clear()
        self._waiters.clear()

    def submit(
        self, calls: Sequence[Call[_Result]], timeout: float | None, deadline: float | None
    ) -> list[Request[_Result]]:
        """Run calls in the background, each with its request; they begin in order.

        As many as there is room for are handed over at a time. Raises DeviceTimeoutError without room in time: then
        those that were handed over are cancelled. Raises UsageError for a deadline that is not in the future.
        """
        check_timeout(timeout)
        requests = [Request[_Result](self._name, deadline) for _ in calls]
        given = 0
        try:
            while given < len(calls):
                if self._room() < 1:
                    self._await_room(timeout)
                taken = slice(given, given + max(1, self._room()))
                pairs = [(r, self._counted(c)) for r, c in zip(requests[taken], calls[taken], strict=True)]
                given += len(pairs)
                self._requests.submit_all(pairs)
        except DeviceTimeoutError:
            for request in requests[:given]:
                request.cancel()
            raise
        return requests

    def _room(self) -> int:
        return self._limit - self._requests.waiting - len(self._running)

    def _await_room(self, timeout: float | None) -> None:
        end = None if timeout is None else monotonic() + timeout
        box: SimpleQueue[None] = SimpleQueue()
        try:
            self._waiters.append(box)
            while self._room() < 1:
                left = _LOOK_S if end is None else min(_LOOK_S, end - monotonic())
                if left <= 0:
                    raise DeviceTimeoutError(
                        f"{self._name} had no room for a request within {timeout:g} s: "
                        f"{len(self._running)} run and {self._requests.waiting} wait, of {self._limit} at most"
                    )
                with suppress(Empty):
                    box.get(timeout=left)
        finally:
            with suppress(ValueError):
                self._waiters.remove(box)

    def _counted(self, call: Call[_Result]) -> Call[_Result]:
        """The call, counted as running while it does."""

        def run(request: Request[_Result]) -> _Result:
            self._running.append(None)
            try:
                if self._count > 1 and (len(self._running) > 1 or self._requests.waiting):
                    request.row[layout.NARROW] = 1
                return call(request)
            finally:
                self._running.pop()
                for box in list(self._waiters):
                    box.put(None)

        return run


__all__ = ["Streams"]
