"""The beliefs of a tuning job: what is known of options and schedules, and what each is worth in the models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autotune.database.pooled import NOTHING, Pooled
from autotune.database.posterior import (
    CERTAIN,
    ROUNDS,
    PooledHistory,
    Posterior,
    beliefs,
    variance_of,
    variance_of_row,
)
from autotune.database.records import SAME_CODE, Comparison
from autotune.passes.options import Option
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.jobs.worth import DRAWS, is_clear


@dataclass
class Beliefs:
    """The knowledge of a job of the options and schedules of its ``sites``.

    ``history`` has the comparisons of options by workload key, ``recent`` the rows of the last comparison, which say
    how well the next one will measure.
    """

    sites: Sites
    seed: int = 0
    history: dict[str, list[Comparison]] = field(default_factory=dict)
    recent: list[Comparison] = field(default_factory=list)
    _version: tuple[int, int] = (-1, -1)
    """The number of comparisons and of trials that the following is by."""
    _options: dict[str, dict[str, Posterior]] = field(default_factory=dict)
    """The posteriors of options by the keys of their sites."""
    _pooled: PooledHistory = field(default_factory=lambda: PooledHistory.of({}))
    """All measurements of options."""
    _measures: tuple[float, float] = (variance_of(ROUNDS * PROCESSES, PROCESSES), 0.0)
    """The variance of the next comparison, and the load beside it."""

    def renew(self) -> None:
        """Take into account what was measured since."""
        compared = sum(map(len, self.history.values()))
        version = compared, sum(len(task.curve) for task in self.sites.tasks)
        if self._version == version:
            return
        if self._version[0] != compared:
            self._pooled = PooledHistory.of(self.history)
        expected = {
            site.workload.key: {
                option.name: self.ns(site, option)
                for option in site.options
                if all(region.key in self.sites.task_of for region in option.regions)
            }
            for site in self.sites.several
        }
        defaults = {site.workload.key: site.default.name for site in self.sites.several}
        self._version = version
        self._options = beliefs(self.history, expected, defaults, self._pooled)

    def measure_as_the_last(self) -> None:
        """Expect the next comparison to measure as well as the last one."""
        load = max((row.load for row in self.recent), default=0.0)
        usual = variance_of(ROUNDS * PROCESSES, PROCESSES, load=load)
        found = [variance_of_row(row) for row in self.recent if row.ratio not in (None, SAME_CODE)]
        self._measures = max(usual, median(found) if found else 0.0), load

    @property
    def comparison_variance(self) -> float:
        """Return the variance of the log of a ratio in the next comparison."""
        return self._measures[0]

    def known(self, site: Site) -> dict[str, Posterior]:
        """Return what is known of the options of a site, over its default."""
        self.renew()
        return self.options(site)

    def options(self, site: Site) -> dict[str, Posterior]:
        """Return the same as of the last time that all of it was renewed."""
        return self._options[site.workload.key]

    def comparable(self, site: Site, used: Option) -> dict[str, Posterior]:
        """Return what is known of the options of a site that it may still be worth comparing with the one in use."""
        known = self.options(site)
        mine = known.get(used.name, CERTAIN)
        return {
            name: one
            for name, one in known.items()
            if name == used.name or not is_clear(one.mean - mine.mean, math.hypot(one.error, mine.error))
        }

    @staticmethod
    def schedules(task: Task) -> dict[str, Posterior]:
        """Return what is known of the default and of the schedules that were measured in the model."""
        works = {trace for trace, found in task.known.items() if found.latency}
        found = {trace: one.posterior for trace, one in task.inside.items() if trace in works}
        return {**found, task.default_trace: CERTAIN}

    def of_option(self, site: Site) -> Callable[[str, int], float]:
        """Return the variance of so many more comparisons of an option, as far as they tell something new; those of the
        default are of what is used."""
        key, default, used = site.workload.key, site.default.name, self.used(site).name

        def variance(name: str, many: int) -> float:
            pair = key, used if name == default else name, default
            return self._pooled.noise * self._added(self._pooled.pools.get(pair, NOTHING), many)

        return variance

    def of_schedule(self, task: Task, used: str) -> Callable[[str, int], float]:
        """Return the same of a schedule."""

        def variance(trace: str, many: int) -> float:
            found = task.inside.get(used if trace == task.default_trace else trace)
            return self._added(NOTHING if found is None else found.pool, many)

        return variance

    def _added(self, pool: Pooled, many: int) -> float:
        """Return the variance of so many more measurements beside those of a pool."""
        variance, load = self._measures
        return pool.added(variance / many, load)

    def used(self, site: Site) -> Option:
        """Return the option that a site uses now."""
        return self.sites.used.get(site.workload.key, site.default)

    @property
    def used_options(self) -> dict[str, Option]:
        """The options in use, by workload key."""
        return {site.workload.key: self.used(site) for site in self.sites.several}

    @property
    def in_use(self) -> dict[str, int]:
        """Return how often the models execute each workload with the options in use."""
        return self.sites.uses(self.used_options)

    def weights(self) -> dict[str, float]:
        """Return by which part of it the models' latency falls with each nanosecond that a workload takes less: as
        often as they execute it, and of options that may be the fastest, times that probability."""
        self.renew()
        worth, weights = self._worth, dict[str, float]()
        for site in self.sites.all:
            for name, chance in self._chances(site).items():
                for region in next(o for o in site.options if o.name == name).regions:
                    key = region.key
                    weights[key] = weights.get(key, 0.0) + chance * len(site.names) * worth[site.model]
        return weights

    @property
    def weights_in_use(self) -> dict[str, float]:
        """The same of the workloads that are in use."""
        worth, options, weights = self._worth, self.used_options, dict[str, float]()
        for model in self.sites.models:
            for key, count in self.sites.of(model).uses(options).items():
                weights[key] = weights.get(key, 0.0) + worth[model] * count
        return weights

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the workloads of sites in the models' latency, by their keys."""
        worth, shares = self._worth, dict[str, float]()
        for site in self.sites.all:
            share = worth[site.model] * len(site.names) * self.ns(site, self.used(site))
            shares[site.workload.key] = shares.get(site.workload.key, 0.0) + share
        return shares

    @property
    def _worth(self) -> dict[str, float]:
        return self.sites.worth(lambda site: self.ns(site, self.used(site)))

    def ns(self, site: Site, option: Option) -> float:
        """Return the latency of an option as far as it is known: timed, else estimated."""
        timed = self.sites.latency(option)
        if timed < math.inf:
            return timed
        base = self.sites.latency(site.default)
        estimate, other = (site.expected_ns.get(one.name) for one in (option, site.default))
        if estimate and other and base < math.inf:
            return base * estimate / other
        return estimate or sum(self.latency(self.sites.task_of[region.key]) for region in option.regions)

    @staticmethod
    def latency(task: Task) -> float:
        """Return the best latency of a workload, or what it takes at least, in ns."""
        return task.best_ns if math.isfinite(task.best_ns) else max(1.0, task.floor_ns)

    def _chances(self, site: Site) -> dict[str, float]:
        """Return the probabilities of the options of a site that each is the fastest."""
        if len(site.options) == 1:
            return {site.default.name: 1.0}
        known = self.options(site)
        names = [option.name for option in site.options if option.name in known]
        draws = _drawn(self.seed, len(names)) * [known[name].error for name in names]
        draws = draws + [known[name].mean for name in names]
        best = np.bincount(draws.argmin(axis=1), minlength=len(names)) / DRAWS
        return dict(zip(names, map(float, best), strict=True))


@cache
def _drawn(seed: int, count: int) -> NDArray[np.float64]:
    """Return the draws by which so many options are compared: the same each time."""
    return np.random.default_rng(seed).standard_normal((DRAWS, count))


__all__ = ["Beliefs"]
