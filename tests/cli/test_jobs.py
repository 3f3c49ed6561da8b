"""``autotune jobs``, ``status`` and ``report`` on a database of jobs that ended in every way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.cli.job_lines import chosen, jobs_of, status_lines, table
from autotune.database import Database
from autotune.errors import UsageError
from tests.cli.job_states import STATES


def test_each_job_is_said_as_what_it_is(job_states: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["jobs", "--db", job_states]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0]: line.split()[1] for line in lines[1:] if not line.startswith(" ")} == {
        name[:8]: state for name, state in STATES.items()
    }
    assert lines[1].split()[4:] == ["1m15s", "2", "1.25×", "m"]
    assert lines[3] == "  ended by SIGHUP; its command continues it"


def test_the_same_for_programs(job_states: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["jobs", "--db", job_states, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["jobs"]
    assert {each["id"]: each["state"] for each in found} == STATES
    first = found[0]
    assert (first["trials"], first["gain"]["speedup"], first["why"]) == (2, 1.25, None)
    assert (found[3]["host"], found[3]["pid"]) == ("elsewhere", 7)


def test_a_terminal_of_80_columns_is_enough(job_states: str) -> None:
    with Database(job_states, read_only=True) as database:
        jobs = jobs_of(database)
    lines = list(table(jobs, {state.job.id: 10**6 for state in jobs}, 80))
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("me.onnx") for line in lines)


def test_a_job_is_named_by_a_beginning_or_its_model(job_states: str) -> None:
    with Database(job_states, read_only=True) as database:
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


def test_the_status_says_what_a_job_does(job_states: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "foreign", "--db", job_states]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job foreign: running; on elsewhere, process 7, heard of ")
    facts = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:]}
    assert facts["doing"] == "search: next: a"
    assert facts["trials"] == "0"
    assert facts["worked"] == "0s of an unknown budget"
    assert facts["speed-up"].startswith("nothing confirmed yet: ")
    assert cli.run(["status", "finished", "--db", job_states, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["gain"]["speedup"], found["said"]["phase"]) == ("done", 1.25, "search")


def test_a_status_fits_a_terminal_of_80_columns(job_states: str) -> None:
    with Database(job_states, read_only=True) as database:
        for state in jobs_of(database):
            lines = list(status_lines(state, 10**6, "a CPU of a name as long as they are, 128 threads", 80))
            assert max(map(len, lines)) <= 80


def test_watching_ends_with_the_job(job_states: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("killed", "finished", "stopped", "lost"):
        assert cli.run(["status", name, "--db", job_states, "--watch"]) == 0
    assert sum(line.startswith("job ") for line in capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("killed", "the job ended before its search began"),
        ("foreign", "the job has not begun to search yet"),
    ],
)
def test_a_report_that_is_missing_says_why(
    job_states: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    assert cli.run(["report", name, "--db", job_states]) == 0
    assert f"\nno report: {why}" in capsys.readouterr().out
    assert cli.run(["report", name, "--db", job_states, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] is None
    assert found["missing"].startswith(why)
    assert cli.run(["report", name, "--db", job_states, "--html", str(tmp_path / "page.html")]) == 2
    assert f"job {name} has no report for a page: {why}" in capsys.readouterr().err
