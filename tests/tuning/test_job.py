"""Whole jobs over made-up spaces and a simulated measurer."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autotune.database import Database, Evidence, Hit, JobRow, Latency, Origin, Outcome, State
from autotune.database.records import SAME_CODE, Ratio
from autotune.errors import MeasureError, NoReferenceError, UsageError
from autotune.passes.options import Option
from autotune.schedule.knob import Config, Knob
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site
from autotune.tuning.jobs.actions import Action
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.job import Job, Options
from autotune.tuning.jobs.loop import TuningLoop, Turn
from autotune.tuning.jobs.subject import Subject, TunedModel
from autotune.tuning.jobs.worth import TOP
from autotune.tuning.measure.gain import Gain
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import UNWATCHED, Code, Profile, Version, Watch
from autotune.tuning.report.progress import JsonLines, PlainLines
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress
from tests.seeds import seeds
from tests.tuning.simulated import SimulatedMeasurer, Ticks
from tests.tuning.synthetic import TARGET, Synthetic, measurer

A = Synthetic("a")
B = Synthetic("b", scale=0.1)
BROKEN = Synthetic("c", failing=True)


def subject(task: Synthetic, count: int = 1) -> Subject:
    names = tuple(f"{task.name}{i}" for i in range(count))
    workload: Any = task.workload
    return Subject(names, workload, task.space, task.space.default())


def site(task: Synthetic) -> Site:
    workload: Any = task.workload
    return Site(subject(task).names, workload, (Option(workload),))


class Model:
    """A model in which every schedule takes what ``inside`` says, without it what it takes alone."""

    name = "net"
    nbytes = 0
    most = 16

    def __init__(self, *tasks: Synthetic, inside: Callable[[Config], float] | None = None) -> None:
        self.tasks = tasks
        self.inside = inside
        self.asked: list[tuple[int, int]] = []
        """Of each comparison: how many versions were interleaved, in how many processes."""

    def rankings(self) -> dict[str, Any]:
        return {}

    def read(self, versions: Sequence[Version], rounds: Rounds, *rest: Any) -> list[Any]:
        self.asked.append((len(versions), rounds.processes))
        return [self._one(version, rounds) for version in versions]

    def _one(self, version: Version, rounds: Rounds) -> Any:
        row = [self._takes(task, version.code.get(task.workload.key)) for task in self.tasks]
        dispatches = [(f"{task.name}0", task.workload.key) for task in self.tasks]
        return Profile(dispatches, np.tile(row, (rounds.most, 1)))

    def _takes(self, task: Synthetic, built: Built | None) -> float:
        config = task.space.default() if built is None else built.candidate.config
        return (self.inside or task.latency)(config)

    def gain(self, untuned: Code, tuned: Code, out_of_time: Any) -> Gain | None:
        return None


def tuned(name: str, *tasks: Synthetic, **changes: Any) -> TunedModel:
    model = TunedModel(
        name, [subject(task) for task in tasks], [site(task) for task in tasks], cast(Any, Model(*tasks))
    )
    return replace(model, **changes)


def job(path: Path, *tasks: Synthetic, trials: int = 40, **changes: Any) -> Job:
    """A job of one model, of which ``changes`` may be about its subjects or the whole of it."""
    own = {name: changes.pop(name) for name in ("subjects", "whole") if name in changes}
    base = Job(
        models=[tuned("model", *tasks, **own)],
        target=TARGET,
        budget=Budget(trials=trials),
        database=Database(path),
        measurer=measurer(*tasks),
        progress=Progress(),
        clock=Ticks(),
    )
    return replace(base, **changes)


def hit(path: Path, task: Synthetic) -> Hit:
    with Database(path, read_only=True) as database:
        found = database.lookup(task.workload.key, TARGET.key, task.space.key)
    assert isinstance(found, Hit)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def test_a_job_spends_its_trials_and_finds_something_faster(path: Path) -> None:
    report = job(path, A, B, trials=60).run()
    assert (report.trials, report.session_trials, report.stopped) == (60, 60, False)
    assert sum(report.outcomes.values()) == 60
    found = hit(path, A)
    assert found.default is not None
    assert found.default.origin is Origin.DEFAULT
    assert found.evidence.state is State.TUNED
    before, after = found.latencies
    assert before is not None
    assert before > 1.5 * after
    row = next(row for row in report.dispatches if row.name == "a0")
    assert (row.before_ns, row.after_ns) == (A.latency(A.space.default()), found.best.latency_ns)


def test_the_default_of_every_task_is_measured_first(path: Path) -> None:
    measuring = measurer(A, B)
    job(path, A, B, trials=5, measurer=measuring).run()
    assert [c.workload for c in measuring.measured[:2]] == [A.workload.text, B.workload.text]
    assert all(dict(c.config) == A.space.default() for c in measuring.measured[:2])


def test_the_budget_goes_where_the_model_gains_most(path: Path) -> None:
    report = job(path, A, B, trials=60).run()  # before the first has come to its plateau
    runs = {row.name: row.runs for row in report.dispatches}
    assert runs["a0"] > 2 * runs["b0"]


def test_a_second_job_measures_nothing_again(path: Path) -> None:
    first, second = measurer(A), measurer(A)
    job(path, A, trials=30, measurer=first).run()
    report = job(path, A, trials=30, measurer=second).run()
    both = [json.dumps(dict(c.config)) for c in (*first.measured, *second.measured)]
    assert len(set(both)) == len(both) == 60
    assert (report.trials, hit(path, A).runs) == (30, 60)


class Versioned(SimulatedMeasurer):
    """Generates the code of a version; ``built`` lists the workloads of what was built, in order."""

    def __init__(self, version: str, *tasks: Synthetic) -> None:
        super().__init__(measurer(*tasks)._answer)
        self.version = version
        self.built: list[str] = []

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        self.built += [candidate.workload for candidate in candidates]
        return [
            replace(built, payload={"key": self.version, "object": built.trace_key})
            for built in super().build(candidates)
        ]


class Builds(Progress):
    """Notes what was built when the job started, and when its first trial ended."""

    def __init__(self, measuring: Versioned) -> None:
        self.measuring = measuring
        self.start: list[str] | None = None
        self.first: list[str] | None = None

    def started(self, *rest: Any) -> None:
        self.start = list(self.measuring.built)

    def measured(self, *rest: Any) -> None:
        self.first = self.first or list(self.measuring.built)


@pytest.mark.parametrize("version", ["one", "two"])
def test_the_code_of_what_is_known_is_looked_at_when_its_turn_comes(path: Path, version: str) -> None:
    job(path, A, B, trials=40, measurer=Versioned("one", A, B)).run()
    measuring = Versioned(version, A, B)
    seen = Builds(measuring)
    job(path, A, B, trials=40, measurer=measuring, progress=seen).run()
    assert seen.start == []
    assert seen.first is not None
    assert set(seen.first) <= {A.workload.text, B.workload.text}
    with Database(path) as database:
        runs = [run for run in database.records() if run.code == version]
    again = Counter(run.key.workload for run in runs if run.origin is Origin.DEFAULT)
    assert again == {A.workload.key: 1, B.workload.key: 1}  # once by either version


@pytest.mark.parametrize("version", ["one", "two"])
def test_nothing_is_claimed_of_runs_whose_code_nobody_has_looked_at(path: Path, version: str) -> None:
    before = job(path, A, B, trials=60, measurer=Versioned("one", A, B)).run()
    assert State.TUNED in {row.evidence.state for row in before.dispatches}

    class Interrupted(Versioned):
        def measure(self, built: Built, default_ns: float) -> Measurement:
            raise KeyboardInterrupt

    stopped = job(path, A, B, trials=60, measurer=Interrupted(version, A, B)).run()
    claimed = [row.name for row in stopped.dispatches if row.evidence.state is not State.TRANSFERRED]
    # The first turn has looked at one workload, and the run that its measurement interrupted is none.
    assert len(claimed) == (version == "one")
    after = job(path, A, B, trials=1, measurer=Versioned(version, A, B)).run()
    states = {row.name: row.evidence.state for row in after.dispatches}
    if version == "one":
        assert states == {row.name: row.evidence.state for row in before.dispatches}
    else:
        assert State.TUNED not in states.values()


class Stopping(SimulatedMeasurer):
    """Raises KeyboardInterrupt after some measurements, as Ctrl-C would."""

    def __init__(self, inner: SimulatedMeasurer, after: int) -> None:
        super().__init__(inner._answer)
        self.after = after

    def measure(self, built: Built, default_ns: float) -> Measurement:
        if len(self.measured) == self.after:
            raise KeyboardInterrupt
        return super().measure(built, default_ns)


def test_ctrl_c_keeps_the_best_and_the_same_command_continues(path: Path) -> None:
    report = job(path, A, trials=40, measurer=Stopping(measurer(A), 25)).run()
    assert report.stopped
    assert (report.trials, hit(path, A).runs) == (25, 25)
    again = job(path, A, trials=40).run()
    assert again.job == report.job
    assert (again.trials, again.session_trials, again.stopped) == (40, 15, False)
    third = job(path, A, trials=10).run()
    assert third.job != report.job
    assert third.trials == 10


def test_a_running_job_is_left_alone(path: Path) -> None:
    class Nested(SimulatedMeasurer):
        inner: Report | None = None

        def measure(self, built: Built, default_ns: float) -> Measurement:
            if self.inner is None:
                self.inner = job(path, A, trials=10).run()
            return super().measure(built, default_ns)

    measuring = Nested(measurer(A)._answer)
    report = job(path, A, trials=20, measurer=measuring).run()
    assert measuring.inner is not None
    assert measuring.inner.job != report.job
    with Database(path) as database:
        per_job = Counter(run.job for run in database.records())
    assert per_job == {report.job: 20, measuring.inner.job: 10}


def test_failures_are_rows_with_a_reason_and_a_hopeless_task_is_given_up(path: Path) -> None:
    report = job(path, A, BROKEN, trials=100).run()
    assert 24 <= report.outcomes["crashed"] < 24 + Options().batch
    assert report.failures["crashed"] == "the worker died (SIGSEGV)"
    assert report.outcomes["wrong_result"] > 0
    broken = next(row for row in report.dispatches if row.name == "c0")
    assert (broken.before_ns, broken.after_ns) == (None, None)
    with Database(path) as database:
        failed = [r for r in database.records() if r.outcome is Outcome.WRONG_RESULT]
    assert all(r.error == 0.5 and r.latency is None for r in failed)


@pytest.mark.parametrize(
    ("names", "trials", "what", "measured"),
    [
        ("d", 200, "none of the candidates worked", 25),
        ("d", 5, "none of the candidates worked", 5),
        ("de", 200, "the default schedules of 2 workloads failed for one reason", 2),
        ("defgh", 200, "the default schedules of 3 workloads failed for one reason", 3),
    ],
)
def test_a_job_in_which_nothing_works_fails_and_blocks_no_schedule(
    path: Path, names: str, trials: int, what: str, measured: int
) -> None:
    broken = [Synthetic(name, failing=True) for name in names]
    measuring = measurer(*broken)
    with pytest.raises(MeasureError) as caught:
        job(path, *broken, measurer=measuring, trials=trials).run()
    assert str(caught.value) == (
        f"{what}; that is this machine or its installation, not the candidates. The last crashed: the worker died "
        "(SIGSEGV). Nothing of it was stored, so that the same command tries again"
    )
    assert len(measuring.measured) == measured
    with Database(path) as database:
        assert database.records() == []
    repaired = [Synthetic(name) for name in names]
    assert job(path, *repaired, trials=20).run().outcomes["ok"] > 0


def test_defaults_that_fail_beside_others_that_work_are_the_machine_only_where_they_are_more(
    path: Path,
) -> None:
    broken = [Synthetic(name, failing=True) for name in "def"]
    with pytest.raises(MeasureError, match="the default schedules of 3 workloads failed for one reason"):
        job(path, A, B, *broken, trials=60).run()
    with Database(path) as database:
        assert [r.outcome for r in database.records()] == [Outcome.OK] * 2
    fine = [Synthetic(name) for name in "wxyz"]
    report = job(path, *fine, *broken, trials=60).run()
    assert report.outcomes["crashed"] >= 3


class Unchecked(SimulatedMeasurer):
    """Cannot check the candidates of some workloads."""

    def __init__(self, inner: SimulatedMeasurer, *without: Synthetic) -> None:
        super().__init__(inner._answer)
        self.without = {task.workload.text for task in without}
        self.asked: list[str] = []

    def measure(self, built: Built, default_ns: float) -> Measurement:
        self.asked.append(built.candidate.workload)
        if built.candidate.workload in self.without:
            raise NoReferenceError("its candidates cannot be checked: it took longer than 300 s")
        return super().measure(built, default_ns)


def test_a_workload_without_a_reference_is_left_out_and_blocks_no_schedule(path: Path) -> None:
    measuring = Unchecked(measurer(A, B), B)
    report = job(path, A, B, trials=20, measurer=measuring).run()
    assert measuring.asked.count(B.workload.text) == 1
    assert sum(report.outcomes.values()) == 20
    assert report.left_out == {"b0": "its candidates cannot be checked: it took longer than 300 s"}
    assert "  b0 was not tuned: its candidates cannot be checked: it took longer than 300 s" in str(report)
    with Database(path) as database:
        assert {run.key.workload for run in database.records()} == {A.workload.key}
    assert job(path, B, trials=5).run().outcomes["ok"] > 0


def test_a_job_in_which_nothing_can_be_checked_fails(path: Path) -> None:
    with pytest.raises(MeasureError, match=r"^nothing was measured: [ab]0: its candidates cannot be checked"):
        job(path, A, B, measurer=Unchecked(measurer(A, B), A, B)).run()


def test_a_budget_that_is_over_before_the_first_candidate_is_a_failure(path: Path) -> None:
    with pytest.raises(MeasureError, match="the budget was over before the first candidate"):
        job(path, A, budget=Budget(seconds=1e-9)).run()


def test_what_is_no_faster_inside_the_model_is_not_used(path: Path) -> None:
    report = job(path, A, trials=20, whole=Model(A, inside=lambda config: 500.0)).run()
    found = hit(path, A)
    assert found.best.origin is Origin.DEFAULT
    assert report.dispatches[0].evidence == Evidence(State.CONFIRMED, 19)
    assert report.speedup is None
    with Database(path) as database:
        assert {reading.ratio for reading in database.readings(found.best.key)} == {1.0}


def test_what_has_one_schedule_is_told_apart_from_what_was_not_searched(path: Path) -> None:
    knobs = tuple(Knob.of(knob.name, (knob.default,), knob.default) for knob in A.space.knobs)
    only = replace(subject(A), space=replace(A.space, knobs=knobs))
    report = job(path, A, subjects=[only]).run()
    assert report.dispatches[0].evidence == Evidence(State.ONLY)


class SameCode(SimulatedMeasurer):
    """All schedules have the same machine code; what it takes is drawn anew at each reading."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._read)
        self.rng = np.random.default_rng(seed)

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        return [replace(built, payload={"object": "the same"}) for built in super().build(candidates)]

    def ns(self, config: Config) -> float:
        return 1000.0 * float(np.exp(self.rng.normal(0, 0.1)))

    def _read(self, candidate: Candidate) -> Measurement:
        ns = self.ns(candidate.config)
        return Measurement(Outcome.OK, Latency(5, ns, ns, 0.0), 1e-7)


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_candidates_with_the_code_of_the_default_change_nothing(path: Path, seed: int) -> None:
    """A/A: the smallest of many readings of the same code is smaller than the first one, and says nothing."""
    measuring = SameCode(seed)
    model = Model(A, inside=measuring.ns)
    report = job(path, A, trials=40, whole=model, measurer=measuring).run()
    assert report.dispatches[0].evidence == Evidence(State.TRIED, 39)
    assert (len(measuring.measured), model.asked) == (1, [])


