"""Schedules and placements in turns: which searches follow each other, and what is done again after a stop."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import autotune
from autotune.cli.main import run
from autotune.cli.tune import refuse_beside_devices
from autotune.compiler.request import CompileRequest
from autotune.compiler.tiers import Tier
from autotune.database import Database
from autotune.database.records import DEVICES, MODEL, Ratio, WorkloadRow
from autotune.errors import UsageError
from autotune.hardware import usable_cores
from autotune.target import Target
from autotune.tuning.compiling import compile_request
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.owner import alive, owner, said
from autotune.tuning.jobs.tune_devices import DevicesReport, _PhasedJob, tune_on_devices
from autotune.tuning.placement.answer import PlacementReading
from autotune.tuning.placement.place import MeasuredPlacement, PlacementReport
from autotune.tuning.report.result import ModelReport, Report
from autotune.tuning.report.status import Progress, Status
from tests.compiler.test_sizes import check, images
from tests.database.examples import job as example
from tests.database.examples import prepare
from tests.database.examples import run as run_of

ONE, MANY = Target.parse("x86-64-v3", threads=1), Target.parse("x86-64-v3", threads=2)
GONE = f"{platform.node()}:1:0.00"
"""An owner that is a process of another time."""
TARGETS = {"cpu:0": ONE, "cpu:1": ONE, "cpu": MANY}


class Searches:
    """Searches that write down what they were asked, and are stopped at a number."""

    def __init__(
        self, database: Database, placements: list[Mapping[str, str]], stop_at: int | None = None
    ) -> None:
        self.asked: list[object] = []
        self.database = database
        self.placements = placements
        self.stop_at = stop_at
        self.job = _PhasedJob("net", database, TARGETS, Budget("100s", 10), lambda text: None)
        self.job.claim("the same")

    def tuned(self, target: Target, budget: Budget) -> Report:
        name = f"search{len(self.database.jobs()) - 1}"
        search = replace(example(name=name, fingerprint=name, owner=owner()), created=time.time())
        self.database.claim_job(search, alive)
        self.job.heart.started(
            cast("Status", SimpleNamespace(job=search.id, phase="search", note="next: x", waiting=False))
        )
        self.asked.append((target.threads, budget.limit_s, budget.trials))
        return cast("Report", SimpleNamespace(stopped=len(self.asked) - 1 == self.stop_at))

    def placed(self) -> PlacementReport:
        if len(self.asked) == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append("placement")
        placement = dict(self.placements.pop(0))
        row = replace(PlacementReading(tuple(TARGETS), placement, 1.0, "c").candidate(), won=True)
        self.database.add_workload(WorkloadRow("k", "", MODEL, 0, 0))
        self.database.compared("k", ONE.key, DEVICES, [row], "net", self.job.id)
        measured = MeasuredPlacement(placement, tuple(placement.values()), 1.0, 1.0, Ratio(0.8, (0.7, 0.9)))
        return PlacementReport("net", tuple(TARGETS), 1, 1, {}, (measured,), 0)

    def run(self) -> Any:
        return self.job.run(self.tuned, self.placed)


def test_schedules_are_searched_for_each_target_and_again_for_those_that_are_used(tmp_path):
    with Database(tmp_path / "tuning.db") as database:
        searches = Searches(database, [{"*": "cpu:1"}, {"*": "cpu:0"}])
        report = searches.run()
        assert searches.asked == [(1, 30.0, 4), (2, 30.0, 3), "placement", (1, 25.0, 3), "placement"]
        assert (len(report.tuned), len(report.placed), report.stopped, report.skipped) == (3, 2, False, ())
        whole = next(job for job in database.jobs() if job.id == searches.job.id)
        assert (whole.state, len(said(whole)["phases"]), said(whole)["devices"]) == ("done", 5, [*TARGETS])
        again = Searches(database, [{"*": "cpu:1"}, {"*": "cpu:0"}])
        assert len(again.run().tuned) == 3  # a job that is done is not continued


class Shown(Progress):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reports: list[Report] = []

    def preparing(self, note: str) -> None:
        self.notes.append(note)

    def finished(self, report: Report) -> None:
        self.reports.append(report)


@pytest.mark.skipif(usable_cores() < 2, reason="needs two devices")
def test_a_job_that_is_done_is_shown_and_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of one device: within the same budget, and unless a new one is asked for."""
    calls, model = list[str](), ModelReport("m", (), untimed="a reason")

    def tuned(graph: Any, *, database: Database, progress: Progress, target: Target, **rest: Any) -> Report:
        calls.append(f"search{len(calls)}")
        row = example(name=calls[-1], fingerprint=calls[-1], owner=owner())
        search = database.claim_job(replace(row, created=time.time(), target_key=target.key), alive)
        what = SimpleNamespace(job=search.id, phase="search", note="", waiting=False)
        progress.started(cast("Status", what))
        report = Report((model,), "t", "db", search.id, False, 1, 1, 1.0, 1.0, {"ok": 1}, {})
        database.update_job(replace(search, state="done"), json.dumps(report.to_json()))
        return report

    def placed(graph: Any, names: Any, **rest: Any) -> PlacementReport:
        calls.append("placement")
        measured = MeasuredPlacement({"*": "cpu:1"}, ("cpu:1",), 1.0, 1.0, Ratio(0.8, (0.7, 0.9)))
        return PlacementReport("net", ("cpu:0", "cpu:1"), 1, 1, {"cpu:0": 1.0}, (measured,), 0)

    monkeypatch.setattr("autotune.tuning.api.tune", tuned)
    monkeypatch.setattr("autotune.tuning.jobs.tune_devices.place", placed)
    shown = Shown()

    def tune(budget: str, *, again: bool = False, tolerance: float = 1e-4) -> DevicesReport:
        asked: dict[str, Any] = {"database": str(tmp_path / "tuning.db"), "progress": lambda: shown}
        asked |= {"again": again, "tolerance": tolerance}
        return tune_on_devices("zoo:tiny_cnn", ("cpu:0", "cpu:1"), budget=budget, **asked)

    first = tune("1m")
    done = len(calls)
    assert (done, len(first.placed), shown.notes) == (4, 2, [])
    second = tune("1m")
    assert len(calls) == done
    assert (second.tuned, second.placed, second.stopped) == (first.tuned, first.placed, False)
    assert [*shown.reports] == [*first.tuned]
    assert [note.startswith("this job ended ") for note in shown.notes] == [True]
    tune("2m")
    tune("2m", again=True)
    tune("2m", tolerance=0.0)
    assert len(calls) == 4 * done


