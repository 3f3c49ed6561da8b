"""One job simulated from a recording, and how well it went: what was used when, and what was claimed at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optuna.storages import InMemoryStorage

from autotune.bench.jobs.machine import MachineKind, SimulatedMachine
from autotune.bench.jobs.recording import RecordedJob
from autotune.bench.jobs.seat import SimulatedModel, SimulatedPool
from autotune.bench.jobs.truth import PlanInUse, Truth, candidate_of
from autotune.database import Database, Hit, Miss
from autotune.database.answers import KeptAnswers
from autotune.database.posterior import Standings, standings
from autotune.database.records import Ratio
from autotune.files import scratch_folder
from autotune.machine_lock import Measuring
from autotune.tuning.jobs.actions import Action, ActionKind
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.forecast import Forecast
from autotune.tuning.jobs.job import Job, Options
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.subject import TunedModel
from autotune.tuning.measure.interface import Measurer
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status, share_done

if TYPE_CHECKING:
    from autotune.tuning.fleet.opening import OnFleet

CONFIRMED = 0.01
"""A plan within so much of the best one is that."""
WORSE = 0.01
"""A site that takes so much longer than untuned is worse."""
FORECAST = 0.2
"""The part of the budget after which a job's forecast is judged."""
NEAR = 0.1
"""Time is well spent on options within so much of what is used in the end."""


@dataclass(frozen=True)
class JobOutcome:
    """The result of a simulated job.

    ``plan_s``: from when on the plan in use is within :data:`CONFIRMED` of the best; ``half_s``: the same of half of
    the gain (in logs); infinite where it never was. ``regret``: the latency of the final plan over the best one's, less
    one. ``best``: the best plan's over the untuned. ``worse``: the sites that got slower by :data:`WORSE`;
    ``changed_sites`` have another option. Of the ``claims`` so many are ``wrong``: an interval that does not hold the
    truth. ``spent``: the part of the budget that passed; ``useful``: the part of the search's seconds on options and
    workloads that are in use at the end, or within :data:`NEAR` of it. ``seconds``: by the kinds of actions.
    ``held``: the gain is in the interval that was forecast at :data:`FORECAST` of the budget; ``width`` is that of it.
    """

    plan_s: float
    half_s: float
    regret: float
    best: float
    gain: float
    worse: tuple[str, ...]
    changed_sites: tuple[str, ...]
    claims: int
    wrong: tuple[str, ...]
    changed: bool
    spent: float
    useful: float
    seconds: Mapping[str, float]
    trials: int
    held: bool
    width: float
    steps: tuple[str, ...]
    """The actions, each with the second at which it began and the regret at that moment."""


@dataclass
class EarlyForecast(Progress):
    """Keeps the forecast of a job at :data:`FORECAST` of its budget."""

    forecast: Forecast | None = field(default=None, init=False)

    def chosen(self, status: Status) -> None:
        """Keep the first one after that."""
        if self.forecast is None and share_done(status.meter) >= FORECAST:
            self.forecast = status.forecast


@dataclass
class _Watching(EarlyForecast):
    """Notes at each action what is in use."""

    truth: Truth
    answers: KeptAnswers = field(init=False)
    begun: list[tuple[float, Action | None, float]] = field(default_factory=list)
    """Second, action, and the latency of the plan in use in ns."""
    status: Status | None = None
    plan: PlanInUse = field(default_factory=lambda: PlanInUse({}, {}))
    free: Callable[[], AbstractContextManager[None]] = nullcontext
    """In its context no time passes that the job has."""

    def started(self, status: Status) -> None:
        """Keep the status."""
        self.status = status

    def chosen(self, status: Status) -> None:
        """Note an action that begins."""
        with self.free():
            self.note(status.policy.last)
        super().chosen(status)

    def note(self, action: Action | None) -> None:
        """Note what is in use now, before an action."""
        assert self.status is not None
        sites = self.status.sites
        options = {key: option.name for key, option in sites.used.items()}
        keys = [sites.task_of[key].key for key in sites.uses(sites.used)]
        found = self.answers.best(keys).items()
        self.plan = PlanInUse(
            options,
            {key.workload: 0 if isinstance(run, Miss) else candidate_of(run.config) for key, run in found},
        )
        self.begun.append((self.status.meter.elapsed_s, action, self.truth.latency(self.plan)))


