"""The search over whole plans: which option each site has and which schedule each workload, all in one study.

The searches of single workloads find schedules; this one puts those that look best together. Versions of the model
with such plans are interleaved with the candidates of a measurement, so that a plan costs no more than a candidate
of one workload, and each also reads what it is made of once more, in another process and beside other neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler

from autotune.database.records import PlanReading
from autotune.errors import UsageError
from autotune.tuning.compare.sites import Site, Sites

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from autotune.passes.options import Option
    from autotune.tuning.jobs.task import Task
    from autotune.tuning.search.studies import Record

_CHOICES = 4
"""Schedules of a workload that a plan may have beside the default: the fastest inside the model."""
_NOISE = 0.05
"""Standard deviation, over processes, of the log of what the same code takes inside a model."""
_DOUBT = 12.0
"""So many rounds at what its parts promise count beside those in which a plan was read as a whole."""
_DRAW, _MOVE = 0.5, 0.3
"""Of the proposals so many are drawn by what is known of each part, and so many are moves from the best plan; the rest
start anew."""
_MOVED = 0.25
"""The share of the workloads that a move changes."""


@dataclass(frozen=True)
class PlanProposal:
    """A plan to read: names of options by workload key, and the trace keys of schedules that are not the default's."""

    options: Mapping[str, str]
    schedules: Mapping[str, str]
    trial: Trial


@dataclass(frozen=True)
class _Choice:
    """A schedule by its number, and what readings say of it: the log of its ratio, and how sure that is."""

    number: int
    log_ratio: float = 0.0
    error: float = 0.0