@pytest.mark.parametrize("stop_at", range(5))
def test_a_stopped_job_goes_on_where_it_was(tmp_path, stop_at):
    placements: list[Mapping[str, str]] = [{"Conv": "cpu", "*": "cpu:1"}, {"*": "cpu:0"}]
    with Database(tmp_path / "tuning.db") as database:
        first = Searches(database, placements, stop_at)
        report = first.run()
        assert report.stopped
        second = Searches(database, placements)
        assert second.job.id == first.job.id
        rest = second.run()
        assert not rest.stopped
        whole = [(1, 30.0, 4), (2, 30.0, 3), "placement", (1, 12.5, 2), (2, 12.5, 1), "placement"]
        assert [*first.asked[:stop_at], *second.asked] == whole
        assert len(rest.skipped) == stop_at


def test_a_job_whose_process_is_gone_goes_on(tmp_path):
    with Database(tmp_path / "tuning.db") as database:
        first = Searches(database, [])
        assert first.job._begins("a search")
        first.job.heart.over()
        assert first.job._begins("another")
        (row,) = database.jobs()
        database.update_job(replace(row, owner=GONE))
        second = Searches(database, [])
        assert second.job.id == first.job.id
        assert not second.job._begins("a search")
        assert second.job._begins("another")
        assert len(database.jobs()) == 1


