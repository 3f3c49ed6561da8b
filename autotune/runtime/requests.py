"""Calls in the background: as many at a time as there are streams, in the order of submission."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_LINGER_S = 0.05
"""A thread without requests waits this long for the next: a burst takes one thread. So long may the process wait."""

_Result = TypeVar("_Result")


class Request(Future[_Result]):
    """A future that can be awaited too; cancelled, it does not begin, and one that has begun goes on."""

    def __await__(self) -> Generator[Any, None, _Result]:
        import asyncio  # whoever awaits has it

        return asyncio.wrap_future(self).__await__()


class Requests:
    """Functions that run in threads which begin with a request and end without, at most ``streams`` at a time.

    They begin in the order of submission. The process ends when all are done. A submission that Ctrl-C interrupts
    leaves its request to the next; the executors of :mod:`concurrent.futures` would leave a thread that nobody ends,
    and the process hangs. ``enter`` is called first in every thread.
    """

    def __init__(self, enter: Callable[[], None] | None = None, streams: int = 1) -> None:
        self._enter = enter
        self._waiting: SimpleQueue[tuple[Request[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle: list[None] = []  # its length counts threads that wait for a request
        # Taken by threads of ours only, where no signal is handled; one a stream.
        self._served = [threading.Lock() for _ in range(streams)]

    @property
    def waiting(self) -> int:
        """How many requests have not begun."""
        return self._waiting.qsize()

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Request[_Result]:
        """Run a function in the background; any thread may ask."""
        request: Request[_Result] = Request()
        self._waiting.put((request, partial(function, *arguments)))
        if self._waiting.qsize() > len(self._idle):
            stream = next((each for each in self._served if not each.locked()), None)
            if stream is not None:
                threading.Thread(target=self._serve, args=(stream,), name="autotune-requests").start()
        return request

    def _serve(self, stream: threading.Lock) -> None:
        if self._enter is not None:
            self._enter()
        # Whoever submits while the lock is taken relies on this: after giving it back, look once more.
        while not self._waiting.empty() and stream.acquire(blocking=False):
            try:
                while True:
                    _answer(*self._next())
            except Empty:
                pass
            finally:
                stream.release()

    def _next(self) -> tuple[Request[Any], Callable[[], Any]]:
        """The next request; raises Empty when none came for a while."""
        self._idle.append(None)
        try:
            return self._waiting.get(timeout=_LINGER_S)
        finally:
            self._idle.pop()


def _answer(request: Request[Any], call: Callable[[], Any]) -> None:
    if not request.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised again by the future
        request.set_exception(error)
    else:
        request.set_result(result)


__all__ = ["Request", "Requests"]