def test_what_was_read_as_faster_before_its_code_was_known_takes_no_turns(path: Path) -> None:
    measuring = SameCode(0)
    model = Model(A, inside=measuring.ns)
    job(path, A, trials=30, whole=None).run()
    report = job(path, A, budget=Budget(per_workload=40), whole=model, measurer=measuring).run()
    assert all(processes == 1 for _, processes in model.asked)
    with Database(path) as database:
        key = report.dispatches[0].workload
        default, *others = database.comparison(key, TARGET.key, "schedule")
    assert default.won
    assert {row.ratio for row in others} == {SAME_CODE}


def test_what_is_faster_inside_the_model_is_used_and_not_read_again(path: Path) -> None:
    model = Model(A, inside=A.latency)
    out = io.StringIO()
    job(path, A, trials=30, whole=model, progress=PlainLines(out)).run()
    found = hit(path, A)
    assert found.best.origin is Origin.SEARCH
    assert found.best.confirmed_ns == found.best.latency_ns
    assert found.evidence.state is State.TUNED
    default = A.latency(A.space.default())
    assert found.evidence.ratio is not None
    assert found.evidence.ratio.speedup == pytest.approx(default / found.best.latency_ns, rel=0.3)
    assert "1 workload faster in the model, 0 keep the default" in out.getvalue()
    job(path, A, budget=Budget(per_workload=30), whole=model).run()
    compared = {asked for asked in model.asked if asked[1] > 1}
    assert (TOP + 1, PROCESSES) in compared
    assert compared <= {(n, PROCESSES) for n in range(2, TOP + 2)}


