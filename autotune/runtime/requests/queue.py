"""Calls in the background: as many at a time as there are streams, in the order of submission."""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from autotune.runtime.requests.request import Request

_LINGER_S = 0.05
"""A thread without requests waits this long for the next: a burst takes one thread. So long may the process wait."""

_LOOK_S = 0.001

_Result = TypeVar("_Result")


class Requests:
    """Functions that run in threads which begin with a request and end without, at most ``streams`` at a time.

    They begin in the order of submission. The process ends when all are done. A submission that Ctrl-C interrupts
    leaves its request to the next; the executors of :mod:`concurrent.futures` would leave a thread that nobody ends,
    and the process hangs. So would threads of :mod:`threading`, which are started under locks of Python's. ``enter`` is
    called first in every thread.
    """

    def __init__(self, enter: Callable[[], None] | None = None, streams: int = 1) -> None:
        self._enter = enter
        self._waiting: deque[tuple[Request[Any], Callable[[Request[Any]], Any]]] = deque()
        self._idle: list[None] = []  # its length counts threads that wait for a request
        self._wakes: SimpleQueue[None] = SimpleQueue()  # one for each of these that is to look
        # Taken by threads of ours only, where no signal is handled; one a stream.
        self._served = [threading.Lock() for _ in range(streams)]
        _all.add(self)
        _finish_at_exit()

    @property
    def waiting(self) -> int:
        """Return the number of requests that have not begun."""
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
        self._serve_more(len(calls))

    def look(self) -> None:
        """Begin what an interrupted submission left."""
        self._serve_more(len(self._waiting))

    def _serve_more(self, lacking: int) -> None:
        """Let threads look for so many requests."""
        # Whoever is neither idle nor to be started looks for itself, when it is done with what it does.
        for _ in range(min(lacking, len(self._idle))):
            self._wakes.put(None)
            lacking -= 1
        free = sum(not stream.locked() for stream in self._served) if lacking > 0 else 0
        for _ in range(min(lacking, free)):
            _thread.start_new_thread(self._serve, ())

    def reset(self) -> None:
        """Forget the requests: in the child of a fork the threads do not exist, whatever they had taken."""
        self._waiting.clear()
        self._idle.clear()
        self._wakes = SimpleQueue()
        self._served = [threading.Lock() for _ in self._served]

    def finish(self) -> None:
        """Return when all are done, and those that an interrupted submission left: the process ends."""
        if self._waiting:
            self._serve()
        while any(stream.locked() for stream in self._served):
            time.sleep(_LOOK_S)

    def _serve(self) -> None:
        if self._enter is not None:
            self._enter()
        # Whoever submits while all streams are served relies on this: after giving one back, look once more.
        while self._waiting and (stream := self._free_stream()) is not None:
            try:
                self._answer_all()
            finally:
                stream.release()

    def _free_stream(self) -> threading.Lock | None:
        """Return one that nobody serves, taken."""
        return next((stream for stream in self._served if stream.acquire(blocking=False)), None)

    def _answer_all(self) -> None:
        """Run requests until none came for a while."""
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
        """Return whether there may be another request, after a while at most."""
        self._idle.append(None)
        try:
            if not self._waiting:  # whoever came before saw nobody idle
                self._wakes.get(timeout=_LINGER_S)
        except Empty:
            return False
        finally:
            self._idle.pop()
        return True


_all: weakref.WeakSet[Requests] = weakref.WeakSet()


def _finish_all() -> None:
    for requests in list(_all):
        requests.finish()


@cache
def _finish_at_exit() -> None:
    """Register at the first use: then pools, which requests run on, are stopped afterwards."""
    atexit.register(_finish_all)


def _reset_all() -> None:
    for requests in list(_all):
        requests.reset()


def apart(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a function in a thread of ours: Ctrl-C, which the main thread handles, leaves it nothing half done.

    Interrupted, the caller goes on, and the function comes to its end without.
    """
    return _apart().submit(function, *arguments).result()


@cache
def _apart() -> Requests:
    return Requests(streams=64)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)

__all__ = ["Requests", "apart"]