class PlanSampler(BaseSampler):  # type: ignore[misc]  # Optuna is read without its types
    """Chooses the schedules of all workloads together.

    A proposal is, by chance, one of three: every workload by a draw from what readings say of its choices (Thompson
    sampling: what is good or hardly known is proposed most); the best plan so far with a few workloads changed; or all
    at random.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        space: dict[str, BaseDistribution],
        fixed: Mapping[str, str],
        choices: Mapping[str, Sequence[_Choice]],
        best: Mapping[str, int],
    ) -> None:
        self._rng = rng
        self._space = space
        self._fixed = fixed
        self._choices = choices
        self._best = best

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return everything: one proposal chooses all of it together."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the whole plan."""
        kind = self._rng.random()
        return {**self._fixed, **{name: self._choose(name, kind) for name in self._choices}}

    def _choose(self, name: str, kind: float) -> int:
        choices = self._choices[name]
        if kind < _DRAW:
            drawn = [choice.log_ratio + choice.error * self._rng.standard_normal() for choice in choices]
            return choices[int(np.argmin(drawn))].number
        if kind < _DRAW + _MOVE and self._rng.random() > _MOVED:
            return self._best[name]
        return choices[int(self._rng.integers(len(choices)))].number

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: every part of a plan is in the relative search space."""
        raise UsageError(f"the plan sampler knows no parameter {param_name!r}")


class PlanSearch:
    """One Optuna study whose trials are plans of a model; its value is the latency over that of the untuned model.

    A parameter is the option of a site, or the schedule of a workload: its number in the order in which candidates were
    first measured in the model, 0 for the default. All dispatches of a workload share one. The study is rebuilt from
    what the job has stored.
    """

    def __init__(self, sites: Sites, seed: int, record: Record | None = None) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sites = sites
        self._rng = np.random.default_rng(seed)
        self._traces: dict[str, list[str]] = {}
        """By workload key the trace keys of its schedules in the order of their numbers, from 1."""
        self._study = optuna.create_study()
        self._read: list[PlanReading] = []
        self._record = record

    def __len__(self) -> int:
        return len(self._read)

    def recall(self, plans: Iterable[PlanReading]) -> None:
        """Take what an earlier session of the job has read; plans of which a part is gone say nothing."""
        for plan in plans:
            options = self._named(plan.options)
            tasks = {task.workload.key: task for task in self._tasks(options)}
            if _is_known(plan, tasks):
                trial = optuna.trial.create_trial(
                    params={**self._fixed(options), **self._numbers(tasks, plan.schedules)},
                    distributions=self._space(options, tasks.values()),
                    value=plan.ratio.median,
                )
                self._study.add_trial(trial)
                self._read.append(plan)
                if self._record is not None:
                    self._record.add(trial, restored=True)

    def ask(self, options: Mapping[str, Option]) -> PlanProposal | None:
        """Return a plan with these options; None while no candidate seems faster than the default."""
        tasks = self._tasks(options)
        choices = {_schedule(task): self._choices(task) for task in tasks}
        if all(len(found) == 1 for found in choices.values()):
            return None
        space, fixed = self._space(options, tasks), self._fixed(options)
        known = {task.workload.key: task for task in tasks}
        at_hand = {key: trace for key, trace in self.best(options).items() if trace in known[key].built}
        best = self._numbers(known, at_hand)
        self._study.sampler = PlanSampler(self._rng, space, fixed, choices, best)
        trial = self._study.ask(space)
        numbers = {task.workload.key: trial.params[_schedule(task)] for task in tasks}
        schedules = {key: self._traces[key][number - 1] for key, number in numbers.items() if number}
        return PlanProposal({key: option.name for key, option in options.items()}, schedules, trial)

    def tell(self, proposal: PlanProposal, plan: PlanReading | None) -> None:
        """Record the latency of a plan; None if there was no time for it, or it crashed."""
        if plan is None:
            self._study.tell(proposal.trial, state=optuna.trial.TrialState.FAIL)
        else:
            ended = self._study.tell(proposal.trial, plan.ratio.median)
            self._read.append(plan)
            if self._record is not None:
                self._record.add(ended)

    def best(self, options: Mapping[str, Option]) -> dict[str, str]:
        """Return the plan with these options that promises most: the trace keys of what is not the default.

        It is made of what is fastest at each site, or it is one that was read as a whole and was faster than that.
        """
        tasks = self._tasks(options)
        leaders = {task.workload.key: task.leaders(1) for task in tasks}
        parts = {key: found[0] for key, found in leaders.items() if found}
        names = {key: option.name for key, option in options.items()}
        known = {task.workload.key: task for task in tasks}
        read = [plan for plan in self._read if plan.options == names and _is_known(plan, known)]
        uses = self._sites.uses(options)
        scored = [(_promise(tasks, uses, parts), parts)]
        for plan in read:
            promise = _promise(tasks, uses, plan.schedules)
            beyond = math.log(plan.ratio.median) - promise
            scored.append((promise + beyond * plan.rounds / (plan.rounds + _DOUBT), dict(plan.schedules)))
        return min(scored, key=lambda entry: entry[0])[1]

    def _tasks(self, options: Mapping[str, Option]) -> list[Task]:
        """Return the tasks that a model with these options executes, as far as they are known inside it."""
        uses = self._sites.uses(options)
        return [task for key, task in self._sites.task_of.items() if key in uses and task.default_ns]

    def _choices(self, task: Task) -> list[_Choice]:
        """Return the default, and the fastest of which the code is at hand."""
        found = [trace for trace in task.leaders(_CHOICES) if trace in task.built]
        numbers = self._numbered(task)
        known = [(numbers.index(trace) + 1, task.inside[trace]) for trace in found]
        return [
            _Choice(0),
            *(_Choice(n, math.log(e.ratio), _NOISE / math.sqrt(e.processes)) for n, e in known),
        ]

    def _numbered(self, task: Task) -> list[str]:
        """Return all schedules of a task that were read, each under the number that it has had since then."""
        numbered = self._traces.setdefault(task.workload.key, [])
        numbered += [trace for trace in task.inside if trace not in numbered]
        return numbered

    def _numbers(self, tasks: Mapping[str, Task], schedules: Mapping[str, str]) -> dict[str, int]:
        """Return the parameters of a plan's schedules."""
        return {
            _schedule(task): self._numbered(task).index(schedules[key]) + 1 if key in schedules else 0
            for key, task in tasks.items()
        }

    def _space(self, options: Mapping[str, Option], tasks: Iterable[Task]) -> dict[str, BaseDistribution]:
        sites = {site.workload.key: site for site in self._sites.several}
        names = {key: tuple(option.name for option in sites[key].options) for key in options if key in sites}
        chosen = {_option(sites[key]): CategoricalDistribution(found) for key, found in names.items()}
        return {**chosen, **{_schedule(t): IntDistribution(0, len(self._numbered(t))) for t in tasks}}

    def _fixed(self, options: Mapping[str, Option]) -> dict[str, str]:
        """Return the parameters of a plan's options."""
        several = {site.workload.key: site for site in self._sites.several}
        return {_option(several[key]): option.name for key, option in options.items() if key in several}

    def _named(self, names: Mapping[str, str]) -> dict[str, Option]:
        sites = {site.workload.key: site for site in self._sites.several}
        found = {key: {o.name: o for o in sites[key].options} for key in names if key in sites}
        return {key: found[key][name] for key, name in names.items() if name in found.get(key, {})}


def _is_known(plan: PlanReading, tasks: Mapping[str, Task]) -> bool:
    """Return whether all schedules of a plan were read, with the code that they give now."""
    return all(key in tasks and trace in tasks[key].inside for key, trace in plan.schedules.items())


def _promise(tasks: Sequence[Task], uses: Mapping[str, int], schedules: Mapping[str, str]) -> float:
    """Return the log of a plan's ratio by its parts: each has a share of the model's time."""
    before = after = 0.0
    for task in tasks:
        ns = uses[task.workload.key] * (task.default_ns or 0.0)
        estimate = task.inside.get(schedules.get(task.workload.key, ""))
        before += ns
        after += ns * (estimate.ratio if estimate else 1.0)
    return math.log(after / before) if before else 0.0


def _schedule(task: Task) -> str:
    """Return the name of a workload's parameter."""
    return f"{task.names[0]} schedule"


def _option(site: Site) -> str:
    """Return the name of a site's parameter."""
    return f"{site.names[0]} option"


__all__ = ["PlanProposal", "PlanSampler", "PlanSearch"]
