"""The forecast of a job: what it is expected to gain in the time that is left, when most of that, and what is left to
gain at all.

What is in use at the end is worked out before it is known (preposterior analysis; Raiffa, Schlaifer, Applied
Statistical Decision Theory, 1961): what options and schedules really take is drawn from their posteriors, then what
the measurements will say for which there is time, and what is used by these. New candidates are drawn as the records
that the policy expects of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.database.posterior import (
    ALONE,
    CAUTION,
    CERTAIN,
    INERTIA,
    Posterior,
)
from autotune.passes.options import Option
from autotune.suggest import counted
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.actions import ActionKind
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.task import Task
from autotune.tuning.jobs.worth import BATCH, DEFAULT_AS, TOP
from autotune.tuning.report.units import duration

NEAR = 0.9
"""A dispatch that reaches this part of its roofline is near it."""
LEVEL = 0.9
"""The probability with which the interval is to hold the gain."""
MOST = 0.8
"""The part of the expected gain that is most of it."""
_DRAWS = 256
_ARMS = 8
"""Alternatives of a choice that are drawn: those with the smallest means."""
_PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""The parts of the time left at which the gain is worked out."""
_SEARCHES = 4
"""Searches of a workload between two measurements of what they have found."""
_RECORDS, _SIZE = 0.2, 0.3
"""Records among new candidates over those that the policy counts, and the mean log of one before anything was measured.
They are fewer and larger than the policy takes them to be: most jobs find nothing after a fifth of their time, and some
a schedule that makes a tenth of the model's latency go. The size is half of what simulated jobs find: real ones of ten
models gained 0 to 1 % after a fifth of their two minutes. (results/promises-zen3.md)"""
_OPTION, _OPTION_ERROR = 0.04, 0.05
"""The mean of the log ratios of options that nobody has compared, if nothing worse is expected of them, and the
standard deviation: of 350 options that 15 jobs compared half took more than 1.04 times as long as the default, one in
ten less than 0.95 and one in fifty less than 0.89 times, the noise of these comparisons included."""
_COMMON = 0.015
"""The standard deviation of what all choices have in common, such as the luck by which they were picked."""
_LITTLE = 0.0005
_NEVER = 9.0
"""The log of an alternative that there is not."""
Draws: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Outlook:
    """A site now: its option in use, latencies of a dispatch in ns untuned, and of the roofline of that option;
    ``posterior`` is of the log of what it takes as it is used over untuned."""

    site: Site
    used: Option
    untuned_ns: float
    floor_ns: float
    posterior: Posterior

    @property
    def ns(self) -> float:
        """Return what a dispatch takes as it is used."""
        return self.untuned_ns * math.exp(self.posterior.mean)

    @property
    def near(self) -> bool:
        """Return whether it is near its roofline."""
        return self.floor_ns >= NEAR * self.ns


@dataclass(frozen=True)
class Forecast:
    """The end of a job as it is expected.

    Of the ``dispatches`` so many are ``near`` their rooflines. Gains are speed-ups less one: ``so_far`` is expected of
    what is used now, ``expected`` at the end, with the ``interval`` that :data:`LEVEL` of all jobs end in.
    ``remaining`` is the part of the latency that is expected to go in the ``seconds`` left for the search, most of it
    in ``most_s``. Latencies untuned are ``measured``, or the cost model's.
    """

    dispatches: int
    near: int
    so_far: float
    expected: float
    interval: tuple[float, float]
    remaining: float
    seconds: float
    most_s: float
    measured: bool

    def __str__(self) -> str:
        return f"{self.roofline}; {self.gain}"

    @property
    def roofline(self) -> str:
        """Return how many dispatches have little to gain."""
        by = "" if self.measured else " by the cost model"
        verb, whose = ("is", "its") if self.near == 1 else ("are", "their")
        many = counted(self.dispatches, "dispatch")
        return f"{self.near} of {many} {verb} above {100 * NEAR:.0f} % of {whose} roofline{by}"

    @property
    def gain(self) -> str:
        """Return the expected gain in words."""
        low, high = self.interval
        so_far = f" ({_percent(self.so_far)} so far)" if self.measured else ""
        found = f"expect {_range(low, high)}{so_far} in {duration(self.seconds)}"
        if self.remaining < _LITTLE:
            return f"{found}, hardly any more"
        return f"{found}, most of the rest in {duration(self.most_s)}"

    def to_json(self) -> dict[str, Any]:
        """Return all of it, and how it reads."""
        return {**asdict(self), "text": str(self)}


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _range(low: float, high: float) -> str:
    digits = 1 if high < 0.1 else 0
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f} %"


