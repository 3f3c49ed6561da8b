"""The tuning loop: the policy says what comes next, and the loop builds, checks, measures, compares and stores it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from autotune.database.records import Comparison, Key, Origin, Reading, Run
from autotune.errors import AutotuneError, NoReferenceError
from autotune.schedule.knob import Config, config_to_json
from autotune.suggest import counted
from autotune.tuning.compare.step import Comparing
from autotune.tuning.jobs.actions import BUILDING, Action, ActionKind
from autotune.tuning.jobs.budget import Meter
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.suspicion import Suspicion
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.inside import InModelReader
from autotune.tuning.measure.interface import Built, Measurer
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.study import Proposal
from autotune.workers.cores import CORES


@dataclass(frozen=True)
class Seat:
    """A model of the job: candidates are measured in it by the ``reader``, options and schedules are compared."""

    reader: InModelReader
    comparing: Comparing


class RunStore(Protocol):
    """The store of runs; the database is one."""

    def record_all(self, runs: Sequence[Run]) -> list[bool]:
        """Keep runs, all at once; False for each whose schedule was kept before."""

    def records(self, *, workload: str, target: str, space: str, after: int) -> list[Run]:
        """Return the runs of a key that were stored after the row ``after``."""

    def read_inside(self, key: Key, readings: Sequence[Reading], inside: str, job: str) -> None:
        """Keep what runs of a key took inside a model."""

    def crashed_inside(self, key: Key, traces: Mapping[str, str], inside: str, job: str) -> None:
        """Keep that runs of a key ended their process inside a model, and why."""

    def readings(self, key: Key) -> list[Reading]:
        """Return all that was kept of a key."""

    def compared_schedules(self, key: Key) -> list[Comparison]:
        """Return the candidates of all comparisons of a key's schedules."""


TOGETHER = 16
"""The most candidates of a workload that wait to be measured in the model: a version each."""
OUTDATED = 8
"""So many runs of a workload that are stale are measured again before anything else, the fastest of them."""


@dataclass(frozen=True)
class Turn:
    """One candidate on its way through the loop; without a proposal an earlier session has checked it."""

    task: Task
    config: Config
    proposal: Proposal | None
    origin: Origin

    @staticmethod
    def of(task: Task, proposal: Proposal, origin: Origin) -> Turn:
        """Return the proposals of a search."""
        return Turn(task, proposal.config, proposal, origin)


@dataclass(frozen=True)
class Taken:
    """A candidate that was measured; ``same_code`` is the trace of another one with its machine code, whose outcome it
    has."""

    turn: Turn
    proposal: Proposal
    built: Built
    measurement: Measurement
    same_code: str | None


@dataclass(frozen=True)
class Batch:
    """The candidates of an action that are being built."""

    action: Action
    turns: Sequence[Turn]
    built: Future[list[Built]]