def test_the_whole_is_a_job_that_is_told_right_while_it_runs_and_when_it_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the middle of the second search: its state, what it does, its trials; and the newest job is the whole."""
    where = str(tmp_path / "tuning.db")
    with Database(where) as database:
        searches = Searches(database, [{"*": "cpu:1"}], stop_at=1)
        prepare(database)
        shown: dict[str, list[str]] = {}

        def look(target: Target, budget: Budget) -> Report:
            found = searches.tuned(target, budget)
            database.record(run_of("a", 1.0, job="search0"))
            for name in ("running", "killed"):
                assert run(["jobs", "--db", where]) == 0
                assert run(["status", "--db", where]) == 0
                shown[name] = capsys.readouterr().out.splitlines()
                for row in database.jobs():
                    database.update_job(replace(row, owner=GONE))
            return found

        searches.job.run(look, searches.placed)
    id_, line = searches.job.id, shown["running"][1]
    assert [line.split()[n] for n in (0, 1, 5, 6)] == [id_[:8], "running", "1", "-"]
    assert line.endswith("net on cpu:0, cpu:1, cpu")
    assert shown["running"][2].endswith("    m")  # a search stands below the whole
    begin = shown["running"].index(f"job {id_}: running")
    facts = {each.split()[0]: each.split(maxsplit=1)[1] for each in shown["running"][begin + 1 :]}
    assert (facts["trials"], facts["searches"]) == ("1", "search0, search1")
    assert facts["doing"] == "schedules for x86-64-v3, 2 threads: search: next: x"
    assert facts["worked"].endswith(" of 10 trials or 1m40s")
    assert [each.split()[1] for each in shown["killed"][1:] if each[0] != " "][:3] == ["killed"] * 3
    assert f"job {id_}: killed; process 1 is gone" in "\n".join(shown["killed"])


def test_the_report_of_the_whole_says_where_its_parts_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "tuning.db")
    with Database(where) as database:
        searches = Searches(database, [{"*": "cpu:1"}, {"*": "cpu:0"}])
        searches.run()
    assert run(["report", "--db", where]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "no report: it is a job of several searches, and each of them has one of its own: "
    )
    assert "`autotune report search0`" in last
    assert run(["jobs", "--db", where]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1:7:5] == ["done", "1.25×"]


def test_options_of_one_device_are_refused_beside_several():
    refuse_beside_devices({"--objective": False})
    with pytest.raises(UsageError) as caught:
        refuse_beside_devices({"--objective": True, "--no-transfer": True})
    assert str(caught.value) == (
        "--objective, --no-transfer given beside --devices\n  the devices say for what is tuned: leave out one of them"
    )


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_ranges_of_shapes_are_tuned_on_several_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of each bucket searches schedules and a placement; compiling finds both, and the numbers are right."""
    devices, database = ("cpu:0", "cpu:1"), str(tmp_path / "tuning.db")
    model = tmp_path / "open.onnx"
    model.write_bytes(images().SerializeToString())
    range_, on = ["--shape", "n=1..3:1,3"], ["--devices", ",".join(devices), "--db", database]
    assert run(["tune", str(model), "--trials", "16", *range_, *on, "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    buckets = [event["text"] for event in events if event["event"] == "bucket"]
    assert [text.split(":")[0] for text in buckets if text.startswith("tuning for")] == [
        "tuning for n = 3",
        "tuning for n = 1",
    ]
    assert sum(event["event"] == "placement" for event in events) == 4  # two of each bucket
    done = compile_request(
        CompileRequest(str(model), shapes={"n": "1..3:1,3"}, devices=devices, database=database)
    )
    for case in done.cases:
        assert "searched" in case.done.placement
        assert "not searched" not in case.done.placement
        assert any(dispatch.tier is Tier.EXACT for dispatch in case.done.coverage.dispatches)
    with autotune.Module(done.model) as module:
        for n in (1, 2, 3):
            check(module, images(), {"x": (n, 3, 8, 8)})
