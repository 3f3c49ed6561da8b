"""The makespan of work on several devices: tasks put on lanes by list scheduling, as the queues of devices do.

A lane runs one task at a time, the one first that was ready first. The durations are given, so that the same answers
for estimates and for readings. After Graham, "Bounds on Multiprocessing Timing Anomalies" (1969): any such order is at
most twice as long as the best.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LaneTask:
    """Work of a lane, in any unit of time; ``waits`` are the numbers of earlier tasks.

    ``submission`` is how long the caller takes to submit it; nothing begins before it has submitted all, as it holds
    Python's lock until then. ``handover`` is from what it waits for to its beginning: a thread that sleeps is woken.
    It is not paid after a task of the same lane, whose thread is awake. A task without a lane is over when all it
    waits for is: nothing is done. Lanes that have ``cores`` in common use them one at a time.
    """

    lane: str
    duration: float = 0.0
    waits: tuple[int, ...] = ()
    submission: float = 0.0
    handover: float = 0.0
    cores: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ScheduledTask:
    """When a task is on its lane, from the beginning of a run on."""

    task: int
    lane: str
    begin: float
    end: float


@dataclass(frozen=True)
class Makespan:
    """A run of all tasks, in the order in which they begin."""

    tasks: tuple[ScheduledTask, ...]

    @property
    def total(self) -> float:
        """When the last one is over."""
        return max((task.end for task in self.tasks), default=0.0)

    @property
    def busy(self) -> dict[str, float]:
        """Return the seconds that each lane works."""
        found: dict[str, float] = {}
        for task in self.tasks:
            if task.lane:
                found[task.lane] = found.get(task.lane, 0.0) + task.end - task.begin
        return found


def makespan(tasks: Sequence[LaneTask]) -> Makespan:
    """Simulate tasks that one caller submits in their order. Raises ValueError for one that waits for a later one.

    >>> makespan([LaneTask("a", 2.0), LaneTask("b", 3.0, (0,), handover=0.5)]).total
    5.5
    """
    return _LaneRun(tasks).run()


class _LaneRun:
    def __init__(self, tasks: Sequence[LaneTask]) -> None:
        self.tasks = tasks
        self.readers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for source in task.waits:
                if not 0 <= source < number:
                    raise ValueError(f"task {number} waits for task {source}, which does not come before it")
                self.readers[source].append(number)
        self.missing = [len(task.waits) for task in tasks]
        submitted = sum(task.submission for task in tasks)
        self.ready_at = [submitted + task.handover for task in tasks]
        """The earliest beginning of each task, by what is known so far."""
        self.queued: dict[str, list[tuple[float, int]]] = {}
        self.free: dict[str | int, float] = {}
        """When each lane and each core is free."""
        self.events: list[tuple[float, int, str]] = []
        """When something may begin on a lane."""
        self.found: list[ScheduledTask] = []

    def run(self) -> Makespan:
        for number, missing in enumerate(self.missing):
            if not missing:
                self._queue(number)
        while self.events:
            now, _, lane = heapq.heappop(self.events)
            waiting = self.queued.get(lane)
            # What is queued but not ready yet has an event of its own.
            if not waiting or waiting[0][0] > now:
                continue
            free = self._free_at(waiting[0][1], now)
            if free > now:  # another lane has its cores
                heapq.heappush(self.events, (free, waiting[0][1], lane))
            else:
                self._begin(heapq.heappop(waiting)[1], now)
        return Makespan(tuple(self.found))

    def _queue(self, number: int) -> None:
        lane, ready = self.tasks[number].lane, self.ready_at[number]
        heapq.heappush(self.queued.setdefault(lane, []), (ready, number))
        heapq.heappush(self.events, (ready, number, lane))

    def _needed(self, number: int) -> list[str | int]:
        """Return the lane and the cores that a task needs."""
        task = self.tasks[number]
        return [task.lane, *task.cores] if task.lane else []

    def _free_at(self, number: int, now: float) -> float:
        """Return when all that a task needs is free, from now on."""
        return max([now, *(self.free.get(each, now) for each in self._needed(number))])

    def _begin(self, number: int, now: float) -> None:
        task = self.tasks[number]
        end = now + (task.duration if task.lane else 0.0)
        self.found.append(ScheduledTask(number, task.lane, now, end))
        self.free.update(dict.fromkeys(self._needed(number), end))
        for reader in self.readers[number]:
            following = self.tasks[reader]
            woken = following.handover if following.lane != task.lane else 0.0
            self.ready_at[reader] = max(self.ready_at[reader], end + woken)
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self._queue(reader)
        heapq.heappush(self.events, (end, number, task.lane))


__all__ = ["LaneTask", "Makespan", "ScheduledTask", "makespan"]
