"""Several requests of a module at once: how many run and wait, and which leave workers for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime.cpu import layout
from autotune.runtime.requests.queue import Requests
from autotune.runtime.requests.request import Request, check_timeout
from autotune.runtime.requests.room import Room

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
        self._running: list[None] = []  # its length counts
        self._requests = Requests(streams=count)
        self._room = Room(name, room, self._counts, self._requests.look)

    def reset(self) -> None:
        """Forget the requests: in the child of a fork their threads do not exist."""
        self._running.clear()
        self._room.reset()

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
                self._room.wait(timeout)
                taken = slice(given, given + max(1, self._room.left))
                pairs = [(r, self._counted(c)) for r, c in zip(requests[taken], calls[taken], strict=True)]
                given += len(pairs)
                self._requests.submit_all(pairs)
        except DeviceTimeoutError:
            for request in requests[:given]:
                request.cancel()
            raise
        return requests

    def _counts(self) -> tuple[int, int]:
        return len(self._running), self._requests.waiting

    def _counted(self, call: Call[_Result]) -> Call[_Result]:
        """Return the call, counted as running while it does."""

        def run(request: Request[_Result]) -> _Result:
            self._running.append(None)
            try:
                if self._count > 1 and (len(self._running) > 1 or self._requests.waiting):
                    request.row[layout.NARROW] = 1
                return call(request)
            finally:
                self._running.pop()
                self._room.tell()

        return run


__all__ = ["Streams"]