class Crashing(Model):
    """In a comparison over several processes, versions with the code ``fatal`` end theirs."""

    def __init__(self, *tasks: Synthetic) -> None:
        super().__init__(*tasks)
        self.fatal = ("", "")
        """Of the first comparison the first candidate, which was the fastest when it was read."""
        self.compared: list[list[set[tuple[str, str]]]] = []
        """The workloads and traces of each version, a list for each comparison."""

    def read(
        self, versions: Sequence[Version], rounds: Rounds, out_of_time: Any, watch: Watch = UNWATCHED
    ) -> list[Any]:
        codes = [{(key, built.trace_key) for key, built in version.code.items()} for version in versions]
        if rounds.processes > 1:
            self.compared.append(codes)
            self.fatal = self.fatal if any(self.fatal) else self._first(versions[1])
        for number in [n for n, code in enumerate(codes) if self.fatal in code and self.ends(rounds)]:
            watch.failed(number, "it was fatal")
        return [
            None if self.fatal in code and self.ends(rounds) else self._one(version, rounds)
            for version, code in zip(versions, codes, strict=True)
        ]

    def _first(self, version: Version) -> tuple[str, str]:
        return A.workload.key, version.code[A.workload.key].trace_key

    def ends(self, rounds: Rounds) -> bool:
        return rounds.processes > 1


