"""A measurement of the whole model as evidence: what it takes with all that is used, over untuned, is a sum over all of
that. Each part hears of the surprise as far as it may be the one that surprised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from autotune.compiler.plan import OPTION
from autotune.database import Miss
from autotune.database.answers import KeptAnswers
from autotune.database.posterior import TOGETHER, Posterior, variance_of_whole
from autotune.database.records import SAME_CODE, Comparison, PartOfWhole, Run
from autotune.passes.options import Option
from autotune.tuning.compare.questions import SCHEDULE
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.gain import Gain

Parts: TypeAlias = "dict[tuple[str, str, str], Comparison]"
"""Rows by the keys of their workloads and targets and the kinds of their sites."""


@dataclass(frozen=True)
class InUse:
    """All that a compilation uses: options by the keys of their sites, and runs by workload keys."""

    options: Mapping[str, Option]
    runs: Mapping[str, Run]

    @staticmethod
    def of(sites: Sites, answers: KeptAnswers) -> InUse:
        """Return what a compilation uses now."""
        keys = [sites.task_of[key].key for key in sites.uses(sites.used) if key in sites.task_of]
        found = {key.workload: run for key, run in answers.best(keys).items()}
        here = {site.workload.key for site in sites.all}
        options = {key: option for key, option in sites.used.items() if key in here}
        return InUse(options, {key: run for key, run in found.items() if not isinstance(run, Miss)})

    @property
    def names(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return all of it by names and trace keys."""
        options = {key: option.name for key, option in self.options.items()}
        return options, {key: run.trace_key for key, run in self.runs.items()}


@dataclass(frozen=True)
class _Choice:
    """One thing that is not as in the untuned model, whose part of that takes ``ns``."""

    place: tuple[str, str, str]
    row: Comparison
    known: Posterior
    ns: float
    beside: str = ""

    @property
    def tuned_ns(self) -> float:
        """Return what its part is expected to take."""
        return self.ns * math.exp(self.known.mean)

    def told(self, gain: Gain, share: float, expected: float, whole: float, error: float) -> Comparison:
        """Return the row that says what the whole model tells of it (:class:`PartOfWhole`)."""
        return Comparison(
            self.row.name,
            self.row.key,
            gain.after,
            ratio=gain.ratio,
            run=self.row.run,
            load=gain.load,
            part=PartOfWhole(share, expected, whole, error, self.beside),
        )


def parts_of(
    gain: Gain, used: InUse, sites: Sites, known: Callable[[Site], Mapping[str, Posterior]]
) -> Parts:
    """Return the part of each choice in a measurement of the model with all that was ``used``; ``known`` are the
    posteriors of the options of a site, over its default.

    The log of the model's ratio is linearised at what was expected of its parts, and all choices may have something in
    common. What the linear model makes of each is stored as a measurement that makes the same of it alone.
    """
    choices = [choice for choice in _choices(used, sites, known) if choice.known.error > 0.0]
    total = sum(len(site.names) * _untuned_ns(site, sites) for site in sites.all)
    tuned = total + sum(choice.tuned_ns - choice.ns for choice in choices)
    if gain.ratio == SAME_CODE or not choices or not 0 < tuned < math.inf:
        return {}
    share = sum(choice.tuned_ns for choice in choices) / tuned
    spread = sum((choice.tuned_ns / tuned * choice.known.error) ** 2 for choice in choices)
    spread += (TOGETHER * share) ** 2 + variance_of_whole(gain.ratio, gain.load)
    return {
        choice.place: choice.told(
            gain,
            share,
            choice.known.mean,
            math.log(tuned / total),
            _error_for(choice, choice.tuned_ns / tuned, share, spread),
        )
        for choice in choices
    }


def refusals_of(
    gain: Gain, used: InUse, sites: Sites, known: Callable[[Site], Mapping[str, Posterior]]
) -> Parts:
    """Return rows by which nothing that was ``used`` is used any more, of a model that is slower with all of it.

    Each says that its choice takes as much more as the whole does, as surely as it takes to be believed. Parts of a sum
    do not: of one that is expected to take next to nothing, a linear model learns nothing.
    """
    surplus = math.log(gain.ratio.median)
    return {
        choice.place: choice.told(gain, 1.0, 0.0, 0.0, _error_against(choice.known, surplus))
        for choice in _choices(used, sites, known)
        if choice.known.error > 0.0
    }


def _error_against(known: Posterior, surplus: float) -> float:
    """Return the error of ``surplus`` by which it outweighs what is known: half of what makes the mean half of it."""
    return known.error * math.sqrt(surplus / (surplus - 2 * min(0.0, known.mean))) / 2


def _error_for(choice: _Choice, own: float, share: float, spread: float) -> float:
    """Return the error with which the mean surprise of all choices moves one as the linear model does."""
    variance = choice.known.error**2
    moved = min(0.999, share * (own * variance + TOGETHER**2 * share) / spread)
    return math.sqrt(variance * (1 - moved) / moved)


def _choices(
    used: InUse, sites: Sites, known: Callable[[Site], Mapping[str, Posterior]]
) -> Iterator[_Choice]:
    """Yield the options that are not the default, and the schedules that are not of what is computed as by default: the
    ratio of an option holds its schedules."""
    plain = dict[str, float]()
    for site in sites.all:
        option = used.options.get(site.workload.key, site.default)
        if option.name == site.default.name:
            for region in site.default.regions:
                plain[region.key] = plain.get(region.key, 0.0) + len(site.names)
        elif option.name in (believed := known(site)):
            target = sites.task_of[site.default.regions[0].key].space.target
            row = Comparison(option.name, sites.key_of(option))
            ns = len(site.names) * _untuned_ns(site, sites)
            place = site.workload.key, target.key, OPTION
            yield _Choice(place, row, believed[option.name], ns, site.default.name)
    for key, count in plain.items():
        task, run = sites.task_of.get(key), used.runs.get(key)
        if (
            task is not None
            and run is not None
            and run.trace_key in task.inside.keys() - {task.default_trace}
        ):
            row = Comparison(run.trace_key, task.key.space, run=run.id)
            place = task.key.workload, task.key.target, SCHEDULE
            yield _Choice(place, row, task.inside[run.trace_key].posterior, count * _default_ns(task))


def _untuned_ns(site: Site, sites: Sites) -> float:
    """Return what one of the dispatches of a site takes in the untuned model."""
    regions = [sites.task_of.get(region.key) for region in site.default.regions]
    return sum(_default_ns(task) for task in regions if task is not None)


def _default_ns(task: Task) -> float:
    return task.default_ns or task.floor_ns


__all__ = ["InUse", "Parts", "parts_of"]
