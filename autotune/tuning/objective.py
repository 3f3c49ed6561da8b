"""What a job makes smaller: the model's latency, where each dispatch counts by its fastest alternative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.graph.region import Workload
from autotune.passes.alternatives import Alternative
from autotune.tuning.task import Task

RULED_OUT = 1.5
"""An alternative that takes this much longer than the fastest gets no more turns: tuning rarely gains that."""


@dataclass(frozen=True)
class Fork:
    """A workload with several alternatives, and the dispatches of the model that have it.

    ``default`` is the alternative that is used when nothing was tuned.
    """

    names: tuple[str, ...]
    workload: Workload
    alternatives: tuple[Alternative, ...]
    default: Alternative


@dataclass(frozen=True)
class Objective:
    """The sum over the model's dispatches of latency.

    A task's ``weight`` counts it once for every dispatch and every alternative that needs it.
    """

    tasks: Sequence[Task]
    forks: Sequence[Fork] = ()

    @cached_property
    def _by_key(self) -> dict[str, Task]:
        return {task.workload.key: task for task in self.tasks}

    @cached_property
    def _plain(self) -> dict[str, int]:
        """How many dispatches have a workload and no other way to compute it, by key."""
        counts = Counter({task.workload.key: task.weight for task in self.tasks})
        for fork in self.forks:
            for alternative in fork.alternatives:
                counts.subtract({key: len(fork.names) * n for key, n in _regions(alternative).items()})
        return {key: count for key, count in counts.items() if count}

    @property
    def dispatches(self) -> int:
        """How many dispatches the model has with all computed directly."""
        return sum(self._plain.values()) + sum(len(fork.names) for fork in self.forks)

    def total(self, latency: Callable[[Task], float]) -> float:
        """The model's latency in ns if each task took ``latency`` of it."""
        forked = [
            len(fork.names) * min(self._sum(a, latency) for a in fork.alternatives) for fork in self.forks
        ]
        return self._plain_total(latency) + sum(forked)

    def default_total(self, latency: Callable[[Task], float]) -> float:
        """The same with the alternatives that are used when nothing was tuned."""
        forked = [len(fork.names) * self._sum(fork.default, latency) for fork in self.forks]
        return self._plain_total(latency) + sum(forked)

    def latency(self, alternative: Alternative) -> float:
        """The sum of the best latencies known of its regions, in ns; infinite while one is unknown."""
        return self._sum(alternative, lambda task: task.best_ns)

    def rivals(self, fork: Fork) -> list[Alternative]:
        """The alternatives that may yet turn out to be the fastest, fastest first."""
        ranked = sorted(fork.alternatives, key=self.latency)
        limit = RULED_OUT * self.latency(ranked[0])
        return [a for a in ranked if self.latency(a) <= limit]

    def weights(self) -> dict[str, float]:
        """How many ns the model gains for one that a task gains, now or if its alternative comes first.

        By workload key; what is not in it gains nothing. An alternative that is behind counts by how
        close it is.
        """
        weights: dict[str, float] = dict(self._plain)
        for fork in self.forks:
            ranked = self.rivals(fork)
            fastest = self.latency(ranked[0])
            for alternative in ranked:
                share = fastest / self.latency(alternative) if fastest < float("inf") else 1.0
                for key, count in _regions(alternative).items():
                    weights[key] = weights.get(key, 0.0) + share * len(fork.names) * count
        return weights

    def uses(self) -> dict[str, int]:
        """How often the model executes a workload, by key, with the alternatives that are fastest now."""
        found = Counter(self._plain)
        for fork in self.forks:
            for key, count in _regions(self.rivals(fork)[0]).items():
                found[key] += len(fork.names) * count
        return dict(found)

    def _plain_total(self, latency: Callable[[Task], float]) -> float:
        return sum(count * latency(self._by_key[key]) for key, count in self._plain.items())

    def _sum(self, alternative: Alternative, latency: Callable[[Task], float]) -> float:
        return sum(latency(self._by_key[region.key]) for region in alternative.regions)


def _regions(alternative: Alternative) -> Counter[str]:
    """How often an alternative executes each workload, by key."""
    return Counter(region.key for region in alternative.regions)


__all__ = ["RULED_OUT", "Fork", "Objective"]
