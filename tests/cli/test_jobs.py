"""``autotune jobs``, ``status`` and ``report`` on a database of jobs that ended in every way."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.cli.job_lines import chosen, jobs_of, status_lines, table
from autotune.database import Database, JobRow
from autotune.errors import UsageError
from autotune.tuning.jobs.owner import SILENT_S, Owner, owner
from tests.database.examples import job, prepare, run

GAIN = {"ratio": 0.8, "interval": [0.78, 0.82], "text": "", "speedup": 1.25}
SAID = {"phase": "search", "note": "next: a", "models": [{"model": "m", "confirmed": None}]}


def add(database: Database, name: str, who: str, *, silent_s: float = 0.0, **changes: object) -> None:
    now = time.time()
    fresh = replace(job(name=name, fingerprint=name, owner=who), created=now, updated=now - silent_s)
    changed = {"status": json.dumps(SAID), **changes}
    database.claim_job(replace(fresh, **changed), lambda _: True)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with jobs in every state."""
    where, gone = str(tmp_path / "tuning.db"), str(replace(Owner.here(), started="0.00"))
    with Database(where) as database:
        prepare(database)
        done = json.dumps(SAID | {"gains": {"m": GAIN}})
        add(database, "finished1234", gone, state=JobRow.DONE, elapsed_s=75.0, status=done)
        add(database, "stopped", gone, state=JobRow.STOPPED, status=json.dumps({"ended": "by SIGHUP"}))
        add(database, "killed", gone)
        add(database, "foreign", "elsewhere:7:1.00")
        add(database, "lost", "elsewhere:8:1.00", silent_s=2 * SILENT_S)
        add(database, "hung", owner(), silent_s=2 * SILENT_S, model="a model with quite a long name.onnx")
        database.record(run("a", 1.0, job="finished1234"))
        database.record(run("b", None, job="finished1234"))
    return where


STATES = {
    "finished1234": "done",
    "stopped": "stopped",
    "killed": "killed",
    "foreign": "running",
    "lost": "lost",
    "hung": "hung",
}


def test_each_job_is_said_as_what_it_is(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["jobs", "--db", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0]: line.split()[1] for line in lines[1:] if not line.startswith(" ")} == {
        name[:8]: state for name, state in STATES.items()
    }
    assert lines[1].split()[4:] == ["1m15s", "2", "1.25×", "m"]
    assert lines[3] == "  ended by SIGHUP; its command continues it"


def test_the_same_for_programs(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["jobs", "--db", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["jobs"]
    assert {each["id"]: each["state"] for each in found} == STATES
    first = found[0]
    assert (first["trials"], first["gain"]["speedup"], first["why"]) == (2, 1.25, None)
    assert (found[3]["host"], found[3]["pid"]) == ("elsewhere", 7)


def test_a_terminal_of_80_columns_is_enough(path: str) -> None:
    with Database(path, read_only=True) as database:
        jobs = jobs_of(database)
    lines = list(table(jobs, {state.job.id: 10**6 for state in jobs}, 80))
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("me.onnx") for line in lines)


def test_a_job_is_named_by_a_beginning_or_its_model(path: str) -> None:
    with Database(path, read_only=True) as database:
        assert chosen(database, "fin").job.id == "finished1234"
        assert chosen(database, "a model with quite a long name.onnx").job.id == "hung"
        assert chosen(database, "m").job.id == "lost"  # the newest of that model
        assert chosen(database, None).job.id == "hung"
        with pytest.raises(
            UsageError, match=r"2 jobs begin with 'f': finished1234, foreign; give more of it"
        ):
            chosen(database, "f")
        with pytest.raises(UsageError, match=r"no job 'killd' in .*; did you mean 'killed'\?"):
            chosen(database, "killd")


def test_a_database_without_jobs_says_how_to_begin_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "tuning.db")
    Database(where).close()
    assert cli.run(["jobs", "--db", where]) == 0
    assert capsys.readouterr().out == f"{where} has no jobs: `autotune tune MODEL --db {where}` begins one\n"


def test_the_status_says_what_a_job_does(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "foreign", "--db", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job foreign: running; on elsewhere, process 7, heard of ")
    facts = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:]}
    assert facts["doing"] == "search: next: a"
    assert facts["trials"] == "0"
    assert facts["worked"] == "0s of an unknown budget"
    assert facts["speed-up"].startswith("nothing confirmed yet: ")
    assert cli.run(["status", "finished", "--db", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["gain"]["speedup"], found["said"]["phase"]) == ("done", 1.25, "search")


def test_a_status_fits_a_terminal_of_80_columns(path: str) -> None:
    with Database(path, read_only=True) as database:
        for state in jobs_of(database):
            lines = list(status_lines(state, 10**6, "a CPU of a name as long as they are, 128 threads", 80))
            assert max(map(len, lines)) <= 80


def test_watching_ends_with_the_job(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("killed", "finished", "stopped", "lost"):
        assert cli.run(["status", name, "--db", path, "--watch"]) == 0
    assert sum(line.startswith("job ") for line in capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("killed", "the job ended before its search began"),
        ("foreign", "the job has not begun to search yet"),
    ],
)
def test_a_report_that_is_missing_says_why(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    assert cli.run(["report", name, "--db", path]) == 0
    assert f"\nno report: {why}" in capsys.readouterr().out
    assert cli.run(["report", name, "--db", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] is None
    assert found["missing"].startswith(why)
    assert cli.run(["report", name, "--db", path, "--html", str(tmp_path / "page.html")]) == 2
    assert f"job {name} has no report for a page: {why}" in capsys.readouterr().err