def replay(
    recording: RecordedJob,
    kind: MachineKind,
    policy: type[Policy],
    *,
    budget_s: float,
    seed: int,
    truth: Truth | None = None,
) -> JobOutcome:
    """Do a job again on a machine of some kind: the tuning loop, its decisions and its database are those of any job.

    Without a ``truth`` one is drawn from the recording by the ``seed``.
    """
    truth = truth or Truth.of(recording, seed)
    machine = SimulatedMachine(kind, seed)
    with scratch_folder("autotune-job-") as folder, Database(folder / "job.db") as database:
        machine.work(recording.seconds.start)
        whole, pool = SimulatedModel(truth, machine, database), SimulatedPool(truth, machine)
        setting = SimulatedSetting(truth, whole, pool, machine.clock)
        return job_outcome(setting, policy, budget_s=budget_s, seed=seed)


@dataclass(frozen=True)
class SimulatedSetting:
    """The setting of a simulated job of one model: it measures in ``whole`` and with ``measurer``, by a clock that is
    ahead by what came before the job; to look at it takes no time in the context ``free``."""

    truth: Truth
    whole: SimulatedModel
    measurer: Measurer
    clock: Callable[[], float]
    fleet: OnFleet | None = None
    free: Callable[[], AbstractContextManager[None]] = nullcontext


def job_outcome(setting: SimulatedSetting, policy: type[Policy], *, budget_s: float, seed: int) -> JobOutcome:
    """Do a job in a setting."""
    truth, whole = setting.truth, setting.whole
    watching = _Watching(truth, free=setting.free)
    job = Job(
        models=[TunedModel(truth.recording.model, truth.subjects, truth.sites, whole)],
        target=truth.target,
        budget=Budget(seconds=budget_s),
        database=whole.database,
        measurer=setting.measurer,
        progress=watching,
        options=Options("random", seed, transfer=False, study_storage=InMemoryStorage()),
        head_s=setting.clock(),
        policy=policy,
        clock=setting.clock,
        fleet=setting.fleet,
    )
    watching.answers = job.answers
    report = job.run_on(Measuring("", lambda text: None))
    watching.note(None)
    return _outcome(truth, watching, report, budget_s, [*_claims(watching, report)])


def _outcome(
    truth: Truth, watching: _Watching, report: Report, budget_s: float, claims: Sequence[tuple[str, bool]]
) -> JobOutcome:
    gain = report.models[0].gain
    latencies = [(second, ns) for second, _, ns in watching.begun]
    half = math.sqrt(truth.best_ns * truth.untuned_ns)
    final = latencies[-1][1]
    low, high = (0.0, 0.0) if watching.forecast is None else watching.forecast.interval
    useful = [*_useful(truth, watching)]
    searched = sum(seconds for _, seconds, _ in useful)
    by_kind: dict[str, float] = {}
    for kind, seconds, _ in useful:
        by_kind[kind] = by_kind.get(kind, 0.0) + seconds
    return JobOutcome(
        plan_s=_since(latencies, (1 + CONFIRMED) * truth.best_ns),
        half_s=_since(latencies, half),
        regret=final / truth.best_ns - 1,
        best=truth.best_ns / truth.untuned_ns,
        gain=truth.untuned_ns / final - 1,
        worse=tuple(_worse(truth, watching.plan)),
        changed_sites=tuple(_changed(truth, watching.plan)),
        claims=len(claims),
        wrong=tuple(text for text, holds in claims if not holds),
        changed=gain is not None and gain.ratio.changed,
        spent=report.seconds / budget_s,
        useful=sum(seconds * part for _, seconds, part in useful) / max(1e-9, searched),
        seconds=by_kind,
        trials=report.trials,
        held=low <= truth.untuned_ns / final - 1 <= high,
        width=high - low,
        steps=tuple(
            f"{second:.1f} s: {100 * (ns / truth.best_ns - 1):.2f} %; {action or 'the end'}"
            for second, action, ns in watching.begun
        ),
    )


def _since(latencies: Sequence[tuple[float, float]], most: float) -> float:
    """Return the second from which on a latency stays at most that; infinite where it does not."""
    since = math.inf
    for second, ns in reversed(latencies):
        if ns > most:
            break
        since = second
    return since


