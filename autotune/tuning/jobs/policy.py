"""The policy that spends a job's budget: at each step what promises the largest gain of the model for its seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from autotune.passes.options import Option
from autotune.suggest import counted
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.actions import BUILDING, Action, ActionKind
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.pace import ActionPace
from autotune.tuning.jobs.task import Task
from autotune.tuning.jobs.worth import (
    ALIKE,
    BATCH,
    BESIDE,
    CHALLENGERS,
    LISTED,
    TOP,
    WORTH,
    records,
    worth_measuring,
)

S = TypeVar("S")


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
    """The choice of what is done next with the budget of a job, by its ``beliefs``.

    ``thrifty``: a search ends when it promises too little, not when the budget is spent. ``least`` is what an action
    must promise. ``in_model``: there is a model to measure in.
    """

    beliefs: Beliefs
    in_model: bool = True
    thrifty: bool = False
    least: float = WORTH
    pace: ActionPace = field(default_factory=ActionPace)
    actions: dict[str, int] = field(default_factory=dict)
    """The number of actions of each kind so far."""
    last: Action | None = None
    """The action that was chosen last, or for which no time is left."""
    others: tuple[Action, ...] = ()
    """The actions that would be done instead, as far as is known now: those with the next largest gains a second."""
    building: Counter[str] = field(default_factory=Counter)
    """The candidates of workloads that others build and time at the same time."""
    _given_up: set[tuple[str, str]] = field(default_factory=set)
    """Options and schedules by workload key that could not be measured."""
    _beside: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Those that are being compared."""

    @property
    def sites(self) -> Sites:
        """Return the sites of the job."""
        return self.beliefs.sites

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
        return next(iter(self.ranked(waiting, busy, seconds_left, trials_left)), None)

    def ranked(
        self, waiting: Mapping[str, int], busy: Container[str], seconds_left: float, trials_left: float
    ) -> Iterator[Action]:
        """Yield the same action, then what is next to it, as long as it promises about as much a second: with several
        at a time, all of these are done."""
        self.beliefs.renew()
        self.beliefs.measure_as_the_last()
        actions = list(self._actions(waiting, busy, trials_left))
        chosen = first = self._pick(actions, seconds_left)
        self.last = first or self._pick(actions, math.inf)
        left = [action for action in actions if action is not self.last]
        self.others = tuple(sorted(left, key=lambda action: -action.rate)[:LISTED])
        while first is not None and chosen is not None and chosen.rate >= ALIKE * first.rate:
            yield chosen
            left = [action for action in left if action is not chosen]
            chosen = self._pick(left, seconds_left)

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
        self.beliefs.renew()
        actions = self._actions(waiting, busy, trials_left, building=True)
        return self._pick((action for action in actions if action.work in BUILDING), seconds_left)

    def begin(self, action: Action) -> None:
        """Compare nothing twice that an action is going to compare, until that ends."""
        self._beside.update(_compared(action))

    def end(self, action: Action) -> None:
        """Note that an action has ended."""
        self._beside.subtract(_compared(action))

    def _closed(self, what: tuple[str, str]) -> bool:
        """Return whether an option or schedule is not to be compared now."""
        return what in self._given_up or self._beside[what] > 0

    def took(self, action: Action, seconds: float) -> None:
        """Learn what an action took."""
        self.actions[action.work.value] = self.actions.get(action.work.value, 0) + 1
        self.pace.took(action, seconds)

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
            (key, option.name): float(
                sum(row.name == option.name for row in self.beliefs.history.get(key, ()))
            )
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
        self.beliefs.renew()
        later = [task for _, _, tasks in self._open_options() for task in tasks]
        return list({task.workload.key: task for task in (*self._needed, *later)}.values())

    @property
    def _needed(self) -> list[Task]:
        """The tasks of options in use whose default was not measured yet."""
        in_use = self.beliefs.in_use
        return [task for task in self.sites.tasks if task.untried and task.workload.key in in_use]

    def _actions(
        self,
        waiting: Mapping[str, int],
        busy: Container[str],
        trials_left: float,
        *,
        building: bool = False,
    ) -> Iterator[Action]:
        """Yield what may be done next; ``building``: of that all that builds candidates."""
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
        weights = self.beliefs.weights()
        if trials_left >= 1:
            yield from self._searches(waiting, busy, weights)
        if building:
            return
        yield from compared
        for model in models:
            yield from self._measure(waiting, weights, model)
            yield from self._compare_schedules(model)

    def _has_news(self, action: Action) -> bool:
        """Return whether any option of a comparison was never compared before."""
        return any(
            option.name not in {row.name for row in self.beliefs.history.get(key, ())}
            for key, options in action.options.items()
            for option in options
        )

    def _first(self, tasks: Sequence[Task]) -> Iterator[Action]:
        """Yield what measures the default schedules of options in use, before anything else."""
        if first := tuple(tasks[:BATCH]):
            what = f"of {first[0].name}" + (f" and {len(first) - 1} more" if len(first) > 1 else "")
            seconds = self.pace.seconds(ActionKind.DEFAULTS, len(first))
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
        what = f"of {names[0]}" + (f" and {counted(len(names) - 1, 'more option')}" if len(names) > 1 else "")
        processes = PROCESSES if self.in_model else 0
        seconds = (
            self.pace.seconds(ActionKind.DEFAULTS, len(batch))
            + self.pace.seconds(ActionKind.OPTIONS, 0, 2, processes) / 4
        )
        return Action(ActionKind.DEFAULTS, what, gain, gain, seconds, tuple(batch.values())[:BATCH])

    def _open_options(self) -> list[tuple[float, str, list[Task]]]:
        """Return the options with defaults that were never measured, with what measuring promises, the best for its
        time first."""
        found, shares = [], self.beliefs.shares
        for site in {site.workload.key: site for site in self.sites.several}.values():
            untried = {option.name: tasks for option in site.options if (tasks := self._untried(option))}
            if untried:
                share = shares[site.workload.key]
                values = self._values(site)
                for name, tasks in untried.items():
                    value = share * values.get(name, 0.0)
                    if value >= WORTH:
                        found.append((value, f"{name} at {site.names[0]}", tasks))
        return sorted(found, key=lambda entry: -entry[0] / len(entry[2]))

    def _untried(self, option: Option) -> list[Task]:
        """Return the tasks of an option whose default was not measured yet."""
        tasks = [self.sites.task_of[region.key] for region in option.regions]
        return list({task.workload.key: task for task in tasks if task.untried}.values())

    def _values(self, site: Site, names: Collection[str] | None = None) -> dict[str, float]:
        """Return what comparing the options of a site promises, or those with these names, as a part of its latency."""
        known, used = self.beliefs.options(site), self.beliefs.used(site).name
        return worth_measuring(known, used, self.beliefs.of_option(site), names)

    def _searches(
        self, waiting: Mapping[str, int], busy: Container[str], weights: Mapping[str, float]
    ) -> Iterator[Action]:
        for task in self.sites.tasks:
            key = task.workload.key
            if task.finished or task.at_floor or task.untried or key in busy or not weights.get(key):
                continue
            ns = self.beliefs.latency(task)
            known = (len(task.inside) + waiting.get(key, 0)) if self.in_model else len(task.curve) - 1
            known += self.building[key]
            most = 1.0 - task.floor_ns / ns if math.isfinite(task.best_ns) else 1.0
            gain = weights[key] * ns * min(max(0.0, most), records(max(0, known), BATCH))
            if task.best_ns == math.inf:
                gain = 1.0  # nothing works yet: the model needs it before anything else
            if self.thrifty and gain < self.least:
                continue
            seconds = self.pace.seconds(ActionKind.SEARCH, BATCH)
            seconds += self.pace.seconds(ActionKind.MEASURE, 0, BATCH // 2) if self.in_model else 0.0
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
            gain += weights.get(key, 0.0) * self.beliefs.latency(task) * records(len(task.inside), count)
        what = (
            f"{counted(sum(here.values()), 'candidate')} of {counted(len(here), 'workload')}{self._in(model)}"
        )
        seconds = self.pace.seconds(ActionKind.MEASURE, 0, max(here.values()) + 1, 1, model)
        yield Action(ActionKind.MEASURE, what, gain, gain, seconds, model=model)

    def _compare_options(self, model: str) -> Iterator[Action]:
        wanted, gain, errors, names = dict[str, list[Option]](), 0.0, 0.0, list[str]()
        shares = self.beliefs.shares
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
            what = names[0] + (f" and at {counted(len(names) - 1, 'more site')}" if len(names) > 1 else "")
            versions = max(map(len, wanted.values())) + 1
            action = self._comparison(ActionKind.OPTIONS, what, gain, errors, versions, model)
            yield replace(action, options=wanted)

    def _compare_schedules(self, model: str) -> Iterator[Action]:
        wanted, gain, errors, names = dict[str, list[str]](), 0.0, 0.0, list[str]()
        weights = self.beliefs.weights_in_use
        tasks = [
            (self.sites.task_of.get(key), weights[key])
            for key in self.sites.of(model).uses(self.beliefs.used_options)
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
        seconds = self.pace.seconds(work, 0, versions, PROCESSES, model)
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
        used, ready, known = self.beliefs.used(site).name, self._ready(site), self.beliefs.options(site)
        left = ready if used in ready else set[str]()
        values = self._values(site, left)
        errors = {name: share * known[name].error for name in values}
        return _Others(site, used, {name: share * value for name, value in values.items()}, errors, left)

    def _ready(self, site: Site) -> set[str]:
        """Return the options that can be compared."""
        known, key = self.beliefs.options(site), site.workload.key
        return {
            option.name
            for option in site.options
            if option.name in known
            and not self._closed((key, option.name))
            and self.sites.latency(option) < math.inf
        }

    def _other_schedules(self, task: Task, weight: float) -> _Others[Task]:
        if not task.default_ns or task.untried:
            return _Others(task, "", {}, {})
        known, share = self.beliefs.schedules(task), weight * self.beliefs.latency(task)
        left = {trace for trace in known if not self._closed((task.workload.key, trace))}
        used = min(known, key=lambda trace: known[trace].cautious)
        values = worth_measuring(known, used, self.beliefs.of_schedule(task, used), left)
        errors = {trace: share * math.hypot(known[trace].error, known[used].error) for trace in values}
        return _Others(task, used, {trace: share * value for trace, value in values.items()}, errors, left)


def _compared(action: Action) -> list[tuple[str, str]]:
    """Return the options and schedules of an action by the keys of their sites and workloads."""
    options = [(key, option.name) for key, several in action.options.items() for option in several]
    return options + [(key, trace) for key, traces in action.schedules.items() for trace in traces]


__all__ = ["Policy"]