def test_a_version_that_crashes_leaves_the_others(path: Path) -> None:
    model = Crashing(A)
    report = job(path, A, trials=30, whole=model).run()
    first, *later = ([model.fatal in code for code in codes] for codes in model.compared)
    assert first[:2] == [False, True]
    assert later
    assert not any(map(any, later))
    with Database(path) as database:
        default, *others = database.comparison(A.workload.key, TARGET.key, "schedule")
        (crashed,) = [run for run in database.records() if run.crashed]
    found = hit(path, A)
    (winner,) = [row for row in others if row.won]
    assert not default.won
    assert (found.best.trace_key, found.best.id) == (winner.name, winner.run)
    assert (crashed.trace_key, crashed.outcome) == (model.fatal[1], Outcome.OK)
    assert (found.crashed, found.ok) == (1, report.outcomes["ok"] - 1)
    assert crashed.crashed == "crashed inside the model: it was fatal"
    assert "  a0: crashed inside the model: it was fatal" in str(report).splitlines()
    assert found.evidence.state is State.TUNED
    assert str(report.dispatches[0].evidence).endswith("; 1 crashed inside a model")


def test_what_crashed_in_a_comparison_is_not_compared_again(path: Path) -> None:
    """Its readings, of processes that it did not end, are the best."""
    model = Crashing(A)
    job(path, A, trials=30, whole=model).run()
    before = len(model.compared)
    report = job(path, A, budget=Budget(per_workload=60), whole=model).run()
    later = model.compared[before:]
    assert not any(model.fatal in code for codes in later for code in codes)
    assert hit(path, A).best.trace_key != model.fatal[1]
    assert report.dispatches[0].evidence.crashed == 1


