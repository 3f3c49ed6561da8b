"""Lanes of a job: threads of which one runs at a time, and the next one while that waits for a seat or for builders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

_LOOK_S = 0.02
"""Seconds between two looks at what a lane waits for."""


class JobLanes:
    """The things that a job does concurrently. Who is in it has the turn, as in a program of one thread, and gives it
    away only in :meth:`aside` and :meth:`wait`: nothing else changes under its hands.

    Methods are for who has the turn; the thread that makes this has it first, and gets it before the lanes that wait
    for it: it begins others, without which seats are idle.
    """

    def __init__(self) -> None:
        self._turn, self._line = threading.Lock(), threading.Lock()
        self._maker = threading.get_ident()
        self._turn.acquire()
        self._errors: list[BaseException] = []
        self._closed = False
        self.running = 0
        """The number of lanes that have not ended."""

    def start(self, work: Callable[[], None]) -> None:
        """Have another lane do this; its error is raised by :meth:`until`."""
        self.running += 1
        threading.Thread(target=self._run, args=(work,), name="autotune-lane", daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        self._take()
        try:
            self._do(work)
        finally:
            self._turn.release()

    @property
    def _first(self) -> bool:
        """Return whether this is the thread that begins others."""
        return threading.get_ident() == self._maker

    def _take(self) -> None:
        """Wait for the turn: of all lanes one alone waits for it beside the thread that is first."""
        with nullcontext() if self._first else self._line:
            self._turn.acquire()

    def _do(self, work: Callable[[], None]) -> None:
        """Do what a lane is for, and end it."""
        try:
            if not self._closed:
                work()
        except BaseException as error:  # noqa: BLE001 - raised where the job waits
            self._errors.append(error)
        finally:
            self.running -= 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let other lanes go on meanwhile."""
        self._turn.release()
        try:
            yield
        finally:
            self._take()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let other lanes go on until something is so."""
        while not ready():
            with self.aside():
                time.sleep(_LOOK_S)

    def until(self, ready: Callable[[], bool]) -> None:
        """Let other lanes go on until something is so; raises what one of them has raised."""
        self.wait(lambda: bool(self._errors) or ready())
        if self._errors and not self._closed:
            raise self._errors.pop(0)

    def concurrently(self, works: Sequence[Callable[[], None]]) -> None:
        """Do several things, each in a lane of its own but for the first; return when all are done."""
        left = len(works) - 1

        def one(work: Callable[[], None]) -> None:
            nonlocal left
            work()
            left -= 1

        for work in works[1:]:
            self.start(partial(one, work))
        works[0]()
        self.until(lambda: not left)

    def close(self) -> None:
        """Wait until all have ended; those that have not begun do nothing."""
        self._closed = True
        self.wait(lambda: not self.running)


__all__ = ["JobLanes"]
