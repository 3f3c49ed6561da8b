"""The policy that spends a job's budget: at each step what promises the largest gain of the model for its seconds.

What measuring promises is its knowledge gradient: by how much the expected latency of what is used afterwards is
smaller (Frazier, Powell, Dayanik, The knowledge-gradient policy for correlated normal beliefs, INFORMS J. Comput. 21,
2009). What a search promises follows from records: among n candidates of one population the next one is the best with
probability 1 ÷ (n + 1), and by about the spread over what is left of its tail; the default is as good as the best of
several. All constants of it stand here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from statistics import median
from typing import Any, Generic, TypeVar

import numpy as np

from autotune.database.pooled import NOTHING, Pooled
from autotune.database.posterior import (
    CERTAIN,
    INERTIA,
    ROUNDS,
    SCHEDULE,
    Posterior,
    beliefs,
    pools,
    scatter,
    variance_of,
    variance_of_row,
)
from autotune.database.records import SAME_CODE, Comparison
from autotune.passes.options import Option
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.task import Task

WORTH = 2e-4
"""The least expected gain, as a part of the model's latency, for which something is measured again."""
SPENT = 1e-9
"""The same where a time budget is to be spent anyway."""
BESIDE = 0.01
"""The part of the largest promise that what is compared beside it must promise: each takes code to be built."""
REPEATED = (1, 2, 4, 8, 16, 32, 64)
"""Measurements of the same that are thought of together."""
TRIAL_S, VERSION_S, PROCESS_S = 0.15, 0.12, 0.9
"""Seconds to build and time a candidate, to make a version of the model, and of a process that measures a few: first
guesses, corrected by what each kind of action has taken."""
BATCH = 8
"""Candidates that a search gets at once."""
DEFAULT_AS = 8
"""The default is as good as the best of so many candidates: the first four of a search make a workload 0.5 % faster in
the mean, and half of the workloads not at all. (results/replay/squeezenet.job.json, mobilenetv2.job.json)"""
CHALLENGERS = 4
"""The most options of a site in a comparison beside those in use."""
TOP = 4
"""The same of schedules: most of the time of a comparison goes to its processes, not to one more version."""
_CLEAR = 5.0
"""Standard deviations beyond which even certainty promises less than a millionth of one."""
_DRAWS = 256
"""Draws by which the probability that an option is the fastest is worked out."""
_LISTED = 3
"""Actions beside the next one that are shown."""
_LEARNT = 0.3
"""The weight of what an action took against what was expected of its kind."""


S = TypeVar("S")


class ActionKind(StrEnum):
    """The kinds of actions."""

    DEFAULTS = "defaults"
    """Build and time default schedules."""
    SEARCH = "search"
    """Propose, build and time candidates of a workload."""
    MEASURE = "measure"
    """Measure what a search has found in the model."""
    OPTIONS = "options"
    """Compare options in the model."""
    SCHEDULES = "schedules"
    """Compare schedules in the model."""


BUILDING = (ActionKind.DEFAULTS, ActionKind.SEARCH)
"""Those that build candidates."""


