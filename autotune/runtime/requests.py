"""Calls in the background, one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_LINGER_S = 0.05
"""A thread without requests waits this long for the next: a burst takes one thread. So long may the process wait."""

_Result = TypeVar("_Result")


class Requests:
    """Functions that run in a thread that begins with a request and ends without: in the order of submission.

    The process ends when all are done. A submission that Ctrl-C interrupts leaves its request to the next;
    the executors of :mod:`concurrent.futures` would leave a thread that nobody ends, and the process hangs.
    ``enter`` is called first in every thread.
    """

    def __init__(self, enter: Callable[[], None] | None = None) -> None:
        self._enter = enter
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._served = threading.Lock()  # taken by threads of ours only, where no signal is handled

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Run a function in the background; any thread may ask."""
        future: Future[_Result] = Future()
        self._waiting.put((future, partial(function, *arguments)))
        if not self._served.locked():
            threading.Thread(target=self._serve, name="autotune-requests").start()
        return future

    def _serve(self) -> None:
        if self._enter is not None:
            self._enter()
        # Whoever submits while the lock is taken relies on this: after giving it back, look once more.
        while not self._waiting.empty() and self._served.acquire(blocking=False):
            try:
                while True:
                    _answer(*self._waiting.get(timeout=_LINGER_S))
            except Empty:
                pass
            finally:
                self._served.release()


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised again by the future
        future.set_exception(error)
    else:
        future.set_result(result)


__all__ = ["Requests"]
