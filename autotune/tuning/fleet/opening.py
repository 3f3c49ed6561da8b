"""A fleet as a job sees it: what measures on it, and what is known of its nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.target import Target
from autotune.tuning.fleet.cluster import Cluster
from autotune.tuning.fleet.fleet import PATIENCE_S, Fleet
from autotune.tuning.fleet.measurer import FleetMeasurer
from autotune.tuning.fleet.trust import Trust
from autotune.tuning.fleet.turns import turns_on
from autotune.tuning.jobs.worth import BATCH
from autotune.tuning.measure.turns import Turns

_ROOM = 80
"""Versions in a process times seats: up to four seats all that there is memory for, from twenty on four."""


@dataclass(frozen=True)
class OnFleet:
    """The parts of a job that measure on a fleet, and what is new of it."""

    trust: Trust
    builders: int
    lines: deque[str]

    @cached_property
    def measurer(self) -> FleetMeasurer:
        """The measurer, which builds candidates here and has seats measure them."""
        return FleetMeasurer(self.trust, self.builders)

    @property
    def turns_of(self) -> Callable[[int], Turns]:
        """Return what interleaves versions on the seats, by a seed."""
        return turns_on(self.trust)

    @property
    def of_loop(self) -> dict[str, Any]:
        """Return what is otherwise in the loop of a job: seats begin at once, builders go on meanwhile, and what is
        built together is stored together."""
        return {
            "expect": self.measurer.expect,
            "quiet": nullcontext,
            "fleet": self.trust.fleet,
            "together": BATCH,
        }

    @property
    def of_reader(self) -> dict[str, Any]:
        """Return what is otherwise in the measurement of candidates in a model: on many seats it is several small ones,
        which end sooner."""
        fleet = self.trust.fleet
        return {
            "concurrently": fleet.lanes.concurrently,
            "together": lambda: max(4, _ROOM // max(1, len(fleet.ready))),
        }

    def nodes(self) -> list[dict[str, Any]]:
        """Return its nodes as JSON values."""
        return [node.to_json() for node in [*self.trust.fleet.nodes.values()]]

    def distrusted(self) -> list[tuple[str, str]]:
        """Return the names of nodes whose measurements are not used, with the reasons."""
        nodes = [*self.trust.fleet.nodes.values()]
        return [(node.name, node.reason) for node in nodes if node.distrusted]

    def news(self) -> Iterator[str]:
        """Yield what has happened to nodes since this was asked last."""
        while self.lines:
            yield self.lines.popleft()


@contextmanager
def on_fleet(
    cluster: Cluster, target: Target, job: str, builders: int, patience_s: float = PATIENCE_S
) -> Iterator[OnFleet]:
    """Yield the fleet of a cluster for a job; raises MeasureError where it has no seat for the target."""
    lines = deque[str]()
    with Fleet(cluster, target, job, lines.append, patience_s) as fleet:
        yield OnFleet(Trust(fleet), builders, lines)


__all__ = ["OnFleet", "on_fleet"]
