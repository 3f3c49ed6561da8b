"""A tuning job: starts or continues, searches, compares, reports; whatever stops it, nothing is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from optuna.study import Study

from autotune import settings
from autotune.compiler.plan import OPTION, with_options
from autotune.compiler.planned import TRANSFERRED, evidence_in
from autotune.database import Database
from autotune.database.goal import Objective, goals_of, searched
from autotune.database.query import Hit, Miss
from autotune.database.records import JobRow, Run, WorkloadRow
from autotune.errors import DatabaseError
from autotune.machine_lock import Measuring
from autotune.passes.options import Option
from autotune.schedule.knob import Config
from autotune.target import Target
from autotune.tuning.compare.interleaved import PROCESSES as COMPARED_IN
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.compare.step import Comparing, code_in_use
from autotune.tuning.jobs.budget import Budget, Meter
from autotune.tuning.jobs.events import StopTuning
from autotune.tuning.jobs.loop import TuningLoop
from autotune.tuning.jobs.policy import SPENT, TOP, WORTH, Action, ActionKind, Policy
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.gain import PROCESSES, Gain
from autotune.tuning.measure.inside import InModelReader
from autotune.tuning.measure.interface import Measurer
from autotune.tuning.measure.whole_model import WholeModel
from autotune.tuning.report.result import DispatchRow, Report
from autotune.tuning.report.status import Progress, Status
from autotune.tuning.search.online_model import OnlineModel
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

    from autotune.compiler.plan import Ranking
    from autotune.compiler.sites.decision import Decision
    from autotune.graph.program import AnyWorkload
    from autotune.graph.region import Workload
    from cost_models.ranker import Ranker
    from search_spaces.space import Space

_HEARTBEAT_S = 2.0
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
_ALL = 0.95
"""The part of the time left after the search for all but the report."""
_MOST_KEPT = 0.4
"""The most of the time that is left at the start that is kept back from the search."""


@dataclass(frozen=True)
class Subject:
    """The subject of tuning: a workload, the dispatches that have it, and its default schedule."""

    names: tuple[str, ...]
    workload: AnyWorkload
    space: Space
    default: Config
    floor_ns: float = 0.0
    """The latency that no schedule undercuts."""

    @property
    def site(self) -> Site:
        """The dispatches as a site at which there is nothing to choose."""
        return Site(self.names, self.workload, (Option(cast("Workload", self.workload)),))


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

    model: str
    subjects: Sequence[Subject]
    target: Target
    budget: Budget
    database: Database
    measurer: Measurer
    progress: Progress
    options: Options = Options()
    prior: Ranker | None = None
    sites: Sequence[Site] = ()
    """Those of the model; without any, each subject is one without options."""
    whole: WholeModel | None = None
    """The model that candidates are compared in; without it nothing is compared."""
    origins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The model's nodes that each dispatch comes from."""
    decided: Sequence[Decision] = ()
    """Decisions at sites of the whole model, made before its workloads were."""
    head_s: float = 0.0
    """Seconds of the time budget that were used before the job: to read the model, to start."""

    def run(self) -> Report:
        """Tune; Ctrl-C ends the search early and keeps the best so far.

        Jobs on the same machine measure one at a time: of the time budget only what passes before its first
        turn is not counted. Raises DatabaseError and MeasureError; a failing candidate is a row in the database.
        """
        with Measuring(f"tune {self.model}", self.progress.preparing) as machine:
            return self._run(machine)

    def _run(self, machine: Measuring) -> Report:
        cost_model = OnlineModel(self.prior)
        objectives = searched(self.options.objective)
        make = factory(self.options.sampler, cost_model, self.options.batch, len(objectives))
        self._register()
        row = self._claim()
        studies = self._studies(row)
        tasks = [self._task(subject, make, objectives, studies, row.id) for subject in self.subjects]
        self.database.add_layers(row.id, {s.workload.key: s.names for s in self.subjects})
        sites = Sites(tasks, self.sites or [subject.site for subject in self.subjects])
        policy = Policy(
            sites,
            self.options.seed,
            in_model=self.whole is not None,
            thrifty=self.budget.per_workload is not None,
            least=WORTH if self.budget.limit_s is None else SPENT,
        )
        status = self._status(row, sites, policy)
        loop = TuningLoop(
            tasks=tasks,
            policy=policy,
            measurer=self.measurer,
            store=self.database,
            cost_model=cost_model,
            meter=status.meter,
            describe=self._describer(row),
            measured=self._listener(row, status),
            left_out=lambda task: self._say(status, status.phase, f"{task.name}: {task.no_reference}"),
            say=lambda text: self._say(status, "search", text),
            chosen=partial(self._choose, status),
            reader=None if self.whole is None else InModelReader(sites, self.whole),
            comparing=self._comparing(status),
            compared=lambda: self._use(status),
            warm_start=self._found_near,
            job=row.id,
            batch=self.options.batch,
            least=self.options.least,
        )
        self._use(status)
        machine.say = partial(self._wait, status)
        try:
            answers = "the database answers again"
            with self.database.session.telling(lambda text: self._wait(status, text or answers)):
                return self._work(loop, status, row, machine, studies)
        finally:
            self.progress.close()
            self.measurer.close()

    def _work(
        self, loop: TuningLoop, status: Status, row: JobRow, machine: Measuring, studies: Studies
    ) -> Report:
        stopped, whole, reachable = True, None, True
        try:
            loop.take_up()
            status.recalled = sum(len(task.known) for task in loop.tasks)
            self.progress.started(status)
            least_s = _AS_LOADING * status.meter.session_s
            loop.before_turn = self._before_turn(status, machine, studies, least_s)
            loop.run()
            self._confirm(loop, status, least_s if self.options.time_model else 0.0)
            whole = self._whole_model(status, least_s)
            stopped = False
        except (KeyboardInterrupt, StopTuning):
            pass  # the best so far is in the database; what follows only reads it
        except DatabaseError:
            reachable = False  # whoever continues the job finds that its owner is gone
            raise
        finally:
            if reachable:
                state = JobRow.STOPPED if stopped else JobRow.DONE
                self.database.update_job(replace(row, state=state, elapsed_s=status.meter.elapsed_s))
        report = self._report(status, stopped, whole)
        self.progress.finished(report)
        return report

    def _register(self) -> None:
        self.database.add_target(self.target)
        compared = [
            site.workload for site in self.sites if len(site.options) > 1
        ]  # a chain may be no subject
        for w in dict.fromkeys([*compared, *(subject.workload for subject in self.subjects)]):
            self.database.add_workload(WorkloadRow.of(w))
        for subject in self.subjects:
            text = json.dumps(subject.space.to_json(), sort_keys=True)
            self.database.add_space(subject.space.key, subject.workload.key, text)

    def _claim(self) -> JobRow:
        """Continue an unfinished job of the same workloads, target, sampler and seed, or begin one."""
        now = time.time()
        work = sorted((s.workload.key, s.space.key, len(s.names)) for s in self.subjects)
        identity = [work, self.target.key, name_of(self.options.sampler), self.options.seed]
        identity += [] if self.options.objective == Objective.LATENCY else [self.options.objective]
        fresh = JobRow(
            id=uuid.uuid4().hex[:12],
            fingerprint=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
            model=self.model,
            target_key=self.target.key,
            options=json.dumps(
                {
                    "sampler": name_of(self.options.sampler),
                    "seed": self.options.seed,
                    "objective": self.options.objective,
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
        options, name = self.options, study_name(self.model, row.id)
        where = options.study_storage
        if where is None:
            home = settings.current().home_path() / "studies"
            where = default_storage(self.database.where, name, home)
        given = options.sampler if isinstance(options.sampler, Study) else None
        layers = [subject.names[0] for subject in self.subjects]
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
            "model": self.model,
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
            alone=self.whole is None,
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
        meter = Meter(self.budget, done, row.elapsed_s, head_s=self.head_s)
        return Status(
            model=self.model,
            database=self.database.where,
            job=row.id,
            target=self.target.name,
            sites=sites,
            meter=meter,
            policy=policy,
            continued=done > 0,
        )

    def _reserve_s(self, status: Status, least_s: float) -> float:
        """Return the time to keep for what follows the search: to compare what is used, and to time the whole model."""
        if self.budget.limit_s is None or self.whole is None:
            return 0.0
        loading = self.whole.nbytes / _LOADED_BYTES_PER_S
        policy, processes = status.policy, PROCESSES if self.options.time_model else 0
        comparing = policy.seconds(ActionKind.SCHEDULES, 0, TOP + 1, COMPARED_IN) + loading
        timing = policy.seconds(ActionKind.SCHEDULES, 0, 2, processes) + 0.2 * loading * processes
        return comparing + max(timing, least_s)

    def _describer(self, row: JobRow) -> Callable[[Run], Run]:
        host, known = platform.node(), versions(self.target)
        # Steady within a session: the system's clock may be set while a job runs.
        began = time.time() - time.monotonic()
        return lambda run: replace(
            run, host=host, versions=known, job=row.id, created=began + time.monotonic()
        )

    def _listener(self, row: JobRow, status: Status) -> Callable[[Task, Run], None]:
        said = time.monotonic()

        def measured(task: Task, run: Run) -> None:
            nonlocal said
            status.count(run)
            self.progress.measured(status, task, run)
            if time.monotonic() - said > _HEARTBEAT_S:
                said = time.monotonic()
                self.database.update_job(replace(row, elapsed_s=status.meter.elapsed_s))

        return measured

    def _before_turn(
        self, status: Status, machine: Measuring, studies: Studies, least_s: float
    ) -> Callable[[], None]:
        """Let other jobs of the machine have a turn; keep time for what follows the search, which takes at least so
        many seconds."""
        most = _MOST_KEPT * status.meter.left_s

        def before_turn() -> None:
            if studies.stopped:
                raise StopTuning
            machine.offer()
            usual = self._reserve_s(status, least_s)
            status.meter.reserve_s = 0.0 if self.budget.limit_s is None else min(most, usual)

        return before_turn

    def _comparing(self, status: Status) -> Comparing | None:
        if self.whole is None:
            return None
        history = status.policy.history
        for site in status.sites.several:
            rows = self.database.comparison_history(site.workload.key, self.target.key, OPTION)
            history |= {site.workload.key: rows} if rows else {}
        return Comparing(
            database=self.database,
            model=self.whole,
            job=status.job,
            say=partial(self._say, status, "compare"),
            goals=goals_of(self.options.objective),
            sites=status.sites,
            measurer=self.measurer,
            history=history,
        )

    def _use(self, status: Status) -> None:
        """Have the policy know what a compilation would use now, and the display what is confirmed."""
        if self.whole is None:
            return
        rankings = self.whole.rankings()
        for site in status.sites.several:
            ranking = rankings.get(site.workload.key)
            used = site.default if ranking is None else ranking.chosen
            status.sites.used[site.workload.key] = used if used in site.options else site.default
        status.confirm(self._rows(status.sites, rankings))

    def _confirm(self, loop: TuningLoop, status: Status, kept_s: float) -> None:
        """Compare what is used and never was, as long as more than so many seconds are left."""
        if loop.comparing is None:
            return

        def late() -> bool:
            return status.meter.left_s <= kept_s

        if status.meter.left_s > 0:
            loop.check(status.policy.weights())
        self._say(status, "compare", "what is used and was never compared in the model")
        loop.comparing.compare_schedules(loop.comparing.unconfirmed(), late)
        self._use(status)

    def _say(self, status: Status, phase: str, note: str) -> None:
        status.phase, status.note = phase, note
        self.progress.phase(status)

    def _choose(self, status: Status, action: Action) -> None:
        status.phase, status.note, status.policy.last = "search", f"next: {action}", action
        self.progress.chosen(status)

    def _wait(self, status: Status, text: str) -> None:
        """Say what is waited for; the phase stays what it is."""
        before = status.note
        self._say(status, status.phase, text)
        status.note = before

    def _whole_model(self, status: Status, least_s: float) -> Gain | None:
        if self.whole is None or not self.options.time_model:
            return None
        if status.meter.left_s < least_s:
            self._say(status, "whole model", "not timed: the budget is over before that")
            return None
        out_of_time = status.meter.over(_ALL)
        self._say(
            status, "whole model", f"untuned and tuned, interleaved in up to {PROCESSES} fresh processes"
        )
        tuned = code_in_use(status.tasks, self.database, self.measurer)
        self.measurer.close()  # nothing else may run while the model is timed
        untuned = {task.workload.key: task.default_code for task in status.tasks if task.default_code}
        return self.whole.gain(untuned, tuned, out_of_time)

    def _report(self, status: Status, stopped: bool, gain: Gain | None) -> Report:
        rankings = {} if self.whole is None else self.whole.rankings()
        return Report(
            model=self.model,
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
            dispatches=self._rows(status.sites, rankings),
            decisions=(*map(str, self.decided), *self._decisions(status.sites, rankings)),
            actions=dict(status.policy.actions),
            left="" if status.policy.last is None else str(status.policy.last),
            left_out={task.name: task.no_reference for task in status.tasks if task.no_reference},
            crashes={task.name: task.crashes for task in status.tasks if task.crashes},
            gain=gain,
        )

    def _rows(self, sites: Sites, rankings: Mapping[str, Ranking]) -> tuple[DispatchRow, ...]:
        """Return the tasks that the model needs now."""
        uses = sites.uses({key: ranking.chosen for key, ranking in rankings.items()})
        tasks = [(task, uses[key]) for key, task in sites.task_of.items() if key in uses]
        return tuple(self._row(task, count, rankings) for task, count in tasks)

    def _decisions(self, sites: Sites, rankings: Mapping[str, Ranking]) -> Iterator[str]:
        """Yield a line for the options of each workload with several: latencies, and which of them failed."""
        for site in sites.several:
            rows = self.database.comparison_history(site.workload.key, self.target.key, OPTION)
            if rows and site.workload.key in rankings:
                last = {row.name: row for row in rows}
                failed = [f"{row.name}: {row.message}" for row in last.values() if row.message]
                yield f"{site.names[0]}: {'; '.join([str(rankings[site.workload.key]), *failed])}"

    def _row(self, task: Task, count: int, rankings: Mapping[str, Ranking]) -> DispatchRow:
        key = task.key
        answer = self.database.lookup(key.workload, key.target, key.space)
        before, after = answer.latencies
        evidence = evidence_in(task.space, answer.evidence)
        if isinstance(answer, Hit) and task.may_be_stale(answer.best):
            evidence = TRANSFERRED  # not known to be of this version's code
        return DispatchRow(
            task.names[0],
            task.workload.kind,
            key.workload,
            count,
            before,
            after,
            len(task.known),
            with_options(key.workload, evidence, rankings),
            self._nodes(task),
            "" if isinstance(answer, Miss) else answer.best.origin.value,
        )

    def _nodes(self, task: Task) -> tuple[str, ...]:
        """Return the model's nodes that a task's dispatches come from; steps are named after their dispatch."""
        dispatches = dict.fromkeys(name.partition("/")[0] for name in task.names)
        return tuple(dict.fromkeys(node for name in dispatches for node in self.origins.get(name, ())))


def owner() -> str:
    """Return a name for this process: host, process id and start time, as the system uses process ids again."""
    import psutil

    return f"{platform.node()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def alive(name: str) -> bool:
    """Return whether the process that :func:`owner` named still runs; one on another host counts as running."""
    import psutil

    host, pid, started = name.rsplit(":", 2)
    if host != platform.node():
        return True
    with contextlib.suppress(psutil.NoSuchProcess):
        return f"{psutil.Process(int(pid)).create_time():.2f}" == started
    return False


def versions(target: Target) -> str:
    """Return versions of what produces and times code, and what was measured of the machine, as JSON."""
    kept = calibrated.find(target)
    measured = {} if kept is None else {"machine": {k: float(f"{v:.4g}") for k, v in kept.trusted.items()}}
    return json.dumps({**versions_of(("autotune", "llvmlite", "numpy")), **measured})


__all__ = ["Job", "Options", "Subject", "alive", "owner", "versions"]