@dataclass(frozen=True)
class Action:
    """One thing to do next: ``gain`` is expected, as a part of the models' latency, with a standard deviation.

    ``tasks`` are those whose candidates are built, ``options`` those to compare by workload key of their site, and
    ``schedules`` trace keys to compare by workload key; ``model`` is the one that this is measured in.
    """

    work: ActionKind
    what: str
    gain: float
    error: float
    seconds: float
    tasks: tuple[Task, ...] = ()
    options: Mapping[str, Sequence[Option]] = field(default_factory=dict)
    schedules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    model: str = ""

    @property
    def workloads(self) -> set[str]:
        """Return the keys of the workloads that are compared."""
        of_options = {r.key for options in self.options.values() for o in options for r in o.regions}
        return {*of_options, *self.schedules}

    @property
    def rate(self) -> float:
        """Return the gain for each second."""
        return self.gain / self.seconds

    def __str__(self) -> str:
        if self.gain == math.inf:
            return f"{self.work} {self.what}, before anything else"
        return (
            f"{self.work} {self.what}, because it promises {100 * self.gain:.2g} % ± {100 * self.error:.2g} "
            f"for {self.seconds:.1f} s"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what is done next and what it promises; null where it comes before anything else."""
        gain = None if self.gain == math.inf else self.gain
        named = {"action": self.work.value, "what": self.what, "text": str(self)}
        return {**named, "gain": gain, "error": self.error, "seconds": self.seconds}


def worth_repeating(behind: float, spread: float, variance: Callable[[int], float]) -> float:
    """Return the expected gain for each of as many measurements as are worth most; ``variance`` is that of so many.

    One alone may never change what is used where several would (Frazier, Powell, Paradoxes in learning and the marginal
    value of information, Decision Analysis 7, 2010).
    """
    if _is_clear(behind, spread):
        return 0.0
    return max(knowledge_gradient(behind, spread, variance(many)) / many for many in REPEATED)


def _is_clear(behind: float, spread: float) -> bool:
    """Return whether no measurement would have something used that is so far behind."""
    return behind + INERTIA > _CLEAR * spread


def knowledge_gradient(behind: float, spread: float, variance: float) -> float:
    """Return the expected gain of a measurement with this variance of something that is ``behind`` what is used, in
    logs of the ratio, the difference being known with a standard deviation of ``spread``.

    What is expected to be ahead is not used until it was compared: that alone is then worth as much.
    """
    if spread <= 0.0:
        return 0.0
    moves = spread**2 / math.sqrt(spread**2 + variance)
    z = -(behind + INERTIA) / moves
    return moves * (z * 0.5 * math.erfc(-z / math.sqrt(2)) + math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def records(known: int, more: int) -> float:
    """Return the expected gain by ``more`` candidates after so many beside the default, in logs of the ratio.

    >>> [round(records(known, 8), 4) for known in (0, 8, 64)]
    [0.0061, 0.003, 0.0005]
    """
    before = known + DEFAULT_AS
    chance = sum(1.0 / (before + 1 + n) for n in range(more))
    return chance * SCHEDULE / (1.0 + 2.0 * math.log1p(before))


def worth_measuring(
    known: Mapping[str, Posterior],
    used: str,
    variance: Callable[[str, int], float],
    names: Collection[str] | None = None,
) -> dict[str, float]:
    """Return what a measurement of alternatives to what is used promises, the largest first; ``variance`` is that of
    so many more measurements of an alternative, as far as they tell something new."""
    mine = known[used]
    found = {
        name: worth_repeating(
            other.mean - mine.mean, math.hypot(other.error, mine.error), partial(variance, name)
        )
        for name, other in known.items()
        if name != used and (names is None or name in names)
    }
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


@dataclass(frozen=True)
class _Others(Generic[S]):
    """Alternatives to what is used at a site or of a workload, which is the subject: what comparing each promises, as a
    part of the models' latency, the most promising first, and the standard deviations."""

    subject: S
    used: str
    promises: Mapping[str, float]
    errors: Mapping[str, float]
    left: Collection[str] = ()
    """Those that can be compared."""


@dataclass
class Policy:
    """The evidence of a job, and what to do next with it.

    ``thrifty``: a search ends when it promises too little, not when the budget is spent. ``least`` is what an action
    must promise. ``in_model``: there is a model to measure in. ``history`` has the comparisons of options by workload
    key.
    """

    sites: Sites
    seed: int = 0
    in_model: bool = True
    thrifty: bool = False
    least: float = WORTH
    history: dict[str, list[Comparison]] = field(default_factory=dict)
    recent: list[Comparison] = field(default_factory=list)
    """The rows of the last comparison: how well the next one will measure."""
    actions: dict[str, int] = field(default_factory=dict)
    """The number of actions of each kind so far."""
    last: Action | None = None
    """The action that was chosen last, or for which no time is left."""
    others: tuple[Action, ...] = ()
    """The actions that would be done instead, as far as is known now: those with the next largest gains a second."""
    _pace: dict[tuple[ActionKind, str], float] = field(default_factory=dict)
    """The time that actions took over that which was expected, by their kinds and models."""
    _given_up: set[tuple[str, str]] = field(default_factory=set)
    """Options and schedules by workload key that could not be measured."""
    _measures: tuple[float, float] = (variance_of(ROUNDS * PROCESSES, PROCESSES), 0.0)
    """The variance of the next comparison, and the load beside it."""
    _noise: float = 1.0
    """The variance of comparisons over what is usual."""
    _pools: dict[tuple[str, str, str], Pooled] = field(default_factory=dict)
    """All measurements of options, by site, option and default."""
    _beliefs: tuple[object, dict[str, dict[str, Posterior]]] = field(default=(None, {}))
    """The posteriors of options by the keys of their sites, after so many comparisons and trials."""

    def next(
        self,
        waiting: Mapping[str, int],
        busy: Container[str] = (),
        seconds_left: float = math.inf,
        trials_left: float = math.inf,
    ) -> Action | None:
        """Return the action with the largest expected gain a second that there is time for; None if there is none.

        ``waiting`` counts the candidates of workloads that wait to be measured in the model, ``busy`` are those that
        get no more.
        """
        self._measures = self._as_the_last()
        actions = list(self._actions(waiting, busy, trials_left))
        chosen = self._pick(actions, seconds_left)
        self.last = chosen or self._pick(actions, math.inf)
        others = [action for action in actions if action is not self.last]
        self.others = tuple(sorted(others, key=lambda action: -action.rate)[:_LISTED])
        return chosen

    def pick(self, actions: Sequence[Action]) -> Action | None:
        """Return the action to take of those that there is time for; None if none of them is worth it."""
        return max(actions, key=lambda action: (action.rate, action.gain))

    def _pick(self, actions: Iterable[Action], seconds_left: float) -> Action | None:
        found = [action for action in actions if action.seconds <= seconds_left or action.gain == math.inf]
        return self.pick(found) if found else None

    def next_to_build(
        self, waiting: Mapping[str, int], busy: Container[str], seconds_left: float, trials_left: float
    ) -> Action | None:
        """Return the same among the actions that build candidates: what builders do while something else is done."""
        actions = self._actions(waiting, busy, trials_left)
        return self._pick((action for action in actions if action.work in BUILDING), seconds_left)

    def took(self, action: Action, seconds: float) -> None:
        """Learn what an action took."""
        self.actions[action.work.value] = self.actions.get(action.work.value, 0) + 1
        before = self._pace_of(action.work, action.model)
        now = before * seconds / max(1e-9, action.seconds)
        self._pace[action.work, action.model] = min(20.0, (1 - _LEARNT) * before + _LEARNT * now)

    def seconds(
        self, work: ActionKind, trials: int = 0, versions: int = 0, processes: int = 0, model: str = ""
    ) -> float:
        """Return the time that an action is expected to take."""
        nominal = TRIAL_S * trials + VERSION_S * versions + PROCESS_S * processes
        return max(1e-6, nominal * self._pace_of(work, model))

    def _pace_of(self, work: ActionKind, model: str) -> float:
        """Return the pace of a kind of action in a model, or its mean over the models if it is not known there."""
        known = {where: pace for (kind, where), pace in self._pace.items() if kind is work}
        return known.get(model, sum(known.values()) / len(known)) if known else 1.0

    def unclear(self, model: str) -> list[tuple[Task, list[str]]]:
        """Return the schedules of workloads in use in a model that another measurement may make the ones to use."""
        return [
            (self.sites.task_of[key], list(traces))
            for action in self._compare_schedules(model)
            for key, traces in action.schedules.items()
        ]

    def measured(self, action: Action) -> dict[tuple[str, str], float]:
        """Return how much is known of everything that an action compares."""
        options = {
            (key, option.name): float(sum(row.name == option.name for row in self.history.get(key, ())))
            for key, several in action.options.items()
            for option in several
        }
        inside = {key: self.sites.task_of[key].inside for key in action.schedules}
        schedules = {
            (key, trace): inside[key][trace].weight if trace in inside[key] else 0.0
            for key, traces in action.schedules.items()
            for trace in traces
        }
        return {**options, **schedules}

    def give_up(self, action: Action, before: Mapping[tuple[str, str], float]) -> None:
        """Compare nothing again of which an action has measured nothing."""
        self._given_up |= {what for what, known in self.measured(action).items() if known <= before[what]}

    @property
    def untried(self) -> list[Task]:
        """Return the tasks of options in use whose default was not measured yet, then those of others that are worth
        it, the most promising first."""
        later = [task for _, _, tasks in self._open_options() for task in tasks]
        return list({task.workload.key: task for task in (*self._needed, *later)}.values())

    @property
    def _needed(self) -> list[Task]:
        """The tasks of options in use whose default was not measured yet."""
        in_use = self.in_use
        return [task for task in self.sites.tasks if task.untried and task.workload.key in in_use]

    def weights(self) -> dict[str, float]:
        """Return by which part of it the models' latency falls with each nanosecond that a workload takes less: as
        often as they execute it, and of options that may be the fastest, times that probability."""
        worth, weights = self._worth, dict[str, float]()
        for site in self.sites.all:
            for name, chance in self._chances(site).items():
                for region in next(o for o in site.options if o.name == name).regions:
                    key = region.key
                    weights[key] = weights.get(key, 0.0) + chance * len(site.names) * worth[site.model]
        return weights

    def _actions(
        self, waiting: Mapping[str, int], busy: Container[str], trials_left: float
    ) -> Iterator[Action]:
        models = self.sites.models if self.in_model else ()
        compared = [action for model in models for action in self._compare_options(model)]
        if trials_left >= 1:
            if needed := self._needed:
                yield from self._first([task for task in needed if task.workload.key not in busy])
                return
            defaults = self._defaults()
            if defaults is not None:
                yield defaults
            news = [action for action in compared if action.gain >= WORTH and self._has_news(action)]
            if self.in_model and (defaults is not None or news):
                yield from news
                return  # options first: each that may matter is measured once before anything is searched
        weights = self.weights()
        if trials_left >= 1:
            yield from self._searches(waiting, busy, weights)
        yield from compared
        for model in models:
            yield from self._measure(waiting, weights, model)
            yield from self._compare_schedules(model)

    def _has_news(self, action: Action) -> bool:
        """Return whether any option of a comparison was never compared before."""
        return any(
            option.name not in {row.name for row in self.history.get(key, ())}
            for key, options in action.options.items()
            for option in options
        )

    def _first(self, tasks: Sequence[Task]) -> Iterator[Action]:
        """Yield what measures the default schedules of options in use, before anything else."""
        if first := tuple(tasks[:BATCH]):
            what = f"of {first[0].name}" + (f" and {len(first) - 1} more" if len(first) > 1 else "")
            seconds = self.seconds(ActionKind.DEFAULTS, len(first))
            yield Action(ActionKind.DEFAULTS, what, math.inf, 0.0, seconds, first)

    def _defaults(self) -> Action | None:
        gain, batch, names = 0.0, dict[str, Task](), list[str]()
        for value, name, tasks in self._open_options():
            if batch and len({*batch, *(task.workload.key for task in tasks)}) > BATCH:
                break
            batch |= {task.workload.key: task for task in tasks}
            gain += value
            names.append(name)
        if not batch:
            return None
        what = f"of {names[0]}" + (f" and {len(names) - 1} more options" if len(names) > 1 else "")
        processes = PROCESSES if self.in_model else 0
        seconds = (
            self.seconds(ActionKind.DEFAULTS, len(batch))
            + self.seconds(ActionKind.OPTIONS, 0, 2, processes) / 4
        )
        return Action(ActionKind.DEFAULTS, what, gain, gain, seconds, tuple(batch.values())[:BATCH])

    def _open_options(self) -> list[tuple[float, str, list[Task]]]:
        """Return the options with defaults that were never measured, with what measuring promises, the best for its
        time first."""
        found, shares = [], self._shares
        for site in {site.workload.key: site for site in self.sites.several}.values():
            share = shares[site.workload.key]
            values = worth_measuring(self.known(site), self._used(site).name, self._of_option(site))
            for option in site.options:
                tasks = [self.sites.task_of[region.key] for region in option.regions]
                untried = list({task.workload.key: task for task in tasks if task.untried}.values())
                value = share * values.get(option.name, 0.0)
                if untried and value >= WORTH:
                    found.append((value, f"{option.name} at {site.names[0]}", untried))
        return sorted(found, key=lambda entry: -entry[0] / len(entry[2]))

    def _searches(
        self, waiting: Mapping[str, int], busy: Container[str], weights: Mapping[str, float]
    ) -> Iterator[Action]:
        for task in self.sites.tasks:
            key = task.workload.key
            if task.finished or task.at_floor or task.untried or key in busy or not weights.get(key):
                continue
            ns = self._latency(task)
            known = (len(task.inside) + waiting.get(key, 0)) if self.in_model else len(task.curve) - 1
            most = 1.0 - task.floor_ns / ns if math.isfinite(task.best_ns) else 1.0
            gain = weights[key] * ns * min(max(0.0, most), records(max(0, known), BATCH))
            if task.best_ns == math.inf:
                gain = 1.0  # nothing works yet: the model needs it before anything else
            if self.thrifty and gain < self.least:
                continue
            seconds = self.seconds(ActionKind.SEARCH, BATCH)
            seconds += self.seconds(ActionKind.MEASURE, 0, BATCH // 2) if self.in_model else 0.0
            yield Action(ActionKind.SEARCH, task.name, gain, gain, seconds, (task,))

    def _measure(
        self, waiting: Mapping[str, int], weights: Mapping[str, float], model: str
    ) -> Iterator[Action]:
        here = {key: count for key, count in waiting.items() if key in self.sites.of(model).task_of}
        if not here:
            return
        gain = 0.0
        for key, count in here.items():
            task = self.sites.task_of[key]
            gain += weights.get(key, 0.0) * self._latency(task) * records(len(task.inside), count)
        what = f"{sum(here.values())} candidates of {len(here)} workloads{self._in(model)}"
        seconds = self.seconds(ActionKind.MEASURE, 0, max(here.values()) + 1, 1, model)
        yield Action(ActionKind.MEASURE, what, gain, gain, seconds, model=model)

    def _compare_options(self, model: str) -> Iterator[Action]:
        wanted, gain, errors, names = dict[str, list[Option]](), 0.0, 0.0, list[str]()
        shares = self._shares
        others = [
            self._other_options(site, shares[site.workload.key]) for site in self.sites.of(model).several
        ]
        for one, picked in self._promising(others, CHALLENGERS):
            site = one.subject
            named = {option.name: option for option in site.options}
            several = dict.fromkeys([site.default.name, one.used, *picked])
            wanted[site.workload.key] = [named[name] for name in several if name in one.left]
            gain += one.promises[picked[0]]
            errors += one.errors[picked[0]] ** 2
            names.append(f"{picked[0]} at {site.names[0]}")
        if wanted:
            what = names[0] + (f" and at {len(names) - 1} more sites" if len(names) > 1 else "")
            versions = max(map(len, wanted.values())) + 1
            action = self._comparison(ActionKind.OPTIONS, what, gain, errors, versions, model)
            yield replace(action, options=wanted)

    def _compare_schedules(self, model: str) -> Iterator[Action]:
        wanted, gain, errors, names = dict[str, list[str]](), 0.0, 0.0, list[str]()
        weights = self._weights_in_use
        tasks = [
            (self.sites.task_of.get(key), weights[key]) for key in self.sites.of(model).uses(self._options)
        ]
        others = [self._other_schedules(task, weight) for task, weight in tasks if task is not None]
        for one, picked in self._promising(others, TOP):
            task = one.subject
            several = [
                t for t in dict.fromkeys((one.used, *picked)) if t in {*one.left} - {task.default_trace}
            ]
            if not several:
                continue
            wanted[task.workload.key] = several[:TOP]
            gain += one.promises[picked[0]]
            errors += one.errors[picked[0]] ** 2
            names.append(task.name)
        if wanted:
            what = f"of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            versions = max(map(len, wanted.values())) + 1
            action = self._comparison(ActionKind.SCHEDULES, what, gain, errors, versions, model)
            yield replace(action, schedules=wanted)

    def _comparison(
        self, work: ActionKind, what: str, gain: float, variance: float, versions: int, model: str
    ) -> Action:
        """Return a comparison of so many versions of a model, still of nothing."""
        seconds = self.seconds(work, 0, versions, PROCESSES, model)
        return Action(work, what + self._in(model), gain, math.sqrt(variance), seconds, model=model)

    def _in(self, model: str) -> str:
        """Return where something is measured, if that may be in several models."""
        return f" in {model}" if len(self.sites.models) > 1 else ""

    def _promising(self, several: Iterable[_Others[S]], most: int) -> list[tuple[_Others[S], list[str]]]:
        """Return what is compared together: alternatives that promise enough, also beside the one that promises most;
        those that promise most first."""
        every = [one for one in several if one.promises]
        floor = max(self.least, BESIDE * max((max(one.promises.values()) for one in every), default=0.0))
        found = [
            (one, [name for name, gain in one.promises.items() if gain >= floor][:most]) for one in every
        ]
        picked = [(one, names) for one, names in found if names]
        return sorted(picked, key=lambda entry: -entry[0].promises[entry[1][0]])

    def _other_options(self, site: Site, share: float) -> _Others[Site]:
        used, ready, known = self._used(site).name, self._ready(site), self.known(site)
        left = ready if used in ready else set[str]()
        values = worth_measuring(known, used, self._of_option(site), left)
        errors = {name: share * known[name].error for name in values}
        return _Others(site, used, {name: share * value for name, value in values.items()}, errors, left)

    def _ready(self, site: Site) -> set[str]:
        """Return the options that can be compared."""
        known, key = self.known(site), site.workload.key
        return {
            option.name
            for option in site.options
            if option.name in known
            and (key, option.name) not in self._given_up
            and self.sites.latency(option) < math.inf
        }

    def comparable(self, site: Site, used: Option) -> dict[str, Posterior]:
        """Return what is known of the options of a site that it may still be worth comparing with the one in use."""
        known = self.known(site)
        mine = known.get(used.name, CERTAIN)
        return {
            name: one
            for name, one in known.items()
            if name == used.name or not _is_clear(one.mean - mine.mean, math.hypot(one.error, mine.error))
        }

    def _other_schedules(self, task: Task, weight: float) -> _Others[Task]:
        if not task.default_ns or task.untried:
            return _Others(task, "", {}, {})
        known, share = self.schedules_known(task), weight * self._latency(task)
        left = {trace for trace in known if (task.workload.key, trace) not in self._given_up}
        used = min(known, key=lambda trace: known[trace].mean)
        values = worth_measuring(known, used, self._of_schedule(task, used), left)
        errors = {trace: share * math.hypot(known[trace].error, known[used].error) for trace in values}
        return _Others(task, used, {trace: share * value for trace, value in values.items()}, errors, left)

    @staticmethod
    def schedules_known(task: Task) -> dict[str, Posterior]:
        """Return what is known of the default and of the schedules that were measured in the model."""
        works = {trace for trace, found in task.known.items() if found.latency}
        found = {trace: one.posterior for trace, one in task.inside.items() if trace in works}
        return {**found, task.default_trace: CERTAIN}

    def _of_option(self, site: Site) -> Callable[[str, int], float]:
        """Return the variance of so many more comparisons of an option, as far as they tell something new; those of the
        default are of what is used."""
        key, default, used = site.workload.key, site.default.name, self._used(site).name

        def variance(name: str, many: int) -> float:
            pair = key, used if name == default else name, default
            return self._noise * self._added(self._pools.get(pair, NOTHING), many)

        return variance

    def _of_schedule(self, task: Task, used: str) -> Callable[[str, int], float]:
        """Return the same of a schedule."""

        def variance(trace: str, many: int) -> float:
            found = task.inside.get(used if trace == task.default_trace else trace)
            return self._added(NOTHING if found is None else found.pool, many)

        return variance

    def _added(self, pool: Pooled, many: int) -> float:
        """Return the variance of so many more measurements beside those of a pool."""
        variance, load = self._measures
        return pool.added(variance / many, load)

    @property
    def comparison_variance(self) -> float:
        """Return the variance of the log of a ratio in the next comparison."""
        return self._measures[0]

    def _as_the_last(self) -> tuple[float, float]:
        """Return the variance of a comparison that is like the last one, and the load beside it."""
        load = max((row.load for row in self.recent), default=0.0)
        usual = variance_of(ROUNDS * PROCESSES, PROCESSES, load=load)
        found = [variance_of_row(row) for row in self.recent if row.ratio not in (None, SAME_CODE)]
        return max(usual, median(found) if found else 0.0), load

    @property
    def _options(self) -> dict[str, Option]:
        """The options in use, by workload key."""
        return {site.workload.key: self._used(site) for site in self.sites.several}

    @property
    def in_use(self) -> dict[str, int]:
        """Return how often the models execute each workload with the options in use."""
        return self.sites.uses(self._options)

    @property
    def _worth(self) -> dict[str, float]:
        return self.sites.worth(lambda site: self._ns(site, self._used(site)))

    @property
    def _shares(self) -> dict[str, float]:
        """The parts of the workloads of sites in the models' latency, by their keys."""
        worth, shares = self._worth, dict[str, float]()
        for site in self.sites.all:
            share = worth[site.model] * len(site.names) * self._ns(site, self._used(site))
            shares[site.workload.key] = shares.get(site.workload.key, 0.0) + share
        return shares

    @property
    def _weights_in_use(self) -> dict[str, float]:
        """The same for each nanosecond of the workloads that are in use."""
        worth, options, weights = self._worth, self._options, dict[str, float]()
        for model in self.sites.models:
            for key, count in self.sites.of(model).uses(options).items():
                weights[key] = weights.get(key, 0.0) + worth[model] * count
        return weights

    def _used(self, site: Site) -> Option:
        return self.sites.used.get(site.workload.key, site.default)

    def _latency(self, task: Task) -> float:
        return task.best_ns if math.isfinite(task.best_ns) else max(1.0, task.floor_ns)

    def _ns(self, site: Site, option: Option) -> float:
        """Return the latency of an option as far as it is known: timed, else estimated."""
        timed = self.sites.latency(option)
        if timed < math.inf:
            return timed
        base = self.sites.latency(site.default)
        estimate, other = (site.expected_ns.get(one.name) for one in (option, site.default))
        if estimate and other and base < math.inf:
            return base * estimate / other
        return estimate or sum(self._latency(self.sites.task_of[region.key]) for region in option.regions)

    def known(self, site: Site) -> dict[str, Posterior]:
        """Return what is known of the options of a site, over its default."""
        version = sum(map(len, self.history.values())), sum(len(task.curve) for task in self.sites.tasks)
        if self._beliefs[0] != version:
            self._beliefs = version, self._believe()
            self._pools = pools(self.history)
            self._noise = scatter(self.history)
        return self._beliefs[1][site.workload.key]

    def _believe(self) -> dict[str, dict[str, Posterior]]:
        expected = {
            site.workload.key: {
                option.name: self._ns(site, option)
                for option in site.options
                if all(region.key in self.sites.task_of for region in option.regions)
            }
            for site in self.sites.several
        }
        return beliefs(self.history, expected, {s.workload.key: s.default.name for s in self.sites.several})

    def _chances(self, site: Site) -> dict[str, float]:
        """Return the probabilities of the options of a site that each is the fastest."""
        if len(site.options) == 1:
            return {site.default.name: 1.0}
        known = self.known(site)
        names = [option.name for option in site.options if option.name in known]
        rng = np.random.default_rng(self.seed)
        draws = rng.standard_normal((_DRAWS, len(names)))
        draws = draws * [known[name].error for name in names] + [known[name].mean for name in names]
        best = np.bincount(draws.argmin(axis=1), minlength=len(names)) / _DRAWS
        return dict(zip(names, map(float, best), strict=True))


__all__ = [
    "BATCH",
    "BUILDING",
    "SPENT",
    "TOP",
    "WORTH",
    "Action",
    "ActionKind",
    "Policy",
    "knowledge_gradient",
    "records",
    "worth_measuring",
]
