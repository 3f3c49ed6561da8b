"""Throughput of several devices in requests a second: the work of each lane for one of them.

With enough requests in flight the busiest lane never waits, and all others wait for it: it is the bottleneck, and its
work for one request is the time from one answer to the next (the initiation interval of modulo scheduling; Rau,
"Iterative Modulo Scheduling", 1994, calls it the resource bound).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.compiler.devices.makespan import LaneTask, makespan

CALLER = "the caller"
"""The lane of submissions, which hold Python's lock."""


@dataclass(frozen=True)
class Throughput:
    """Seconds of each lane for one request, and those that a request takes ``alone``; at most ``depth`` are in flight.

    Lanes are devices, their copies, cores that several devices share, and the caller, who makes ``submissions``.
    """

    busy: Mapping[str, float]
    alone: float
    depth: int
    submissions: int

    @property
    def bottleneck(self) -> str:
        """The lane that has the most to do."""
        return max(self.busy, key=self.busy.__getitem__, default="")

    @property
    def period(self) -> float:
        """Seconds from one answer to the next."""
        return max(*self.busy.values(), self.alone / self.depth, 0.0)


def throughput(tasks: Sequence[LaneTask], depth: int) -> Throughput:
    """Return the throughput of requests of these tasks each.

    >>> found = throughput([LaneTask("a", 2.0), LaneTask("b", 3.0, (0,))], depth=3)
    >>> found.period, found.bottleneck, found.alone
    (3.0, 'b', 5.0)
    """
    busy: dict[str, float] = {}
    sharers: dict[int, set[str]] = {}
    for task in tasks:
        if task.lane:
            busy[task.lane] = busy.get(task.lane, 0.0) + task.duration
        for core in task.cores:
            sharers.setdefault(core, set()).add(task.lane)
    for lanes in {frozenset(each) for each in sharers.values() if len(each) > 1}:
        busy[f"cores of {' and '.join(sorted(lanes))}"] = sum(busy[lane] for lane in lanes)
    busy[CALLER] = sum(task.submission for task in tasks)
    return Throughput(busy, makespan(tasks).total, depth, sum(bool(task.lane) for task in tasks))


__all__ = ["CALLER", "Throughput", "throughput"]