def test_only_the_candidate_that_crashes_is_left_out_of_a_comparison(path: Path) -> None:
    class Found(Crashing):
        def ends(self, rounds: Rounds) -> bool:
            return bool(self.compared)  # also where it is looked for

    tasks = [A, *(Synthetic(name) for name in "def")]
    model = Found(*tasks)
    job(path, *tasks, trials=120, whole=model).run()
    assert len(model.compared[0][1]) == len(tasks)
    with Database(path) as database:
        assert [(run.key.workload, run.trace_key) for run in database.records() if run.crashed] == [
            model.fatal
        ]
    assert all(hit(path, task).evidence.state is State.TUNED for task in tasks)


def test_nothing_is_decided_when_time_ran_out(path: Path) -> None:
    class Late(Model):
        def read(self, versions: Sequence[Version], rounds: Rounds, *rest: Any) -> list[Any]:
            return [None] * len(versions)

    job(path, A, trials=30, whole=Late(A, inside=A.latency)).run()
    assert hit(path, A).best.confirmed_ns is None


def test_a_long_search_is_compared_on_the_way(path: Path) -> None:
    class Close(Model):
        """All is about as fast as the default: no process makes it clear."""

        def _takes(self, task: Synthetic, built: Built | None) -> float:
            return 1000.0 * float(1 - 1e-5 * super()._takes(task, built))

    model = Close(A, inside=A.latency)
    job(path, A, trials=60, whole=model, measurer=Stopping(measurer(A), 50)).run()
    assert any(processes > 1 for _, processes in model.asked)
    assert hit(path, A).best.confirmed_ns is not None


