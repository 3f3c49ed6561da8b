"""The tuning loop: ask → build → look up → check and measure → tell → record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autotune.database.records import Origin, Run
from autotune.errors import AutotuneError, NoReferenceError
from autotune.tuning.allocate import Allocator
from autotune.tuning.budget import Meter
from autotune.tuning.guide import Guide
from autotune.tuning.measure.interface import Built, Measurer
from autotune.tuning.outcome import Measurement
from autotune.tuning.search import Proposal
from autotune.tuning.suspicion import Suspicion
from autotune.tuning.task import Task


class Store(Protocol):
    """Where runs are kept; the database is one."""

    def record(self, run: Run) -> bool:
        """Keep a run; False if this schedule was kept before."""

    def records(self, *, workload: str, target: str, space: str, after: int) -> list[Run]:
        """The runs of a key that were stored after the row ``after``."""


@dataclass(frozen=True)
class Turn:
    """One candidate on its way through the loop."""

    task: Task
    proposal: Proposal
    origin: Origin


@dataclass
class Loop:
    """The parts of a job. ``describe`` completes a run's provenance; ``measured`` hears of each run, ``left_out`` of
    each task whose candidates cannot be checked, and ``before_turn`` is called before each turn."""

    tasks: Sequence[Task]
    allocator: Allocator
    measurer: Measurer
    store: Store
    guide: Guide
    meter: Meter
    describe: Callable[[Run], Run]
    measured: Callable[[Task, Run], None]
    left_out: Callable[[Task], None] = lambda task: None
    before_turn: Callable[[], None] = lambda: None
    batch: int = 8
    _pace_s: float = 0.0
    """Seconds a trial, lately."""
    suspicion: Suspicion = field(init=False)

    def run(self) -> None:
        """Turn after turn until the budget is spent or no task has anything left to try.

        Raises MeasureError when it is the machine that fails, and not the candidates.
        """
        proven = any(task.best_ns < float("inf") for task in self.tasks)
        untried = sum(task.default not in task.search for task in self.tasks)
        self.suspicion = Suspicion(untried, proven)
        try:
            self._turns()
        except BaseException as error:  # Ctrl-C, or whatever a user's callback raises
            if self.suspicion.worked and not isinstance(error, AutotuneError):
                self._store(self.suspicion.rest())
            raise
        self._store(self.suspicion.rest())

    def _turns(self) -> None:
        while not self.meter.spent:
            self.before_turn()
            begin = self.meter.session_s
            turns = self.ask()
            if not turns:
                return
            candidates = [turn.task.candidate(turn.proposal.config) for turn in turns]
            for turn, built in zip(turns, self.measurer.build(candidates), strict=True):
                if self.meter.spent:
                    return
                task = turn.task
                known = task.known.get(built.trace_key)
                measurement = known or self.measure(turn, built)
                if measurement is None:
                    continue
                run = self.record(turn, built, measurement) if known is None else None
                task.tell(turn.proposal, built, measurement, turn.origin)
                if run is not None:
                    self.measured(task, run)
            self.guide.learn()
            self._pace_s = (self.meter.session_s - begin) / len(turns)

    def measure(self, turn: Turn, built: Built) -> Measurement | None:
        """The outcome; None, also for all that follow, where there is nothing to check candidates against."""
        task = turn.task
        if not task.no_reference:
            try:
                return self.measurer.measure(built, task.best_ns)
            except NoReferenceError as error:
                task.no_reference = str(error)
                self.suspicion.leave_out(f"{task.name}: {error}", default=turn.origin is Origin.DEFAULT)
                self.left_out(task)
        return None

    def ask(self) -> list[Turn]:
        """The next batch: first every task's default schedule, then proposals for one task."""
        count = int(min(self.batch, self.meter.trials_left))
        if self._pace_s and self.meter.seconds_left < count * self._pace_s:
            count = max(1, int(self.meter.seconds_left / self._pace_s))  # what is built will be measured
        waiting = [t for t in self.tasks if t.default not in t.search and not t.no_reference]
        if waiting:
            return [Turn(task, task.search.suggest(task.default), Origin.DEFAULT) for task in waiting[:count]]
        while (task := self.allocator.choose()) is not None:
            self.recall(task)
            if proposals := task.search.ask(int(min(count, task.room))):
                return [Turn(task, proposal, Origin.SEARCH) for proposal in proposals]
        return []

    def recall(self, task: Task) -> None:
        """Take what other processes measured for this task in the meantime."""
        key = task.key
        runs = self.store.records(
            workload=key.workload, target=key.target, space=key.space, after=task.last_run_id
        )
        fresh = [run for run in runs if run.trace_key not in task.known and run.latency]
        self.guide.observe(task.space, [run.config for run in fresh], [r.latency_ns for r in fresh])
        task.recall(runs)

    def record(self, turn: Turn, built: Built, measurement: Measurement) -> Run | None:
        """Store a run before anything else hears of it; a failure may have to wait until it is clear that it is
        the candidate's own. None if another process has measured this schedule first: its reading stands."""
        task, config = turn.task, turn.proposal.config
        run = self.describe(
            Run(
                key=task.key,
                trace_key=built.trace_key,
                trace_json=built.trace_json,
                config_json=json.dumps(dict(config), sort_keys=True, separators=(",", ":")),
                outcome=measurement.outcome,
                latency=measurement.latency,
                error=measurement.error,
                message=measurement.message,
                origin=turn.origin,
                seed=task.seed,
            )
        )
        new = self._store(self.suspicion.take(run, measurement))
        if measurement.latency is not None and run not in new:
            return None
        self.meter.trials += 1
        if measurement.latency:
            self.guide.observe(task.space, [config], [measurement.latency_ns])
        return run

    def _store(self, runs: Sequence[Run]) -> list[Run]:
        """Those that were not known."""
        return [run for run in runs if self.store.record(run)]


__all__ = ["Loop", "Store", "Turn"]