@dataclass
class TuningLoop:
    """The parts of a job. ``describe`` completes a run's provenance; ``measured`` hears of each run, ``left_out`` of
    each task whose candidates cannot be checked, and ``before_turn`` is called before each turn."""

    tasks: Sequence[Task]
    policy: Policy
    measurer: Measurer
    store: RunStore
    cost_model: OnlineModel
    meter: Meter
    describe: Callable[[Run], Run]
    measured: Callable[[Task, Run], None]
    left_out: Callable[[Task], None] = lambda task: None
    before_turn: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda text: None
    chosen: Callable[[Action], None] = lambda action: None
    """Called with each action before it is done."""
    seats: Mapping[str, Seat] = field(default_factory=dict)
    """The models by their names; without any, candidates count by what they take alone."""
    compared: Callable[[], None] = lambda: None
    """Called after each comparison."""
    warm_start: Callable[[Task], Sequence[Config]] = lambda task: ()
    """A function to the schedules of workloads near that of a task: asked once, when it gets its first turn."""
    expect: Callable[[Sequence[Built], Sequence[float]], None] = lambda built, default_ns: None
    """Called with new candidates, and with what their defaults take alone, before they are measured one by one."""
    quiet: Callable[[], AbstractContextManager[None]] = CORES.measure
    """In its context candidates are measured: nothing is built here meanwhile."""
    job: str = ""
    batch: int = 8
    together: int = 1
    """So many candidates are stored at once, when the last of them is measured."""
    least: int = 0
    """So many candidates are measured where starting took the whole time of the budget."""
    waiting: list[tuple[Turn, Built]] = field(default_factory=list)
    """Those that are to be measured in the model."""
    _dry: set[str] = field(default_factory=set)
    """Workloads whose searches have proposed nothing more."""
    suspicion: Suspicion = field(init=False)

    def run(self) -> None:
        """Do what the policy says until the budget is spent or nothing is left that is worth it.

        Raises MeasureError when it is the machine that fails, and not the candidates.
        """
        proven = any(task.best_ns < float("inf") for task in self.tasks)
        self.suspicion = Suspicion(len(self.policy.untried), proven)
        builder = ThreadPoolExecutor(1, "autotune-batch")
        try:
            self._turns(builder)
        except BaseException as error:  # Ctrl-C, or whatever a user's callback raises
            if self.suspicion.worked and not isinstance(error, AutotuneError):
                self._store(self.suspicion.rest())
            raise
        finally:
            builder.shutdown(wait=False, cancel_futures=True)  # a build that goes on ends with the measurer
        self._store(self.suspicion.rest())

    def _turns(self, builder: Executor) -> None:
        """Do one action after the other; beside each the builders work at the next candidates."""
        ahead: Batch | None = None
        while True:
            self.before_turn()
            action, mine = self._next(), None
            if ahead is not None and (action is None or action.work in BUILDING):
                action, mine, ahead = ahead.action, ahead, None
            if action is None:
                return
            begin = self.meter.session_s
            self.chosen(action)
            if action.work in BUILDING and mine is None:
                mine = self._batch(builder, action)
                if mine is None:
                    self._dry |= {task.workload.key for task in action.tasks if not task.untried}
            ahead = ahead or self._ahead(builder, [] if mine is None else mine.turns)
            self._do(action, mine)
            self.policy.took(action, self.meter.session_s - begin)

    def _do(self, action: Action, batch: Batch | None) -> None:
        if action.work is ActionKind.MEASURE:
            self.read(action.model, self.claim(action.model))
        elif action.work in (ActionKind.OPTIONS, ActionKind.SCHEDULES):
            self._compare(action)
        elif batch is not None and not self._is_over:
            built = batch.built.result()
            # Once for all of them: a core is idle while the last build in progress is waited for.
            with self.quiet():
                self._take_all(batch.turns, built)

    def _take_all(self, turns: Sequence[Turn], built: Sequence[Built]) -> None:
        """Measure candidates until the budget is spent; those that are stored together are in one transaction."""
        self._expect(turns, built)
        several = [*zip(turns, built, strict=True)]
        for first in range(0, len(several), self.together):
            if self._is_over:
                return
            self.take(several[first : first + self.together])

    def _expect(self, turns: Sequence[Turn], built: Sequence[Built]) -> None:
        """Tell which candidates will be measured, as far as that is known before the first of them is."""
        new = {
            one.code_key: (one, turn.task.default_alone_ns)
            for turn, one in zip(reversed(turns), reversed(built), strict=True)  # of the same code the first
            if turn.proposal is not None
            and one.trace_key not in turn.task.known
            and one.code_key not in turn.task.codes
            and turn.task.refused(one, turn.origin) is None
        }
        if new:
            self.expect(*zip(*reversed(new.values()), strict=True))

    def _batch(self, builder: Executor, action: Action, building: Sequence[Turn] = ()) -> Batch | None:
        """Have the candidates of an action built, if there are any."""
        turns = self.ask(action, building)
        if not turns:
            return None
        candidates = [turn.task.candidate(turn.config) for turn in turns]
        return Batch(action, turns, builder.submit(self.measurer.build, candidates))

    def _ahead(self, builder: Executor, building: Sequence[Turn]) -> Batch | None:
        """Have the candidates built that come after those that are ``building``.

        None where they would be others if what comes before them was known: while nothing of their workloads has
        worked, or where candidates count by their isolated latency.
        """
        searched = [turn.task for turn in building if turn.origin is not Origin.DEFAULT]
        if not self.seats or any(math.isinf(task.best_ns) for task in searched):
            return None
        limits = self._limits(building)
        action = None if limits is None else self.policy.next_to_build(*limits)
        return None if action is None else self._batch(builder, action, building)

    def _next(self) -> Action | None:
        """Return the next action."""
        limits = self._limits()
        return None if limits is None else self.policy.next(*limits)

    def _limits(
        self, building: Sequence[Turn] = ()
    ) -> tuple[Mapping[str, int], Set[str], float, float] | None:
        """Return what waits to be measured, the workloads that get no more candidates, and the seconds and trials that
        are left when what is ``building`` is done; None if time is up."""
        waiting = Counter(turn.task.workload.key for turn in (*building, *(turn for turn, _ in self.waiting)))
        seconds_left = math.inf if self._few else self.meter.seconds_left
        if seconds_left <= 0:
            return None
        first = {turn.task.workload.key for turn in building if turn.origin is Origin.DEFAULT}
        full = {key for key, number in waiting.items() if number >= self._most}
        return waiting, self._dry | first | full, seconds_left, self.meter.trials_left - len(building)

    @property
    def _few(self) -> bool:
        return sum(len(task.known) for task in self.tasks) < self.least

    @property
    def _is_over(self) -> bool:
        return self.meter.spent and not self._few

    def _compare(self, action: Action) -> None:
        """Compare options or schedules; what could not be measured is not compared again in this job."""
        comparing = self.seats[action.model].comparing
        self.check(action.workloads)  # the rest is what a compilation makes of it, whatever its code
        before = self.policy.measured(action)
        late = self.meter.past()
        if action.work is ActionKind.OPTIONS:
            comparing.compare_options(action.options, late)
        else:
            comparing.compare_schedules(action.schedules, late)
        self.policy.give_up(action, before)
        self.compared()

    def take(self, several: Sequence[tuple[Turn, Built]]) -> None:
        """Check candidates and store them, all at once; tell the searches of those that are not to be measured in the
        model first.

        Machine code that another schedule has given is not read again: the least of many readings would be another.
        """
        first, again = dict[str, tuple[Turn, Built]](), list[tuple[Turn, Built]]()
        for turn, built in several:
            key = built.code_key or built.trace_key
            if first.setdefault(key, (turn, built))[1] is not built:
                again.append((turn, built))
        measured = [found for entry in first.values() if (found := self._measured(*entry)) is not None]
        for one, run in zip(measured, self.record(measured), strict=True):
            self._heed(one, run)
        if again:
            self.take(again)

    def _measured(self, turn: Turn, built: Built) -> Taken | None:
        """Return the outcome of a candidate; None where it needs none, or there is nothing to check it against."""
        task, proposal = turn.task, turn.proposal
        if proposal is not None and task.measured_otherwise(built):
            task.forget(built.trace_key)
        if proposal is None or built.trace_key in task.known:
            if proposal is not None:
                task.repeat(proposal, built.trace_key)
            elif built.failed is None and not task.measured_otherwise(built):
                self.waiting.append((turn, built))
            return None
        same_code = task.codes.get(built.code_key)
        measurement = self.measure(turn, built) if same_code is None else task.known[same_code]
        return None if measurement is None else Taken(turn, proposal, built, measurement, same_code)

    def _heed(self, taken: Taken, run: Run | None) -> None:
        """Tell of a candidate that was stored, or have it measured in the model first."""
        turn, proposal, built, measurement = taken.turn, taken.proposal, taken.built, taken.measurement
        task = turn.task
        task.check(built, measurement, turn.origin)
        reads = self.seats and turn.origin is not Origin.DEFAULT
        slow = task.prunes(proposal, measurement) or task.unlikely(measurement.latency_ns)
        if reads and taken.same_code is None and measurement.latency and not slow:
            self.waiting.append((turn, built))
        else:
            self._tell(turn, proposal, taken.same_code or built.trace_key)
        if run is not None:
            self.measured(task, run)

    def claim(self, model: str) -> list[tuple[Turn, Built]]:
        """Return what waits to be measured in a model: it waits no more."""
        here = self.seats[model].reader.sites.task_of
        claimed = [entry for entry in self.waiting if entry[0].task.workload.key in here]
        self.waiting = [entry for entry in self.waiting if entry[0].task.workload.key not in here]
        return claimed

    def read(self, model: str, waiting: Sequence[tuple[Turn, Built]]) -> None:
        """Measure in a model what has waited for it and, once more, what it is not clear of; store it, tell the
        searches and the cost model."""
        reader = self.seats[model].reader
        here = reader.sites.task_of
        if not waiting:
            return
        entries: dict[str, list[Built]] = {}
        for turn, built in waiting:
            entries.setdefault(turn.task.workload.key, []).append(built)
        for task, unclear in self.policy.unclear(model):
            room = reader.most - len(entries.get(task.workload.key, ()))
            if known := [task.built[trace] for trace in unclear if trace in task.built][:room]:
                entries.setdefault(task.workload.key, []).extend(known)
        begin = self.meter.session_s
        found = reader.read(entries, self.meter.past())
        for key, readings in found.readings.items():
            self.store.read_inside(here[key].key, readings, reader.model.name, self.job)
            here[key].read(readings)
        for key, traces in found.crashed.items():
            self.store.crashed_inside(here[key].key, traces, reader.model.name, self.job)
            here[key].crashed_inside(traces)
        number, took = sum(map(len, found.readings.values())), self.meter.session_s - begin
        self.say(
            f"measured {counted(number, 'candidate')} in the model, {number / max(took, 1e-9):.0f} a second"
        )
        for turn, built in waiting:
            if turn.proposal is not None:
                self._tell(turn, turn.proposal, built.trace_key)
        self.cost_model.learn()

    def _tell(self, turn: Turn, proposal: Proposal, trace_key: str) -> None:
        """Tell the search and the cost model how a candidate ended."""
        task = turn.task
        task.tell(proposal, trace_key)
        if task.known[trace_key].latency:
            self.cost_model.observe(task.space, [turn.config], [task.score_ns(trace_key)])

    @property
    def _most(self) -> float:
        """Return the number of candidates of a workload that may wait."""
        if not self.seats:
            return math.inf
        return min(TOGETHER, *(seat.reader.most - 2 for seat in self.seats.values()))

    def measure(self, turn: Turn, built: Built) -> Measurement | None:
        """Return the outcome; None, also for all that follow, where there is nothing to check candidates against."""
        task = turn.task
        if refused := task.refused(built, turn.origin):
            return refused
        if not task.no_reference:
            try:
                return self.measurer.measure(built, task.default_alone_ns)
            except NoReferenceError as error:
                task.no_reference = str(error)
                self.suspicion.leave_out(f"{task.name}: {error}", default=turn.origin is Origin.DEFAULT)
                self.left_out(task)
        return None

    def ask(self, action: Action, building: Sequence[Turn] = ()) -> list[Turn]:
        """Return the candidates of an action: the default schedules of its tasks; or what was left unmeasured, then
        proposals for its task, fewer where others wait to be measured or are ``building``."""
        count = int(min(self.batch, self.meter.trials_left - len(building)))
        untried = self.check(task.workload.key for task in action.tasks)
        if action.work is ActionKind.DEFAULTS or untried:
            first = {turn.task.workload.key for turn in building}
            tasks = [task for task in action.tasks if task.untried and task.workload.key not in first][:count]
            return [Turn.of(task, task.search.suggest(task.default), Origin.DEFAULT) for task in tasks]
        (task,) = action.tasks
        self.recall(task)
        here = sum(turn.task is task for turn in (*building, *(turn for turn, _ in self.waiting)))
        most = int(min(count, self._most - here))
        if task.left:
            taken, task.left = task.left[:most], task.left[most:]
            return [Turn(task, config, None, Origin.SEARCH) for config in taken]
        return self._propose(task, int(min(most, task.room - here)))

    def _propose(self, task: Task, count: int) -> list[Turn]:
        """Return the new candidates of a task: what was found for near workloads, and what its search asks for.

        The former come first or, where a model of earlier jobs guides the search, alternate with its favourites: it
        knows of near workloads too.
        """
        if task.near is None:
            task.near = [*task.outdated, *self.warm_start(task)]
        most = count // 2 if self.cost_model.trained else count
        first, task.near = task.near[:most], task.near[most:]
        proposals = [task.search.suggest(config) for config in first if config not in task.search]
        near = [Turn.of(task, proposal, Origin.NEAR) for proposal in proposals]
        asked = task.search.ask(count - len(near))
        found = [Turn.of(task, proposal, Origin.SEARCH) for proposal in asked]
        if not self.cost_model.trained:
            return near + found
        return [turn for pair in zip_longest(found, near) for turn in pair if turn is not None]

    def take_up(self) -> None:
        """Take what earlier sessions measured for all tasks. No code is built for that: :meth:`check` comes before
        anything else is done with a task."""
        for task in self.tasks:
            runs = self._runs_since(task)
            if past := Task.past_runs(runs):
                self._learn_from(task, past)
            self._recall(task, [run for run in runs if run.id not in task.stale], unchecked=True)

    def check(self, keys: Iterable[str]) -> int:
        """Build the default and the fastest run of workloads with unchecked runs; return how many have other code.

        All earlier runs of these are stale: the cost model learns of them, and the search may measure them again.
        """
        wanted = set(keys)
        tasks = [task for task in self.tasks if task.unchecked and task.workload.key in wanted]
        telling = [(task, run) for task in tasks for run in Task.telling_runs(task.unchecked)]
        built = self.measurer.build([task.candidate(run.config) for task, run in telling]) if telling else []
        outdated = {
            task.workload.key
            for (task, run), code in zip(telling, built, strict=True)
            if code.code != run.code or code.trace_key != run.trace_key
        }
        for (task, run), code in zip(telling, built, strict=True):
            if task.workload.key not in outdated:
                task.keep_code(code, run)
        for task in tasks:
            if task.workload.key in outdated:
                self._learn_from(task, task.drop_unchecked())
            else:
                task.settle()
        if outdated:
            many = counted(len(outdated), "workload")
            self.say(f"other code is generated now for {many}: what was measured with the old is stale")
        return len(outdated)

    def _learn_from(self, task: Task, runs: Sequence[Run]) -> None:
        """Have the cost model know stale runs, and the search begin with the fastest of them."""
        found = task.find_stale(runs, self.store.readings(task.key))
        self.cost_model.observe(task.space, [config for config, _ in found], [ns for _, ns in found])
        fastest = [config for config, _ in found if config != task.default]
        task.outdated = [*fastest, *(config for config in task.outdated if config not in fastest)][:OUTDATED]

    def _runs_since(self, task: Task) -> list[Run]:
        """Return the runs of a task that it does not know yet."""
        key = task.key
        runs = self.store.records(
            workload=key.workload, target=key.target, space=key.space, after=task.last_run_id
        )
        return [run for run in runs if run.id not in task.stale]

    def recall(self, task: Task) -> None:
        """Take what other processes measured for this task in the meantime."""
        self._recall(task, self._runs_since(task))

    def _recall(self, task: Task, runs: Sequence[Run], *, unchecked: bool = False) -> None:
        if not runs:
            return
        known = set(task.known)
        readings, compared = self.store.readings(task.key), self.store.compared_schedules(task.key)
        task.recall(runs, readings, compared, unchecked=unchecked)
        fresh = [run for run in runs if run.trace_key not in known and task.known[run.trace_key].latency]
        scores = [task.score_ns(run.trace_key) for run in fresh]
        self.cost_model.observe(task.space, [run.config for run in fresh], scores)

    def record(self, several: Sequence[Taken]) -> list[Run | None]:
        """Store runs before anything else hears of them, all at once; a failure may have to wait until it is clear that
        it is the candidate's own. None for each that another process has measured first: its reading stands."""
        runs, cleared = list[Run](), list[Run]()
        try:
            for taken in several:
                runs.append(self._run_of(taken))
                cleared += self.suspicion.take(runs[-1], taken.measurement)
        finally:
            new = {id(run) for run in self._store(cleared)}
        found = [run if run.latency is None or id(run) in new else None for run in runs]
        self.meter.trials += sum(run is not None for run in found)
        return found

    def _run_of(self, taken: Taken) -> Run:
        built, measurement = taken.built, taken.measurement
        run = Run(
            key=taken.turn.task.key,
            trace_key=built.trace_key,
            trace_json=built.trace_json,
            config_json=config_to_json(taken.turn.config),
            outcome=measurement.outcome,
            latency=measurement.latency,
            error=measurement.error,
            message=measurement.message,
            origin=taken.turn.origin,
            seed=taken.turn.task.seed,
            host=measurement.host,
            footprint=built.footprint,
            code=built.code,
        )
        return self.describe(run)

    def _store(self, runs: Sequence[Run]) -> list[Run]:
        """Return those that were not known."""
        return (
            [run for run, new in zip(runs, self.store.record_all(runs), strict=True) if new] if runs else []
        )


__all__ = ["RunStore", "Seat", "TuningLoop", "Turn"]