def test_the_next_batch_is_built_beside_all_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is timed, and while candidates are measured in the model: when that is over it is there."""
    tasks = [A, B, *(Synthetic(name) for name in "defghijk")]
    asked, before, ask = list[tuple[int, list[Turn]]](), list[int](), TuningLoop.ask

    def asking(self: TuningLoop, action: Action, building: Sequence[Turn] = ()) -> list[Turn]:
        asked.append((len(building), found := ask(self, action, building)))
        return found

    class Watching(Model):
        def read(self, *given: Any) -> list[Any]:
            before.append(sum(len(turns) for _, turns in asked) - len(work.measurer.measured))  # type: ignore[attr-defined]
            return super().read(*given)

    monkeypatch.setattr(TuningLoop, "ask", asking)
    work = job(path, *tasks, trials=101, whole=Watching(*tasks))
    assert work.run().trials == 101
    defaults = [turn.task.name for _, turns in asked for turn in turns if turn.origin is Origin.DEFAULT]
    assert len(defaults) == len(set(defaults)) == len(tasks)
    assert (8, 2) in [(building, len(turns)) for building, turns in asked]  # the other defaults
    assert (8, 8) in [(building, len(turns)) for building, turns in asked]
    assert max(before) >= 8


def test_no_workload_gets_more_trials_than_allowed(path: Path) -> None:
    report = job(path, A, B, budget=Budget(per_workload=12)).run()
    assert {row.name: row.runs for row in report.dispatches} == {"a0": 12, "b0": 12}
    again = job(path, A, B, budget=Budget(per_workload=12)).run()
    assert again.session_trials == 0


def test_a_time_budget_ends_the_job(path: Path) -> None:
    measuring = measurer(A)
    report = job(path, A, budget=Budget(seconds=100), measurer=measuring, clock=Ticks(1.0)).run()
    assert 5 < len(measuring.measured) == report.trials < 100


class Hours(Model):
    """A model that takes all the time they get, by a clock of their own that each look at advances."""

    def __init__(self, *tasks: Synthetic) -> None:
        super().__init__(*tasks)
        self.clock = Ticks()
        self.looks: dict[str, int] = {"read": 0, "time": 0}

    def read(
        self, versions: Sequence[Version], rounds: Rounds, out_of_time: Any, watch: Watch = UNWATCHED
    ) -> list[Any]:
        if rounds.processes > 1:
            self._wait("read", out_of_time)
        return super().read(versions, rounds, out_of_time, watch)

    def gain(self, untuned: Code, tuned: Code, out_of_time: Any) -> None:
        self._wait("time", out_of_time)

    def _wait(self, what: str, out_of_time: Any) -> None:
        while not out_of_time():
            self.clock.now += 0.5
            self.looks[what] += 1


@pytest.mark.parametrize("head_s", [0.0, 20.0])
def test_comparing_and_the_whole_model_are_part_of_a_time_budget(path: Path, head_s: float) -> None:
    model = Hours(A)

    class Slow(SimulatedMeasurer):
        def measure(self, built: Built, default_ns: float) -> Measurement:
            model.clock.now += 1.0
            return super().measure(built, default_ns)

    slow = Slow(measurer(A)._answer)
    budget = Budget(seconds=100)
    clock = model.clock
    job(path, A, budget=budget, whole=model, measurer=slow, head_s=head_s, clock=clock).run()
    assert len(slow.measured) > 8
    assert min(model.looks.values()) > 3
    assert 80 < head_s + model.clock.now < 100


def test_the_whole_model_is_not_timed_where_starting_took_longer_than_is_left(path: Path) -> None:
    model, out = Hours(A), io.StringIO()
    budget = Budget(seconds=100)
    progress = JsonLines(out)
    job(path, A, budget=budget, whole=model, head_s=70.0, progress=progress, clock=model.clock).run()
    assert model.looks["time"] == 0
    assert "not timed: the budget is over before that" in out.getvalue()
    assert 70.0 + model.clock.now < 100


@pytest.mark.parametrize(
    ("ratio", "error", "claimed"), [(0.97, 0.001, True), (1.03, 0.001, False), (1.03, 0.04, True)]
)
def test_the_last_measurement_of_a_whole_model_leaves_its_plan_in_use(
    path: Path, ratio: float, error: float, claimed: bool
) -> None:
    """Each time it gains far less than was expected, by which another plan would be used: once that is timed, too."""

    timed = list[list[str]]()

    class Less(Model):
        def gain(self, untuned: Code, tuned: Code, out_of_time: Any) -> Gain | None:
            timed.append([built.trace_key for built in tuned.values()])
            took = Latency(9, 1000.0, 1000.0, 1.0)
            return Gain(took, took, Ratio(ratio, (ratio - error, ratio + error)), 9)

    report = job(path, A, B, trials=60, whole=Less(A, B, inside=A.latency)).run()
    assert len(timed) == 2
    assert timed[0] != timed[1]
    assert (report.gain is not None) == claimed
    used = [hit(path, task).best.trace_key for task in (A, B)]
    assert (sorted(used) == sorted(timed[1])) == claimed


def test_no_more_is_built_than_there_is_time_to_measure(path: Path) -> None:
    model = Hours(A)
    built: list[int] = []

    class Slow(SimulatedMeasurer):
        def build(self, candidates: Sequence[Candidate]) -> list[Built]:
            built.append(len(candidates))
            model.clock.now += len(candidates)
            return super().build(candidates)

    slow = Slow(measurer(A)._answer)
    job(path, A, budget=Budget(seconds=100), measurer=slow, clock=model.clock).run()
    assert max(built) == Options().batch
    assert built[-1] < Options().batch
    assert model.clock.now < 101


def test_an_unknown_sampler_is_refused_before_anything_starts(path: Path) -> None:
    with pytest.raises(UsageError, match="unknown sampler 'best'"):
        job(path, A, options=Options(sampler="best")).run()
    with Database(path) as database:
        assert database.workload_rows() == []


def test_progress_as_json_lines(path: Path) -> None:
    out = io.StringIO()
    job(path, A, trials=12, progress=JsonLines(out)).run()
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    kinds = [e["event"] for e in events]
    assert (kinds[0], kinds[-1], kinds.count("measured")) == ("started", "finished", 12)
    assert set(kinds[1:-1]) == {"measured", "next", "phase"}
    assert [e["trials"] for e in events if e["event"] == "measured"] == list(range(1, 13))
    assert events[-1]["models"][0]["dispatches"][0]["runs"] == 12


def test_progress_as_plain_lines(path: Path) -> None:
    out = io.StringIO()
    job(path, A, trials=12, progress=PlainLines(out)).run()
    lines = out.getvalue().splitlines()
    assert lines[0] == "tuning model: 1 dispatch, 1 workload, for x86-64-v3, 2 threads"
    assert lines[1] == f"database {path}, budget 12 trials"
    assert lines[2].startswith("defaults measured: 1/12 trials, ")
    gains = [line for line in lines if re.match(r"\d+/12 trials, ", line)]
    assert 1 <= len(gains) < 8
    assert lines[-1].startswith(f"schedules stored in {path} (job ")
    assert "12 in the job" in "\n".join(lines)


KILLED = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import optuna, scipy.stats, xgboost  # which a job imports as late as it can
from tests.patience import PATIENCE_S
from tests.tuning.test_job import *

class Slow(SimulatedMeasurer):
    def measure(self, built, default_ns):
        self.left -= 1
        time.sleep(0.01 if self.left else PATIENCE_S)  # the kill comes by then, at some moment
        with open(sys.argv[3], "a") as log:
            log.write(built.trace_key + "\\n")
        return super().measure(built, default_ns)

for most in map(int, sys.stdin):  # what is imported serves all processes of the job
    if not os.fork():
        print(json.dumps({"event": "process", "id": os.getpid()}), flush=True)
        slow = Slow(measurer(A, B)._answer)
        slow.left = most
        job(Path(sys.argv[1]), A, B, trials=30, measurer=slow, progress=JsonLines(sys.stdout)).run()
        sys.stdout.flush()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps({"event": "end", "status": status}), flush=True)
"""


