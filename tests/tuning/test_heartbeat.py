"""The traces that a job leaves in its database: while it works, at its end, and where something ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.cli import main as cli
from autotune.database import Database, JobRow, Latency, Ratio
from autotune.database.evidence import Evidence, State
from autotune.database.goal import Objective, Saving
from autotune.errors import DatabaseError, MeasureError
from autotune.tuning.jobs import heartbeat
from autotune.tuning.jobs.answered import answered_before
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.events import Calls, StopTuning
from autotune.tuning.jobs.owner import said
from autotune.tuning.measure.gain import Gain
from autotune.tuning.report.result import DispatchRow, ModelReport, Report, lines_of
from autotune.tuning.report.status import Progress, Status
from autotune.tuning.report.stored import report_from
from tests.product import write_product
from tests.tuning.simulated import SimulatedMeasurer
from tests.tuning.test_job import A, B, Model, job

GAIN = Gain(Latency(9, 4.0, 5.0, 1.0), Latency(9, 3.0, 4.0, 1.0), Ratio(0.5, (0.4, 0.6)), 9, 1e-6, 0.5)
"""As much as the schedules that are found promise, so that the plan stays what it was."""


class Timed(Model):
    def gain(self, untuned: Any, tuned: Any, out_of_time: Any) -> Gain | None:
        return GAIN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def row(path: Path) -> JobRow:
    with Database(path, read_only=True) as database:
        return database.jobs()[-1]


def stored(path: Path) -> Report:
    with Database(path, read_only=True) as database:
        return report_from(database.job_report(row(path).id), row(path).id)


def test_the_report_is_read_as_it_was_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = job(path, A, B, whole=Timed(A, B)).run()
    assert report.gain == GAIN
    assert stored(path) == report
    assert said(row(path))["gains"]["model"]["ratio"] == 0.5
    assert cli.run(["report", "--db", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"job {report.job} of model: done, ")
    assert shown[1:] == lines_of(report)
    html = path.with_name("report.html")
    assert cli.run(["report", "model", "--db", str(path), "--html", str(html)]) == 0
    assert f"Whole model: {GAIN}" in html.read_text(encoding="utf-8")
    assert "wrote" in capsys.readouterr().err
    assert cli.run(["report", "--db", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == json.loads(json.dumps(report.to_json()))


def test_every_kind_of_evidence_is_read_again() -> None:
    saving = Saving(Objective.SIZE, 3, 4, Ratio(1.05, (1.0, 1.1)), True)
    found = [
        Evidence(State.TUNED, 4, Ratio(0.8, (0.7, 0.9)), 1),
        Evidence(State.UNCONFIRMED, 4),
        Evidence(State.SMALLER, saving=saving),
    ]
    rows = tuple(DispatchRow("d", "pool", "w", 1, None, 2.0, 3, each, ("n",), "near") for each in found)
    part = ModelReport("m", rows, ("a line",), None, "a reason")
    report = Report((part,), "t", "db", "j", True, 1, 1, 1.0, 1.0, {"ok": 1}, {"crashed": "why"})
    assert report_from(json.dumps(report.to_json()), "j") == report


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"models": [{}]}'])
def test_a_damaged_report_is_said_to_be_one(text: str) -> None:
    with pytest.raises(DatabaseError, match="the report of job j is damaged, or of a newer version: "):
        report_from(text, "j")


def test_the_same_job_again_shows_its_report(path: Path) -> None:
    first = job(path, A, whole=Timed(A), asked="key", trials=12).run()
    shown: list[Report] = []
    notes: list[str] = []

    class Shown(Progress):
        def preparing(self, note: str) -> None:
            notes.append(note)

        def finished(self, report: Report) -> None:
            shown.append(report)

    with Database(path) as database:
        assert answered_before(database, "another", Budget(trials=12), Shown()) is None
        assert answered_before(database, "key", Budget(trials=12), Shown()) == first
        assert shown == [first]
        assert "--again" in notes[0]
        assert answered_before(database, "key", Budget(trials=13), Shown()) is None
        more = job(path, A, whole=Timed(A), asked="key", trials=13).run()
        assert (more.job != first.job, more.session_trials) == (True, 13)
        assert (
            answered_before(database, "key", Budget(trials=12), Shown()) is None
        )  # of the newest it is another


@pytest.mark.usefixtures("shared_pools")
def test_a_job_that_is_done_is_answered_before_anything_is_chosen(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models are read and looked up; neither workers nor default schedules are there."""
    asked: dict[str, Any] = {"budget": Budget(trials=1), "database": path, "quiet": True}
    model = write_product(tmp_path / "product.onnx")
    first = autotune.tune(model, **asked)

    def chosen(*rest: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("autotune.tuning.jobs.model.tuned_model", chosen)
    assert autotune.tune(model, again=False, **asked, measurer=chosen).job == first.job
    for other in ({"again": True}, {"seed": 1}, {"budget": 2.0}, {"tolerance": 0.0}):
        with pytest.raises(AssertionError):
            autotune.tune(model, **{"again": False, **asked, **other}, measurer=chosen)


def test_a_job_that_was_stopped_says_by_what(path: Path) -> None:
    def stop(event: Any) -> None:
        if event.trials == 9:
            raise StopTuning

    report = job(path, A, progress=Calls(stop), asked="key").run()
    assert (row(path).state, said(row(path))["ended"]) == ("stopped", "by a callback")
    assert stored(path) == report
    assert "whole model: not timed: the job did not come to its end" in lines_of(report)
    with Database(path) as database:
        assert answered_before(database, "key", Budget(trials=40), Progress()) is None  # there is work left


def test_a_job_that_fails_says_by_what(path: Path) -> None:
    class Failing(SimulatedMeasurer):
        def build(self, candidates: Any) -> Any:
            raise MeasureError("no workers\nand more")

    with pytest.raises(MeasureError):
        job(path, A, measurer=Failing(lambda *_: None)).run()  # type: ignore[arg-type, return-value]
    assert said(row(path))["ended"] == "by an error: no workers"


def test_a_job_that_works_has_its_state_and_an_interim_report(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "_REPORT_S", -1.0)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", -1.0)
    found: list[tuple[JobRow, Report | None]] = []

    class Look(Progress):
        def phase(self, status: Status) -> None:
            with Database(path, read_only=True) as database:
                text = database.job_report(status.job)
            found.append((row(path), report_from(text, status.job) if text else None))

    job(path, A, whole=Timed(A), progress=Look()).run()
    states = [(each.state, said(each)["phase"], said(each)["budget"]) for each, _ in found]
    assert {state for state, _, _ in states} == {JobRow.RUNNING}
    assert {phase for _, phase, _ in states} >= {"compare", "whole model"}
    assert {budget for _, _, budget in states} == {str(Budget(trials=40))}
    interim = [report for _, report in found if report is not None]
    assert interim[-1].models[0].untimed == "the job did not come to its end"
    assert {each.name for each in interim[-1].dispatches} == {"a0"}
