"""Work and measuring exclude each other; what measures goes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from autotune.workers.cores import Cores
from tests.patience import PATIENCE_S, wait_until


class Someone:
    """A thread that has the cores from when it gets them until it is told to leave."""

    def __init__(self, enter: Callable[[], AbstractContextManager[None]]) -> None:
        self.there, self._leave = threading.Event(), threading.Event()
        self._enter = enter
        self._thread = threading.Thread(target=self._stay, daemon=True)
        self._thread.start()

    def _stay(self) -> None:
        with self._enter():
            self.there.set()
            self._leave.wait()

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def test_several_work_at_once() -> None:
    cores = Cores()
    with cores.work(), cores.work():
        pass


def test_measuring_waits_for_the_work_in_progress_and_holds_up_what_comes() -> None:
    cores = Cores()
    first = Someone(cores.work)
    assert first.there.wait(PATIENCE_S)
    measuring = Someone(cores.measure)
    wait_until(lambda: cores.wanted, "somebody wants to measure")
    second = Someone(cores.work)
    assert not measuring.there.is_set()
    first.leave()
    assert measuring.there.wait(PATIENCE_S)
    assert not second.there.is_set()
    measuring.leave()
    assert second.there.wait(PATIENCE_S)
    second.leave()


def test_the_cores_are_free_again_after_an_error() -> None:
    cores = Cores()
    for enter in (cores.work, cores.measure):
        try:
            with enter():
                raise RuntimeError
        except RuntimeError:
            pass
    with cores.measure():
        pass
    with cores.work():
        pass