def test_kill_9_three_times_loses_and_repeats_nothing(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "measured.log"
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", KILLED, str(path), root, str(log)]
    reported: list[str] = []
    jobs = set()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for kill_after in (1, 7, 4, None):
            print(100 if kill_after is None else kill_after + 3, file=parent.stdin, flush=True)
            process = json.loads(parent.stdout.readline())["id"]
            seen = 0
            for line in parent.stdout:
                event = json.loads(line)
                if event["event"] == "end":
                    break
                if event["event"] == "started":
                    jobs.add(event["job"])
                if event["event"] == "measured":
                    reported.append(event["workload"] + event["trace"])
                    seen += 1
                    if seen == kill_after:
                        os.kill(process, signal.SIGKILL)
            assert event["status"] == (0 if kill_after is None else -signal.SIGKILL)
        parent.stdin.close()
    with Database(path) as database:
        stored = [run.key.workload + run.trace_key for run in database.records()]
        (state,) = {row.state for row in job_rows(database)}
    assert len(jobs) == 1
    assert state == JobRow.DONE
    assert len(stored) == len(set(stored)) == 30
    assert len(reported) == len(set(reported))
    assert set(reported) <= set(stored)
    # Only a candidate that was being measured when the process died is measured again.
    assert len(log.read_text().splitlines()) <= 30 + 3


def job_rows(database: Database) -> list[Any]:
    from sqlalchemy import select

    from autotune.database import schema

    return database.session.read(lambda connection: list(connection.execute(select(schema.jobs))))
