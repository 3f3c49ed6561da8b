"""Virtual time for threads of which one runs at a time: what the job itself computes takes the processor time that it
takes, and what is simulated takes the seconds that were recorded."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.tuning.fleet.lanes import JobLanes


@dataclass(eq=False)
class _Sleeper:
    """A thread that goes on when something is so."""

    ready: Callable[[], bool]
    turn: threading.Event = field(default_factory=threading.Event)


class VirtualTime(JobLanes):
    """The lanes of a job, and the events of what is simulated. When all lanes wait, the next event happens at its own
    moment, though a lane may have computed for longer."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        """Until the thread in turn got that."""
        self.computed_s = 0.0
        """Of these the processor time of lanes."""
        self._since = time.thread_time()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self._waiting: list[_Sleeper] = []

    def now(self) -> float:
        """Return the seconds of virtual time since this was made."""
        self._charge()
        return self.seconds

    def _charge(self) -> None:
        until = time.thread_time()
        self.seconds += until - self._since
        self.computed_s += until - self._since
        self._since = until

    def work(self, seconds: float) -> None:
        """Have the lane in turn compute what takes so many seconds, and is simulated."""
        self._charge()
        self.seconds += seconds
        self.computed_s += seconds

    @contextmanager
    def free(self) -> Iterator[None]:
        """Take no time for what is computed in this context: it is simulated."""
        self._charge()
        yield
        self._since = time.thread_time()

    def at(self, second: float, happens: Callable[[float], None]) -> None:
        """Have something happen at a moment, which it is told."""
        heapq.heappush(self._events, (second, next(self._numbers), happens))

    def happen(self) -> None:
        """Have everything happen that is due by now."""
        self._charge()
        while self._events and self._events[0][0] <= self.seconds:
            second, _, happens = heapq.heappop(self._events)
            happens(second)

    def start(self, work: Callable[[], None]) -> None:
        """Have another lane do this, when it gets the turn."""
        self.running += 1
        mine = _Sleeper(lambda: True)
        self._waiting.append(mine)

        def run() -> None:
            mine.turn.wait()
            self._since = time.thread_time()
            self._do(work)
            self._charge()
            self._hand_over()

        threading.Thread(target=run, daemon=True).start()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let others go on until something is so."""
        self._charge()
        mine = _Sleeper(ready)
        self._waiting.insert(0 if self._first else len(self._waiting), mine)
        self._hand_over()
        mine.turn.wait()
        self._since = time.thread_time()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep the turn: only what is simulated waits."""
        yield

    def _hand_over(self) -> None:
        """Give the turn to the first that can go on; while there is none, let events happen."""
        while True:
            for mine in self._waiting:
                if mine.ready():
                    self._waiting.remove(mine)
                    mine.turn.set()
                    return
            if not self._events:
                raise RuntimeError("all lanes wait, and nothing is going to happen")
            second, _, happens = heapq.heappop(self._events)
            self.seconds = max(self.seconds, second)
            happens(second)


__all__ = ["VirtualTime"]
