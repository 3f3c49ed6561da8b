"""A tuning job: starts or continues, searches, compares, reports; whatever stops it, nothing is lost."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optuna.study import Study

from autotune import settings
from autotune.compiler.plan import OPTION
from autotune.database import Database
from autotune.database.answers import KeptAnswers
from autotune.database.goal import Objective, goals_of, searched
from autotune.database.records import JobRow, Run, WorkloadRow
from autotune.errors import DatabaseError, first_line
from autotune.machine_lock import Measuring
from autotune.schedule.knob import Config
from autotune.suggest import counted
from autotune.target import Target
from autotune.tuning.compare.interleaved import PROCESSES as COMPARED_IN
from autotune.tuning.compare.sites import Sites
from autotune.tuning.compare.step import Comparing
from autotune.tuning.jobs.actions import Action, ActionKind
from autotune.tuning.jobs.again import SOURCE
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.budget import Budget, Meter
from autotune.tuning.jobs.enough import Ahead
from autotune.tuning.jobs.events import Several, StopTuning
from autotune.tuning.jobs.heartbeat import ASKED, Heartbeat
from autotune.tuning.jobs.last_timing import FEWER, LastTiming
from autotune.tuning.jobs.loop import Seat, TuningLoop
from autotune.tuning.jobs.owner import alive, owner
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.rows import ModelRows
from autotune.tuning.jobs.subject import Subject, TunedModel, subjects_of
from autotune.tuning.jobs.task import Task
from autotune.tuning.jobs.worth import SPENT, TOP, WORTH
from autotune.tuning.measure.gain import PROCESSES
from autotune.tuning.measure.inside import InModelReader
from autotune.tuning.measure.interface import Measurer
from autotune.tuning.report.result import ModelReport, Report
from autotune.tuning.report.status import ModelStatus, Progress, Status
from autotune.tuning.search.online_model import EVERY, OnlineModel
from autotune.tuning.search.samplers import GUIDED, SamplerLike, factory, name_of
from autotune.tuning.search.studies import (
    StorageLike,
    Studies,
    TrialCallback,
    default_storage,
    study_name,
)
from autotune.tuning.search.study import SamplerFactory, Search
from autotune.tuning.search.warm_start import TRIALS, proposals
from autotune.versions import versions_of
from cost_models import calibrated

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from autotune.tuning.fleet.opening import OnFleet
    from autotune.tuning.search.prior import PriorModel

_LOADED_BYTES_PER_S = 60e6
"""Constants of the model for each second that it takes to assemble and load all versions of it."""
_AS_LOADING = 0.6
"""Two models are loaded and timed in this part of the time that starting took."""
_METRICS = {
    Objective.LATENCY: "latency / default",
    Objective.MEMORY: "memory (bytes)",
    Objective.SIZE: "artifact (bytes)",
}
"""Names of the objectives in the studies."""
_MOST_KEPT = 0.4
"""The most of the time that is left at the start that is kept back from the search."""


@dataclass(frozen=True)
class Options:
    """Options of a search. ``batch`` candidates are built together before they are timed one by one.

    ``time_model``: the whole model is timed untuned and tuned at the end. ``objective`` names what the search minimises
    (:func:`autotune.database.goal.searched`). ``transfer``: searches begin with what was found for near workloads.
    ``least`` candidates are measured where starting took the whole time of the budget. ``study_storage`` keeps the
    studies (None: a journal beside the database), ``callbacks`` hear of each trial, and ``pruner`` says which
    candidates are not measured in the model.
    """

    sampler: SamplerLike = GUIDED
    seed: int = 0
    batch: int = 8
    time_model: bool = True
    objective: str = Objective.LATENCY.value
    transfer: bool = True
    least: int = 0
    study_storage: StorageLike | None = None
    callbacks: Sequence[TrialCallback] = ()
    pruner: BasePruner | None = None


@dataclass
class Job:
    """One job over the parts that it is given; :meth:`run` does all of it."""

    models: Sequence[TunedModel]
    target: Target
    budget: Budget
    database: Database
    measurer: Measurer
    progress: Progress
    options: Options = Options()
    prior: PriorModel | None = None
    head_s: float = 0.0
    """Seconds of the time budget that were used before the job: to read the models, to start."""
    clock: Callable[[], float] = time.monotonic
    """The clock of the time budget, and of what each action of the search takes."""
    policy: type[Policy] = Policy
    """The class of the policy that spends the budget."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The files and options that the models were read from, as JSON values: with them they can be timed again."""
    fleet: OnFleet | None = None
    """The fleet that measures for it, instead of this machine."""
    asked: str = ""
    """A key that is equal for calls that ask for the same job (:func:`autotune.tuning.jobs.models.asked_key`)."""

    def __post_init__(self) -> None:
        self._subjects = subjects_of(self.models)
        self.answers = KeptAnswers(self.database)
        self._distrusted: set[str] = set()
        self._heart: Heartbeat
        self._heard_by: Progress

    @property
    def name(self) -> str:
        """Return the names of its models."""
        return ", ".join(model.name for model in self.models)

    def run(self) -> Report:
        """Tune; Ctrl-C ends the search early and keeps the best so far.

        Jobs on the same machine measure one at a time: of the time budget only what passes before its first
        turn is not counted. Raises DatabaseError and MeasureError; a failing candidate is a row in the database.
        """
        machine = Measuring(f"tune {self.name}", self.progress.preparing)
        if self.fleet is not None:
            return self.run_on(machine)  # each seat has the lock of its own machine while it measures
        with machine:
            return self.run_on(machine)

    def run_on(self, machine: Measuring) -> Report:
        """:meth:`run` on a machine whose lock the caller has, or that needs none."""
        learns = self.options.sampler == GUIDED  # no other sampler asks for what the model has learned
        cost_model = OnlineModel(self.prior, EVERY if learns else math.inf)
        objectives = searched(self.options.objective)
        make = factory(self.options.sampler, cost_model, self.options.batch, len(objectives))
        self._register()
        row = self._claim()
        studies = self._studies(row)
        tasks = [self._task(subject, make, objectives, studies, row.id) for subject in self._subjects]
        self.database.add_layers(row.id, {s.workload.key: s.names for s in self._subjects})
        sites = Sites(tasks, [site for model in self.models for site in model.its_sites])
        policy = self.policy(
            Beliefs(sites, self.options.seed),
            in_model=self._in_model,
            thrifty=self.budget.per_workload is not None,
            least=WORTH if self.budget.limit_s is None else SPENT,
        )
        status = self._status(row, sites, policy)
        self._heart = Heartbeat(self.database, row, status)
        self._heard_by = Several([self._heart, self.progress])
        loop = self._loop_of()(
            tasks=tasks,
            policy=policy,
            measurer=self.measurer,
            store=self.database,
            cost_model=cost_model,
            meter=status.meter,
            describe=self._describer(row),
            measured=partial(self._measured, status),
            left_out=lambda task: self._say(status, status.phase, f"{task.name}: {task.no_reference}"),
            say=lambda text: self._say(status, "search", text),
            chosen=partial(self._choose, status),
            seats=self._seats(status),
            compared=lambda: self._use(status),
            warm_start=self._found_near,
            job=row.id,
            batch=self.options.batch,
            least=self.options.least,
            **({} if self.fleet is None else self.fleet.of_loop),
        )
        self._use(status)
        machine.say = partial(self._wait, status)
        try:
            answers = "the database answers again"
            with self.database.session.telling(lambda text: self._tell(status, text or answers)):
                return self._work(loop, status, machine, studies)
        finally:
            self.progress.close()
            self.measurer.close()

    def _loop_of(self) -> type[TuningLoop]:
        """Return the class of the loop: on a fleet several actions are under way."""
        if self.fleet is None:
            return TuningLoop
        from autotune.tuning.fleet.loop import FleetLoop

        return FleetLoop

    def _work(self, loop: TuningLoop, status: Status, machine: Measuring, studies: Studies) -> Report:
        stopped, reachable, why = True, True, ""
        last = LastTiming(
            database=self.database,
            models=self.models if self.options.time_model else (),
            answers=self.answers,
            measurer=self.measurer,
            say=partial(self._say, status, "whole model"),
            use=partial(self._use, status),
        )
        try:
            loop.take_up()
            status.recalled = sum(len(task.known) for task in loop.tasks)
            least_s = _AS_LOADING * status.meter.session_s
            Ahead(status).look()
            self._heard_by.started(status)
            loop.before_turn = self._before_turn(status, machine, studies, least_s)
            loop.run()
            self._confirm(loop, status, least_s if self.options.time_model else 0.0)
            last.time(status, loop, least_s)
            stopped = False
        except (KeyboardInterrupt, StopTuning) as error:  # the best so far is in the database
            by_whom = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else "a callback"
            why = f"by {str(error) or by_whom}"
        except DatabaseError:
            reachable = False  # whoever continues the job finds that its owner is gone
            raise
        except Exception as error:
            why = f"by an error: {first_line(error)}"
            raise
        finally:
            if reachable:
                self._hear_of_nodes(status)
                self._heart.end(JobRow.STOPPED if stopped else JobRow.DONE, why)
        report = self._report(status, stopped, last)
        self._heart.finished(report)
        self.progress.finished(report)
        return report

    def _register(self) -> None:
        self.database.add_target(self.target)
        compared = [
            site.workload for model in self.models for site in model.sites if len(site.options) > 1
        ]  # a chain may be no subject
        workloads = dict.fromkeys([*compared, *(subject.workload for subject in self._subjects)])
        self.database.add_workload(*map(WorkloadRow.of, workloads))
        self.database.add_spaces(
            (one.space.key, one.workload.key, json.dumps(one.space.to_json(), sort_keys=True))
            for one in self._subjects
        )

    @property
    def _fingerprint(self) -> str:
        """Return what is equal for jobs of the same workloads, target, sampler, seed and objective."""
        works = sorted(model.identity for model in self.models)
        work = works[0] if len(works) == 1 else works
        identity = [work, self.target.key, name_of(self.options.sampler), self.options.seed]
        identity += [] if self.options.objective == Objective.LATENCY else [self.options.objective]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def _claim(self) -> JobRow:
        """Continue an unfinished job of the same fingerprint, or begin one."""
        now = time.time()
        fresh = JobRow(
            id=uuid.uuid4().hex[:12],
            fingerprint=self._fingerprint,
            model=self.name,
            target_key=self.target.key,
            options=json.dumps(
                {
                    "sampler": name_of(self.options.sampler),
                    "seed": self.options.seed,
                    "objective": self.options.objective,
                    SOURCE: self.source,
                    ASKED: self.asked,
                }
            ),
            state=JobRow.RUNNING,
            owner=owner(),
            elapsed_s=0.0,
            created=now,
            updated=now,
        )
        return self.database.claim_job(fresh, alive)

    def _studies(self, row: JobRow) -> Studies:
        """Return the studies of a job that was claimed, in the storage that is meant."""
        options, name = self.options, study_name([model.name for model in self.models], row.id)
        where = options.study_storage
        if where is None:
            home = settings.current().home_path() / "studies"
            where = default_storage(self.database.where, name, home)
        given = options.sampler if isinstance(options.sampler, Study) else None
        layers = [subject.names[0] for subject in self._subjects]
        metrics = [_METRICS[objective] for objective in searched(options.objective)]
        return Studies(where, name, layers, metrics, options.callbacks, given)

    def _task(
        self,
        subject: Subject,
        make: SamplerFactory,
        objectives: Sequence[Objective],
        studies: Studies,
        job: str,
    ) -> Task:
        options = self.options
        about = {
            "model": self.name,
            "target": self.target.name,
            "dispatches": list(subject.names),
            "kind": subject.workload.kind,
            "workload": subject.workload.key,
            "roofline_us": subject.floor_ns / 1e3,
        }
        record = studies.record(subject.names[0], about)
        given = options.sampler if isinstance(options.sampler, Study) else None
        pruner = options.pruner or (given.pruner if given is not None else None)
        search = Search(subject.space, make, options.seed, objectives, pruner=pruner, record=record)
        return Task(
            subject.names,
            subject.workload,
            subject.space,
            search,
            subject.default,
            options.seed,
            self.budget.per_workload,
            subject.floor_ns,
            subject.expected_ns,
            alone=not self._in_model,
            job=job,
        )

    def _found_near(self, task: Task) -> list[Config]:
        """Return the candidates with which a task's search begins; less those with which earlier sessions
        have begun it."""
        left = TRIALS - task.tried_near
        if left <= 0 or not self.options.transfer:
            return []
        return proposals(task.space, task.default, self.database, task.search, left)

    def _status(self, row: JobRow, sites: Sites, policy: Policy) -> Status:
        done = sum(self.database.outcomes(job=row.id).values())
        meter = Meter(self.budget, done, row.elapsed_s, self.clock, self.head_s)
        return Status(
            models={model.name: self._model_status(model, sites.of(model.name)) for model in self.models},
            database=self.database.where,
            job=row.id,
            target=self.target.name,
            sites=sites,
            meter=meter,
            policy=policy,
            continued=done > 0,
            nodes=list if self.fleet is None else self.fleet.nodes,
        )

    def _model_status(self, model: TunedModel, sites: Sites) -> ModelStatus:
        rows = self._rows(sites, model)
        return ModelStatus(model.name, sites, lambda: rows.rows(rows.rankings()))

    @property
    def _in_model(self) -> bool:
        """Return whether candidates are measured in models."""
        return any(model.whole is not None for model in self.models)

    def _after_s(self, status: Status, least_s: float) -> float:
        """Return the time that follows the search: to compare what is used, and to time the models, again in fewer
        processes where another plan is used by that."""
        processes = PROCESSES if self.options.time_model else 0
        comparing = timing = 0.0
        for model in self.models:
            if model.whole is not None:
                loading = model.whole.nbytes / _LOADED_BYTES_PER_S
                seconds = partial(status.policy.pace.seconds, ActionKind.SCHEDULES, model=model.name)
                comparing += seconds(0, TOP + 1, COMPARED_IN) + loading
                timing += seconds(0, 2, processes) + 0.2 * loading * processes
        return comparing + (1 + FEWER) * max(timing, least_s) if comparing else 0.0

    def _describer(self, row: JobRow) -> Callable[[Run], Run]:
        host, known = platform.node(), versions(self.target)
        # Steady within a session: the system's clock may be set while a job runs.
        began = time.time() - time.monotonic()
        return lambda run: replace(
            run, host=run.host or host, versions=known, job=row.id, created=began + time.monotonic()
        )

    def _measured(self, status: Status, task: Task, run: Run) -> None:
        status.count(run)
        self._heard_by.measured(status, task, run)

    def _before_turn(
        self, status: Status, machine: Measuring, studies: Studies, least_s: float
    ) -> Callable[[], None]:
        """Let other jobs of the machine have a turn; keep time for what follows the search, which takes at least so
        many seconds."""
        most, ahead = _MOST_KEPT * status.meter.left_s, Ahead(status)

        def before_turn() -> None:
            if studies.stopped:
                raise StopTuning
            machine.offer()
            self._hear_of_nodes(status)
            status.after_s = min(most, self._after_s(status, least_s))
            status.meter.reserve_s = 0.0 if self.budget.limit_s is None else status.after_s
            if ahead.look():
                self._say(status, "search", f"ends: {status.meter.enough}")

        return before_turn

    def _seats(self, status: Status) -> dict[str, Seat]:
        """Return the models that candidates are measured and compared in."""
        history = status.policy.beliefs.history
        compared = [site.workload.key for site in status.sites.several]
        history |= self.database.comparison_histories(compared, self.target.key, OPTION)
        seats = dict[str, Seat]()
        of_reader = {} if self.fleet is None else self.fleet.of_reader
        for model in self.models:
            if model.whole is not None:
                sites = status.sites.of(model.name)
                comparing = Comparing(
                    database=self.database,
                    model=model.whole,
                    job=status.job,
                    say=partial(self._say_of, status, model),
                    goals=goals_of(self.options.objective),
                    sites=sites,
                    measurer=self.measurer,
                    answers=self.answers,
                    history=history,
                    recent=status.policy.beliefs.recent,
                )
                seats[model.name] = Seat(InModelReader(sites, model.whole, **of_reader), comparing)
        return seats

    def _rows(self, sites: Sites, model: TunedModel) -> ModelRows:
        return ModelRows(model, sites, self.answers, self.target)

    def _use(self, status: Status) -> None:
        """Have the policy know what a compilation would use now, and the display what is confirmed."""
        for model in self.models:
            if model.whole is not None:
                rows = self._rows(status.sites.of(model.name), model)
                rankings = rows.rankings()
                for site in rows.sites.several:
                    ranking = rankings.get(site.workload.key)
                    used = site.default if ranking is None else ranking.chosen
                    status.sites.used[site.workload.key] = used if used in site.options else site.default
                status.models[model.name].compared()
        self._heart.interim(lambda: self._report(status, True))

    def _confirm(self, loop: TuningLoop, status: Status, kept_s: float) -> None:
        """Compare what is used and never was, as long as more than so many seconds are left."""

        def late() -> bool:
            return status.meter.left_s <= kept_s

        status.searched_s = status.meter.elapsed_s
        if loop.seats and status.meter.left_s > 0:
            loop.check(status.policy.beliefs.in_use)
        for seat in loop.seats.values():
            seat.comparing.say("what is used and was never compared in the model")
            seat.comparing.compare_schedules(seat.comparing.unconfirmed(), late)
            self._use(status)

    def _say(self, status: Status, phase: str, note: str) -> None:
        status.phase, status.note = phase, note
        self._heard_by.phase(status)

    def _say_of(self, status: Status, model: TunedModel, note: str) -> None:
        """Say what is compared in a model."""
        self._say(status, "compare", note if len(self.models) == 1 else f"{model.name}: {note}")

    def _choose(self, status: Status, action: Action) -> None:
        status.phase, status.note, status.policy.last = "search", f"next: {action}", action
        self._heard_by.chosen(status)

    def _hear_of_nodes(self, status: Status) -> None:
        """Say which nodes have joined, were lost or are left out since the last time."""
        if self.fleet is None:
            return
        for text in self.fleet.news():
            self._say(status, status.phase, text)
        for name, reason in self.fleet.distrusted():
            if name not in self._distrusted:
                self._distrusted.add(name)
                self._distrust(status, name, reason)

    def _distrust(self, status: Status, name: str, reason: str) -> None:
        """Leave out what a node has measured that its peers contradict."""
        count = self.database.distrust(status.job, name, reason)
        for task in status.tasks:
            inside = self.database.readings(task.key), self.database.compared_schedules(task.key)
            task.recall((), *inside, unchecked=True)
            task.distrust(name, reason)
        self._say(status, status.phase, f"{counted(count, 'run')} of {name} alone: not used any more")

    def _wait(self, status: Status, text: str) -> None:
        """Say for which other job of the machine this one waits; the phase stays what it is."""
        before, status.note, status.waiting = status.note, text, True
        self._heard_by.phase(status)
        status.note, status.waiting = before, False

    def _tell(self, status: Status, text: str) -> None:
        """Say that the database does not answer, or does again: to displays, not to the database."""
        before, status.note = status.note, text
        self.progress.phase(status)
        status.note = before

    def _why_untimed(self, model: TunedModel, stopped: bool, last: LastTiming | None) -> str:
        """Return why a whole model was not timed, or that it is not yet."""
        if model.whole is None:
            return "its candidates are not measured in a model"
        if not self.options.time_model:
            return "that was not asked for"
        otherwise = "the job did not come to its end" if stopped else "no time was left for that"
        return otherwise if last is None else last.untimed_by.get(model.name, otherwise)

    def _report(self, status: Status, stopped: bool, last: LastTiming | None = None) -> Report:
        def part(model: TunedModel) -> ModelReport:
            gain = None if last is None else last.gains.get(model.name)
            why = "" if gain is not None else self._why_untimed(model, stopped, last)
            return self._rows(status.sites.of(model.name), model).report(gain, why)

        return Report(
            models=tuple(map(part, self.models)),
            target=status.target,
            database=status.database,
            job=status.job,
            stopped=stopped,
            trials=status.meter.trials,
            session_trials=status.session_trials,
            near_trials=status.near_trials,
            seconds=status.meter.session_s,
            trials_per_second=status.trials_per_second,
            outcomes=dict(status.outcomes),
            failures=dict(status.failures),
            actions=dict(status.policy.actions),
            left="" if status.policy.last is None else str(status.policy.last),
            enough=status.meter.enough,
            left_out={task.name: task.no_reference for task in status.tasks if task.no_reference},
            crashes={task.name: task.crashes for task in status.tasks if task.crashes},
        )


def versions(target: Target) -> str:
    """Return versions of what produces and times code, and what was measured of the machine, as JSON."""
    kept = calibrated.find(target)
    measured = {} if kept is None else {"machine": {k: float(f"{v:.4g}") for k, v in kept.trusted.items()}}
    return json.dumps({**versions_of(("autotune", "llvmlite", "numpy")), **measured})


__all__ = ["Job", "Options", "versions"]
