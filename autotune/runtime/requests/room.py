"""Room for requests: how many of a module may be on their way, and how those wait that are too many."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from autotune.errors import DeviceTimeoutError

_LOOK_S = 0.05
"""Whoever waits for room looks so often, as nothing tells of requests that were cancelled."""


class Room:
    """At most ``limit`` requests of ``name`` that have not ended.

    There are no permits, which Ctrl-C could take with it: ``counts`` says how many run and how many wait. ``look`` is
    called by whoever waits: it begins requests that an interrupted submission left.
    """

    def __init__(
        self, name: str, limit: int, counts: Callable[[], tuple[int, int]], look: Callable[[], object]
    ) -> None:
        self._name = name
        self._limit = limit
        self._counts = counts
        self._look = look
        self._waiters: list[SimpleQueue[None]] = []

    @property
    def left(self) -> int:
        """Return how many more there may be."""
        return self._limit - sum(self._counts())

    def wait(self, timeout: float | None) -> None:
        """Return when there is room; raises DeviceTimeoutError after ``timeout`` seconds without."""
        if self.left > 0:
            return
        end = None if timeout is None else monotonic() + timeout
        box: SimpleQueue[None] = SimpleQueue()
        try:
            self._waiters.append(box)
            while self.left < 1:
                self._look()
                left = _LOOK_S if end is None else min(_LOOK_S, end - monotonic())
                if left <= 0:
                    running, waiting = self._counts()
                    raise DeviceTimeoutError(
                        f"{self._name} had no room for a request within {timeout:g} s: "
                        f"{running} run and {waiting} wait, of {self._limit} at most"
                    )
                with suppress(Empty):
                    box.get(timeout=left)
        finally:
            with suppress(ValueError):
                self._waiters.remove(box)

    def tell(self) -> None:
        """Let those look again who wait: a request has ended."""
        for box in list(self._waiters):
            box.put(None)

    def reset(self) -> None:
        """Forget who waits: in the child of a fork those threads do not exist."""
        self._waiters.clear()


__all__ = ["Room"]