def _worse(truth: Truth, plan: PlanInUse) -> Iterator[str]:
    for found in truth.places:
        untuned = found.ns[found.place.choices[0].name]
        ns = truth.place_ns(found, plan)
        if ns > (1 + WORSE) * untuned:
            yield f"{found.place.names[0]}: {ns / untuned:.3f}"


def _changed(truth: Truth, plan: PlanInUse) -> Iterator[str]:
    """Yield the sites with another option than the default."""
    for found in truth.places:
        default = found.place.choices[0].name
        if plan.options.get(found.place.workload, default) != default:
            yield found.place.names[0]


def _useful(truth: Truth, watching: _Watching) -> Iterator[tuple[str, float, float]]:
    """Yield the kind of each action, its seconds, and the useful part of them.

    What is measured in the model is what was searched before it: it counts as the searches since the last time.
    """
    good = _worthwhile(truth, watching.plan)
    searched = [0.0, 0.0]
    ends = [second for second, _, _ in watching.begun[1:]]
    for (begin, action, _), end in zip(watching.begun, ends, strict=False):
        if action is None:
            continue
        seconds = end - begin
        if action.work is ActionKind.MEASURE:
            part = searched[1] / searched[0] if searched[0] else 1.0
            searched = [0.0, 0.0]
        else:
            part = _part(action, good)
            if action.work is ActionKind.SEARCH:
                searched = [searched[0] + seconds, searched[1] + seconds * part]
        yield action.work.value, seconds, part


def _part(action: Action, good: tuple[set[str], set[tuple[str, str]]]) -> float:
    workloads, options = good
    asked = [task.workload.key in workloads for task in action.tasks]
    asked += [key in workloads for key in action.schedules]
    asked += [(key, option.name) in options for key, several in action.options.items() for option in several]
    return sum(asked) / len(asked) if asked else 1.0


def _worthwhile(truth: Truth, plan: PlanInUse) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the workloads and options in use, and those within :data:`NEAR` of it."""
    workloads, options = set[str](), set[tuple[str, str]]()
    for found in truth.places:
        most = (1 + NEAR) * truth.place_ns(found, plan)
        for choice in found.place.choices:
            if truth.option_ns(found, choice.name, plan.candidates) <= most:
                options.add((found.place.workload, choice.name))
                workloads.update(choice.workloads)
    return workloads, options


def _claims(watching: _Watching, report: Report) -> Iterator[tuple[str, bool]]:
    """Yield what a job claims of dispatches, options and the whole model, and whether it holds."""
    truth, plan, gain = watching.truth, watching.plan, report.models[0].gain
    assert watching.status is not None
    if gain is not None and gain.ratio.changed:
        yield _claim("the whole model", gain.ratio, truth.latency(plan) / truth.untuned_ns)
    for key, number in plan.candidates.items():
        task = watching.status.sites.task_of[key]
        found = watching.answers.database.lookup(key, task.key.target, task.key.space)
        if isinstance(found, Hit) and found.claim is not None and found.claim.changed:
            yield _claim(task.names[0], found.claim, float(truth.pools[key].inside[number]))
    known = standings(watching.status.policy.beliefs.history)
    for place in truth.places:
        order = known.get(place.place.workload, Standings()).order
        default = next((one for one in order if one.is_reference), None)
        if order and default is not None and (ratio := order[0].claim) is not None:
            compared = [one for one in place.place.choices if one.name in (default.name, order[0].name)]
            replaced = any(plan.candidates.get(key, 0) for one in compared for key in one.workloads)
            if ratio.changed and not replaced:  # the code that was compared is in use still
                base = truth.option_ns(place, default.name, plan.candidates)
                ns = truth.option_ns(place, order[0].name, plan.candidates)
                yield _claim(f"{place.place.names[0]} {order[0].name}", ratio, ns / base)


def _claim(what: str, ratio: Ratio, true: float) -> tuple[str, bool]:
    assert ratio.interval is not None
    low, high = ratio.interval
    return f"{what}: {low:.3f} to {high:.3f}, truly {true:.3f}", low <= true <= high


__all__ = [
    "CONFIRMED",
    "FORECAST",
    "EarlyForecast",
    "JobOutcome",
    "SimulatedSetting",
    "job_outcome",
    "replay",
]
