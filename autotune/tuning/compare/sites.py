"""The sites of a model, and the tasks behind their options: what a job makes smaller is the sum over the sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.graph.program import AnyWorkload
from autotune.passes.options import Option
from autotune.tuning.jobs.task import Task

RULED_OUT = 1.5
"""An option that takes this much longer than the fastest, by readings alone, gets no more turns."""
LOSING, KEPT = 1.15, 2
"""The same by a comparison inside the model, and the most options of a site that get turns after one."""
UNUSED, BETTER = 0.25, 0.95
"""The weight of a gain in an option that is not used, until it seems to take less than this part of the one that is: it
changes the model only if the option wins, and options that are left are often twins of the one in use."""


@dataclass(frozen=True)
class Site:
    """A workload, the dispatches of the model that have it, and the options that are worth measuring.

    The first option is the default: it is used when nothing was tuned.
    """

    names: tuple[str, ...]
    workload: AnyWorkload
    options: tuple[Option, ...]

    @property
    def default(self) -> Option:
        """The option of an untuned model."""
        return self.options[0]


@dataclass(frozen=True)
class Sites:
    """All sites of a model; a dispatch counts by the option of its site that is used, or by the fastest."""

    tasks: Sequence[Task]
    all: Sequence[Site]
    kept: dict[str, frozenset[str]] = field(default_factory=dict)
    """By workload key the names of the options that are not far behind inside the model, where they were compared."""
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

    def open_options(self, site: Site) -> list[Option]:
        """Return the options that may yet turn out to be the fastest, fastest first."""
        ranked = sorted(self._kept(site), key=self.latency)
        if site.workload.key in self.kept:
            return ranked
        limit = RULED_OUT * self.latency(ranked[0])
        return [option for option in ranked if self.latency(option) <= limit]

    def _kept(self, site: Site) -> list[Option]:
        """Return the options that no comparison has ruled out."""
        kept = self.kept.get(site.workload.key)
        found = [option for option in site.options if kept is None or option.name in kept]
        return found or [site.default]

    @property
    def untried(self) -> list[Task]:
        """The tasks of options that no comparison has ruled out whose default is still to be measured."""
        wanted = {r.key for site in self.all for option in self._kept(site) for r in option.regions}
        return [task for task in self.tasks if task.untried and task.workload.key in wanted]

    def weights(self) -> dict[str, float]:
        """Return the weight of each task, by workload key: how many ns the model gains when the task gets 1 ns faster.

        Tasks of an option that is not the fastest count too, by how close it is, and less if it is not the one in use;
        tasks without a weight gain nothing.
        """
        weights = Counter[str]()
        for site in self.all:
            ranked = self.open_options(site)
            fastest = self.latency(ranked[0])
            for option in ranked:
                share = fastest / self.latency(option) if fastest < float("inf") else 1.0
                share *= UNUSED if self._is_unused(site, option) else 1.0
                for region in option.regions:
                    weights[region.key] += share * len(site.names)  # type: ignore[assignment]
        return dict(weights)

    def _is_unused(self, site: Site, option: Option) -> bool:
        """Return whether another option is used, and this one does not seem clearly faster."""
        used = self.used.get(site.workload.key, option)
        return used.name != option.name and self.latency(option) >= BETTER * self.latency(used)

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


__all__ = ["BETTER", "KEPT", "LOSING", "RULED_OUT", "UNUSED", "Site", "Sites"]