def forecast(
    sites: Sites, policy: Policy, seconds_left: float, trials_left: float = math.inf
) -> Forecast | None:
    """Return the forecast of a job with so much time, or so many trials, left for its search; None where nothing is
    known of the latencies of its models."""
    outlooks = [*outlooks_of(sites, policy)]
    if not outlooks or any(each.untuned_ns <= 0 for each in outlooks):
        return None
    ahead = _Ahead(outlooks, sites, policy, trials_left)
    seconds_left = min(seconds_left, trials_left * ahead.candidate_s)
    ends = [ahead.after(part * seconds_left) for part in _PARTS]
    now, end = ahead.now * ahead.as_used, ahead.now * ends[-1]
    falls = [float(np.mean(ahead.as_used - ratios)) for ratios in ends]
    low, high = np.quantile(1 / end - 1, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Forecast(
        sum(len(each.site.names) for each in outlooks),
        sum(len(each.site.names) for each in outlooks if each.near),
        float(1 / np.mean(now) - 1),
        float(1 / np.mean(end) - 1),
        (float(low), float(high)),
        max(0.0, falls[-1]),
        seconds_left,
        seconds_left * _reached(falls),
        not any(task.untried for task in _in_use(outlooks, sites)),
    )


def _reached(falls: Sequence[float]) -> float:
    """Return the part of the time after which :data:`MOST` of the last of these gains is there."""
    return float(np.interp(MOST * falls[-1], [0.0, *np.maximum.accumulate(falls)], [0.0, *_PARTS]))


def outlooks_of(sites: Sites, policy: Policy) -> Iterator[Outlook]:
    """Yield what is known of each site.

    The log of an option over the default is that of its comparisons; what was found since for its schedules comes on
    top: in simulated jobs the sum is right within the posterior's error, either alone 3 to 5 % off.
    (results/replay/squeezenet.job.json, mobilenetv2.job.json)
    """
    policy.beliefs.renew()
    for site in sites.all:
        used = sites.used.get(site.workload.key, site.default)
        option = policy.beliefs.options(site).get(used.name, CERTAIN) if used != site.default else CERTAIN
        schedules = _schedules(used, sites, policy)
        mean, error = option.mean + schedules.mean, math.hypot(option.error, schedules.error)
        floor_ns = sum(sites.task_of[region.key].floor_ns for region in used.regions)
        yield Outlook(site, used, _untuned_ns(site, sites), floor_ns, Posterior(mean, error))


def _schedules(option: Option, sites: Sites, policy: Policy) -> Posterior:
    """Return the log of an option with the best schedules over the same with its defaults."""
    tasks = [sites.task_of[region.key] for region in option.regions]
    best = [best_schedule(task, policy) for task in tasks]
    ns = [task.default_ns or task.expected_ns or 1.0 for task in tasks]
    mean = sum(own * math.exp(known.mean) for own, known in zip(ns, best, strict=True)) / sum(ns)
    error = math.hypot(*(own * known.error for own, known in zip(ns, best, strict=True))) / sum(ns)
    return Posterior(math.log(mean), error)


def best_schedule(task: Task, policy: Policy) -> Posterior:
    """Return the log of the best schedule of a workload over its default, as far as that is known."""
    if policy.in_model:
        return min(policy.beliefs.schedules(task).values(), key=lambda known: known.cautious)
    if not task.default_ns or not math.isfinite(task.best_ns):
        return CERTAIN
    return Posterior(math.log(task.best_ns / task.default_ns), 0.0)


def _untuned_ns(site: Site, sites: Sites) -> float:
    """Return what a dispatch takes untuned: measured, else as the cost model expects it."""
    tasks = [sites.task_of[region.key] for region in site.default.regions]
    if all(task.default_ns for task in tasks):
        return sum(task.default_ns or 0.0 for task in tasks)
    expected = site.expected_ns.get(site.default.name)
    return expected or sum(task.default_ns or task.expected_ns or task.floor_ns for task in tasks)


def _in_use(outlooks: Sequence[Outlook], sites: Sites) -> list[Task]:
    tasks = [sites.task_of[region.key] for each in outlooks for region in each.used.regions]
    return list({task.workload.key: task for task in tasks}.values())


@dataclass(frozen=True)
class _Alternatives:
    """Alternatives at one place, what is used first: the logs of what each takes over that. ``share`` is its part of
    the models' latency now."""

    share: float
    known: Sequence[Posterior]


@dataclass(frozen=True)
class _Searched:
    """A workload that is searched: its share, how many candidates were measured, and the part that it may lose."""

    share: float
    known: int
    most: float


def _choices(
    outlooks: Sequence[Outlook], shares: Sequence[float], sites: Sites, policy: Policy
) -> Iterator[_Alternatives]:
    """Yield the choices between options, then those between schedules of what is used."""
    for each, share in zip(outlooks, shares, strict=True):
        arms = _options(each, sites, policy) if policy.in_model else {}
        if each.used.name in arms and len(arms) > 1:
            base = arms[each.used.name].mean
            names = sorted(arms, key=lambda name: (name != each.used.name, arms[name].cautious))[:_ARMS]
            yield _Alternatives(share, [replace(arms[name], mean=arms[name].mean - base) for name in names])
    for task, share in _workloads(outlooks, shares, sites):
        known = sorted(policy.beliefs.schedules(task).values(), key=lambda one: one.cautious)[:_ARMS]
        yield _Alternatives(share, [replace(one, mean=one.mean - known[0].mean) for one in known])


def _options(each: Outlook, sites: Sites, policy: Policy) -> dict[str, Posterior]:
    """Return what is known of options with their best schedules. What was never compared is about as likely faster as
    others were: what it takes alone only says that it is slower."""
    found = dict[str, Posterior]()
    known = policy.beliefs.comparable(each.site, each.used) if len(each.site.options) > 1 else {}
    compared = {each.site.default.name, each.used.name}
    compared |= {row.name for row in policy.beliefs.history.get(each.site.workload.key, ())}
    for option in each.site.options:
        if (one := known.get(option.name)) is None:
            continue
        if option.name in compared:
            found[option.name] = replace(one, mean=one.mean + _schedules(option, sites, policy).mean)
        else:
            found[option.name] = Posterior(max(_OPTION, ALONE * one.mean), _OPTION_ERROR)
    return found


def _workloads(
    outlooks: Sequence[Outlook], shares: Sequence[float], sites: Sites
) -> list[tuple[Task, float]]:
    """Return the workloads in use with their shares."""
    found = dict[str, float]()
    for each, share in zip(outlooks, shares, strict=True):
        tasks = [sites.task_of[region.key] for region in each.used.regions]
        ns = [task.default_ns or task.expected_ns or 1.0 for task in tasks]
        for task, own in zip(tasks, ns, strict=True):
            found[task.workload.key] = found.get(task.workload.key, 0.0) + share * own / sum(ns)
    return [(sites.task_of[key], share) for key, share in found.items()]


def _searches(
    outlooks: Sequence[Outlook], shares: Sequence[float], sites: Sites, policy: Policy
) -> Iterator[_Searched]:
    for task, share in _workloads(outlooks, shares, sites):
        if not (task.finished or task.at_floor):
            known = len(task.inside) if policy.in_model else max(0, len(task.curve) - 1)
            ns = task.best_ns if math.isfinite(task.best_ns) else task.expected_ns
            yield _Searched(share, known, max(0.0, 1.0 - task.floor_ns / ns) if ns else 1.0)


class _Ahead:
    """All that may change in the time left, drawn."""

    def __init__(self, outlooks: Sequence[Outlook], sites: Sites, policy: Policy, trials: float) -> None:
        models = sites.models
        ns = {each.site.model: 0.0 for each in outlooks}
        untuned = dict(ns)
        for each in outlooks:
            ns[each.site.model] += len(each.site.names) * each.ns
            untuned[each.site.model] += len(each.site.names) * each.untuned_ns
        self.now = math.prod((ns[model] / untuned[model]) ** (1 / len(models)) for model in models)
        shares = [len(e.site.names) * e.ns / ns[e.site.model] / len(models) for e in outlooks]
        self._draw([*_choices(outlooks, shares, sites, policy)])
        self._searched = [*_searches(outlooks, shares, sites, policy)]
        self._trials = trials
        self._variance = policy.beliefs.comparison_variance
        self.candidate_s, self._comparison_s = _pace(policy)
        untried = len(policy.untried)
        self._before_s = policy.pace.seconds(ActionKind.DEFAULTS, untried) if untried else 0.0

    def _draw(self, choices: Sequence[_Alternatives]) -> None:
        size = (len(choices), _ARMS)
        self._shares = np.array([choice.share for choice in choices])
        self._means, self._errors = np.full(size, _NEVER), np.zeros(size)
        self._truth, self._luck, self._turns, self._together = _drawn(size)
        for row, choice in enumerate(choices):
            for arm, one in enumerate(choice.known):
                self._means[row, arm], self._errors[row, arm] = one.mean, one.error

    @cached_property
    def as_used(self) -> Draws:
        """Return the latency of what is used, over what is expected of it."""
        return self._latency(np.zeros((_DRAWS, len(self._shares)), np.intp))

    def after(self, seconds: float) -> Draws:
        """Return the same of what is used after so many seconds more."""
        left = max(0.0, seconds - self._before_s)
        many = left / self._comparison_s
        squares = self._errors**2
        moved = np.sqrt(squares * many / np.maximum(squares * many + self._variance, 1e-30))
        seen = self._means + self._errors * moved * (moved * self._truth + np.sqrt(1 - moved**2) * self._luck)
        seen += CAUTION * self._errors * np.sqrt(1 - moved**2)
        seen[:, :, 0] -= INERTIA
        compared = self._turns[:, None] < many  # nothing else is used before the first comparison
        return self._latency(np.where(compared, seen.argmin(axis=2), 0)) - self._found(left)

    def _latency(self, used: NDArray[np.intp]) -> Draws:
        logs = self._means + self._errors * self._truth
        took = np.take_along_axis(logs, used[:, :, None], axis=2)[:, :, 0]
        return np.asarray((1.0 + np.expm1(took) @ self._shares) * self._together)

    def _found(self, seconds: float) -> Draws:
        """Return the part of the latency that new candidates save, as many as there is time for."""
        many = min(self._trials, seconds / self.candidate_s)
        known = np.array([one.known + DEFAULT_AS for one in self._searched], np.float64)
        shares = np.array([one.share for one in self._searched])
        most = np.array([one.most for one in self._searched])
        more = _spread(many, known, shares)
        chance = _RECORDS * np.log1p(more / (known + 0.5))
        size = _SIZE / (1 + 2 * np.log1p(known))
        # A gamma distribution with the mean and the variance of as many records of an exponential size.
        falls = np.random.default_rng(1).gamma(chance / 2, 2 * size, (_DRAWS, len(known)))
        return np.asarray(np.minimum(-np.expm1(-falls), most) @ shares)


@lru_cache(maxsize=4)
def _drawn(size: tuple[int, int]) -> tuple[Draws, Draws, Draws, Draws]:
    """Return the draws for so many choices and alternatives, the same each time: of what each takes and is measured to
    take, of when the first comparison is, and of what all have in common."""
    rng = np.random.default_rng(0)
    truth, luck = rng.standard_normal((2, _DRAWS, *size))
    return truth, luck, rng.random(_DRAWS), np.exp(_COMMON * rng.standard_normal(_DRAWS))


def _spread(many: float, known: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many of so many candidates each workload gets, if each goes where a record is worth most: in the end
    all have as many as their shares.

    >>> [*map(float, _spread(8.0, np.array([8.0, 8.0, 20.0]), np.array([0.5, 0.5, 0.1])))]
    [4.0, 4.0, 0.0]
    """
    order = np.argsort(known / np.maximum(shares, 1e-12))
    more = np.zeros(len(known))
    for count in range(len(known), 0, -1):
        first = order[:count]
        level = (many + known[first].sum()) / shares[first].sum()
        more[first] = level * shares[first] - known[first]
        if more[first].min() >= 0:
            break
        more[:] = 0.0
    return more


def _pace(policy: Policy) -> tuple[float, float]:
    """Return the seconds of a candidate, and those from one comparison to the next with all that is between."""
    many = _SEARCHES * BATCH
    seconds = _SEARCHES * policy.pace.seconds(ActionKind.SEARCH, BATCH)
    if policy.in_model:
        seconds += policy.pace.seconds(ActionKind.MEASURE, 0, many // 2 + 1, 1)
        seconds += policy.pace.seconds(ActionKind.SCHEDULES, 0, TOP + 1, PROCESSES)
    return seconds / many, seconds


__all__ = ["LEVEL", "NEAR", "Forecast", "Outlook", "best_schedule", "forecast", "outlooks_of"]
