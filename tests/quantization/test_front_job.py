"""The job of a front: what is proposed and measured, kept in a study, continued after a stop, and within the budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotune.cli import main
from autotune.cli.web.jobs import job_page
from autotune.compiler.request import CompileRequest
from autotune.database import Database
from autotune.database.records import JobRow, Latency, Ratio
from autotune.errors import UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.quantization import front_job
from autotune.quantization.front import PRECISION, stored_points
from autotune.quantization.front_job import FrontReport, tune_front
from autotune.quantization.precision import FLOAT32, INT8
from autotune.quantization.study import PrecisionStudy
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.measure.error_budget import Accuracy
from autotune.tuning.measure.gain import Gain
from autotune.tuning.search.studies import opened_storage
from tests.quantization.test_compile_within import dense, latencies, rows

CHOICES = {"a": [INT8, "float16 weights", FLOAT32], "b": [INT8, FLOAT32], "c": [FLOAT32]}
START = {"a": INT8, "b": INT8, "c": FLOAT32}


def trials(path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = opened_storage(path)
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage).trials


def test_a_study_proposes_each_plan_once_and_ends_when_there_is_no_other(tmp_path: Path) -> None:
    study = PrecisionStudy(tmp_path / "s.log", "net", CHOICES, [START], 0)
    found = []
    for trial, precisions in study.proposals():
        found.append(tuple(precisions.values()))
        study.tell(trial, 0.1 * len(found), 1 / len(found), {})
    assert found[0] == (INT8, INT8, FLOAT32)
    assert len(found) == len({*found}) == 5  # all of 3 × 2 but float32
    assert {*trials(tmp_path / "s.log")[0].params} == {"a", "b"}


def test_a_study_goes_on_with_its_own_choices_and_with_the_plan_that_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    other = {**START, "b": FLOAT32}
    first = PrecisionStudy(path, "net", CHOICES, [START, other], 0)
    proposals = first.proposals()
    first.tell(*next(proposals)[:1], 0.5, 0.1, {"predicted": 1.0})
    next(proposals)  # the process ends here
    again = PrecisionStudy(path, "net", {"a": [FLOAT32], "b": [FLOAT32], "c": [FLOAT32]}, [], 0)
    assert (again.choices, again.starts, again.measured) == (CHOICES, [START, other], 1)
    trial, precisions = next(again.proposals())
    assert precisions == other
    with pytest.raises(KeyboardInterrupt), again.postponed(trial):
        raise KeyboardInterrupt
    assert next(again.proposals())[1] == other
    states = [trial.state for trial in trials(path)]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING]


class Machine:
    """A machine on which products take 1 in int8, 2 with shorter weights and 3 in float32; stopped at a measurement."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.asked: list[tuple[int, int | None]] = []
        self.measured = 0
        self.stop_at = stop_at

    def tune(self, models: Sequence[Any], tolerance: float, part: Budget, heart: Any) -> Any:
        self.asked.append((len(models), part.trials))
        return SimpleNamespace(stopped=False)

    def gain_of(self, before: Any, after: Any, seed: int, out_of_time: Any, processes: int) -> Gain:
        if self.measured == self.stop_at:
            raise KeyboardInterrupt
        self.measured += 1
        ratio = 1 - 0.01 * self.measured
        return Gain(
            Latency(5, 90.0, 100.0, 1.0), Latency(5, 60.0, 100.0 * ratio, 1.0), Ratio(ratio, (0.5, 0.99)), 6
        )


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the job of a front on a machine."""
    request = CompileRequest(dense(), threads=1, database=tmp_path / "tuning.db")
    monkeypatch.setattr("autotune.quantization.latencies._predicted", latencies)

    def run(machine: Machine, budget: Budget, again: bool = True) -> FrontReport:
        monkeypatch.setattr(front_job, "gain_of", machine.gain_of)
        limit = Accuracy.of(0.3)
        return tune_front(request, limit, rows(8), budget, machine.tune, again=again)

    run.request = request  # type: ignore[attr-defined]
    return run


def test_a_front_is_measured_stored_and_continued(job: Any, tmp_path: Path) -> None:
    first = Machine(stop_at=2)
    report = job(first, Budget(trials=12))
    assert report.stopped
    assert first.asked == [(3, 4)]
    second = Machine()
    report = job(second, Budget(trials=12))
    assert not report.stopped
    assert second.asked == []  # schedules were done
    assert second.measured <= 6
    points = stored_points(job.request)
    assert len(points) == first.measured + second.measured
    assert all(point.held_back.error <= 0.3 for point in points)
    assert {point.name for point in report.points} <= {point.name for point in points}
    (journal,) = (tmp_path / "tuning.db.studies").glob("*.log")
    complete = [trial for trial in trials(journal) if trial.state == TrialState.COMPLETE]
    assert sorted(trial.values for trial in complete) == sorted(
        [point.over_float32, point.held_back.error] for point in points
    )
    with Database(tmp_path / "tuning.db") as store:
        (row,) = store.jobs()
        assert row.state == JobRow.DONE
        assert len(store.compared_at(PRECISION, job=row.id)) == 2 * len(points)
        drawn = job_page(store, row.id).rendered("tuning.db")
    assert drawn.count("<circle") == len(points)
    assert main.run(["report", "--db", str(tmp_path / "tuning.db"), "--html", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_text().count("<circle") == len(points)
    third = Machine()
    assert job(third, Budget(trials=12), again=False).points == report.points
    assert third.measured == 0


def test_in_a_short_time_plans_are_measured_with_the_schedules_that_there_are(job: Any) -> None:
    machine = Machine()
    job(machine, Budget(80))
    assert machine.asked == []
    assert len(stored_points(job.request)) == machine.measured > 0


def test_a_model_without_products_is_one_error(tmp_path: Path) -> None:
    m = ModelBuilder("plain")
    model = m.finish([m.node("Relu", [m.input("x", (1, 64))], "y")])
    request = CompileRequest(model, threads=1, database=tmp_path / "t.db")
    with pytest.raises(UsageError, match="no product of the model has constant float32 weights"):
        tune_front(request, Accuracy.of(0.1), None, Budget(60), Machine().tune)
