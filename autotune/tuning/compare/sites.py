"""The sites of the models of a job, and the tasks behind their options.

What a job makes smaller is the geometric mean of the latencies of its models, each of which is the sum over its sites:
a part of a model's latency counts the same in a small model and in a large one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.compiler.plan import key_of_regions
from autotune.graph.program import AnyWorkload
from autotune.passes.options import Option
from autotune.tuning.jobs.task import Task


@dataclass(frozen=True)
class Site:
    """A workload, the dispatches of a model that have it, and the options that are worth measuring.

    The first option is the default: it is used when nothing was tuned. A workload of several models is a site in each.
    """

    names: tuple[str, ...]
    workload: AnyWorkload
    options: tuple[Option, ...]
    expected_ns: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Estimates of the options by name, as far as there are any."""
    model: str = ""
    """The name of the model among those of a job."""

    @property
    def default(self) -> Option:
        """The option of an untuned model."""
        return self.options[0]


@dataclass(frozen=True)
class Sites:
    """All sites of some models; a dispatch counts by the option of its site that is used, or by the fastest."""

    tasks: Sequence[Task]
    all: Sequence[Site]
    used: dict[str, Option] = field(default_factory=dict)
    """By workload key the options that a compilation uses now, where it is known."""

    @cached_property
    def task_of(self) -> Mapping[str, Task]:
        """The tasks by workload key."""
        return {task.workload.key: task for task in self.tasks}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The names of the models."""
        return tuple(dict.fromkeys(site.model for site in self.all))

    @cached_property
    def several(self) -> list[Site]:
        """Those with more than one option."""
        return [site for site in self.all if len(site.options) > 1]

    @cached_property
    def _of(self) -> dict[str, Sites]:
        return {model: self._only(model) for model in self.models}

    def of(self, model: str) -> Sites:
        """Return the sites of one of the models."""
        return self._of[model]

    def _only(self, model: str) -> Sites:
        mine = [site for site in self.all if site.model == model]
        keys = {region.key for site in mine for option in site.options for region in option.regions}
        return Sites([task for task in self.tasks if task.workload.key in keys], mine, self.used)

    @property
    def dispatches(self) -> int:
        """Return the number of dispatches of the models with all computed directly."""
        return sum(len(site.names) for site in self.all)

    def total(self, latency: Callable[[Task], float]) -> float:
        """Return the geometric mean of the models' latencies in ns, if each task took ``latency``: by the options in
        use, else the fastest."""

        def least(site: Site) -> float:
            used = self.used.get(site.workload.key)
            return min(self._sum(option, latency) for option in (site.options if used is None else [used]))

        return self._mean(least)

    def default_total(self, latency: Callable[[Task], float]) -> float:
        """Return the same with the options of untuned models."""
        return self._mean(lambda site: self._sum(site.default, latency))

    def worth(self, ns: Callable[[Site], float]) -> dict[str, float]:
        """Return by which part of it the geometric mean of the models' latencies falls with each nanosecond that a
        dispatch takes less, by the names of the models: 1 ÷ (latency × models). ``ns`` is what a site takes now."""
        totals = self._totals(ns)
        return {model: 1.0 / (len(totals) * max(1e-9, total)) for model, total in totals.items()}

    def _mean(self, ns: Callable[[Site], float]) -> float:
        totals = self._totals(ns).values()
        return math.prod(math.pow(total, 1.0 / len(totals)) for total in totals)

    def _totals(self, ns: Callable[[Site], float]) -> dict[str, float]:
        """Return the latency of each model, by its name."""
        totals = dict.fromkeys(self.models, 0.0)
        for site in self.all:
            totals[site.model] += len(site.names) * ns(site)
        return totals

    def latency(self, option: Option) -> float:
        """Return the sum of the best latencies known of its regions, in ns; infinite while one is unknown."""
        return self._sum(option, lambda task: task.best_ns)

    def key_of(self, option: Option) -> str:
        """Return the key of an option: of the workloads of its dispatches and their search spaces."""
        tasks = [self.task_of[region.key] for region in option.regions]
        return key_of_regions((task.key.workload, task.key.space) for task in tasks)

    def uses(self, options: Mapping[str, Option]) -> dict[str, int]:
        """Return the number of executions of a workload, by key, with ``options`` (by workload key; else
        the default)."""
        found = Counter[str]()
        for site in self.all:
            for region in options.get(site.workload.key, site.default).regions:
                found[region.key] += len(site.names)
        return dict(found)

    def placed(self, options: Mapping[str, Option]) -> dict[str, tuple[str, ...]]:
        """Return the names of the dispatches that have a workload, by key, with ``options``: as of a compiled model."""
        found: dict[str, list[str]] = {}
        for site in self.all:
            for name, key in _dispatches(options.get(site.workload.key, site.default)):
                found.setdefault(key, []).extend(site_name + name for site_name in site.names)
        return {key: tuple(names) for key, names in found.items()}

    def _sum(self, option: Option, latency: Callable[[Task], float]) -> float:
        return sum(latency(self.task_of[region.key]) for region in option.regions)


def _dispatches(option: Option) -> list[tuple[str, str]]:
    """Return the end of the name and the workload's key of each dispatch of an option."""
    if option.steps is None:
        return [("", option.workload.key)]
    return [(f"/{step.name}", step.workload.key) for step in option.steps.dispatches]


__all__ = ["Site", "Sites"]
