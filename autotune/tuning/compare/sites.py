"""The sites of a model, and the tasks behind their options: what a job makes smaller is the sum over the sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.graph.program import AnyWorkload
from autotune.passes.options import Option
from autotune.tuning.jobs.task import Task


@dataclass(frozen=True)
class Site:
    """A workload, the dispatches of the model that have it, and the options that are worth measuring.

    The first option is the default: it is used when nothing was tuned.
    """

    names: tuple[str, ...]
    workload: AnyWorkload
    options: tuple[Option, ...]
    expected_ns: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Estimates of the options by name, as far as there are any."""

    @property
    def default(self) -> Option:
        """The option of an untuned model."""
        return self.options[0]


@dataclass(frozen=True)
class Sites:
    """All sites of a model; a dispatch counts by the option of its site that is used, or by the fastest."""

    tasks: Sequence[Task]
    all: Sequence[Site]
    used: dict[str, Option] = field(default_factory=dict)
    """By workload key the options that a compilation uses now, where it is known."""

    @cached_property
    def task_of(self) -> Mapping[str, Task]:
        """The tasks by workload key."""
        return {task.workload.key: task for task in self.tasks}

    @property
    def several(self) -> list[Site]:
        """Those with more than one option."""
        return [site for site in self.all if len(site.options) > 1]

    @property
    def dispatches(self) -> int:
        """Return the number of dispatches of the model with all computed directly."""
        return sum(len(site.names) for site in self.all)

    def total(self, latency: Callable[[Task], float]) -> float:
        """Return the model's latency in ns if each task took ``latency`` of it: by the options in use,
        else the fastest."""
        used = ([self.used[s.workload.key]] if s.workload.key in self.used else s.options for s in self.all)
        least = (min(self._sum(option, latency) for option in options) for options in used)
        return sum(len(site.names) * ns for site, ns in zip(self.all, least, strict=True))

    def default_total(self, latency: Callable[[Task], float]) -> float:
        """Return the same with the options of an untuned model."""
        return sum(len(site.names) * self._sum(site.default, latency) for site in self.all)

    def latency(self, option: Option) -> float:
        """Return the sum of the best latencies known of its regions, in ns; infinite while one is unknown."""
        return self._sum(option, lambda task: task.best_ns)

    def uses(self, options: Mapping[str, Option]) -> dict[str, int]:
        """Return the number of executions of a workload, by key, with ``options`` (by workload key; else
        the default)."""
        found = Counter[str]()
        for site in self.all:
            for region in options.get(site.workload.key, site.default).regions:
                found[region.key] += len(site.names)
        return dict(found)

    def _sum(self, option: Option, latency: Callable[[Task], float]) -> float:
        return sum(latency(self.task_of[region.key]) for region in option.regions)


__all__ = ["Site", "Sites"]
