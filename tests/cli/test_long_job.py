"""Jobs as shells, terminals and services end them, or stop to read them: each is a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from autotune.database import Database
from autotune.machine_lock import Measuring
from tests.patience import PATIENCE_S
from tests.product import write_product

ROOT = str(Path(__file__).parents[2])


def started(database: Path, *more: str, prepare: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    """A job that tunes a product of matrices, whose output is piped."""
    model = write_product(database.parent / "product.onnx")
    command = [sys.executable, "-m", "autotune.cli.main", "tune", model, "--json", "--threads", "1"]
    return subprocess.Popen(
        [*command, "--db", str(database), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT, "AUTOTUNE_HOME": str(database.parent)},
        preexec_fn=prepare,
    )


def read_until(job: subprocess.Popen[str], event: str) -> Sequence[dict[str, object]]:
    """The events of a job up to the first of a kind."""
    assert job.stdout is not None
    seen = []
    for line in job.stdout:
        seen.append(json.loads(line))
        if seen[-1]["event"] == event:
            return seen
    raise AssertionError(job.stderr.read() if job.stderr else "")


def runs(database: Path) -> int:
    with closing(sqlite3.connect(database)) as opened:
        return int(opened.execute("SELECT count(*) FROM runs").fetchone()[0])


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)])
def test_a_signal_ends_a_job_as_ctrl_c_does(name: str, tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    with started(database, "--trials", "100000") as job:
        read_until(job, "measured")
        job.send_signal(getattr(signal, name))
        job.send_signal(getattr(signal, name))  # as shells and terminals do
        events = read_until(job, "finished")
        assert job.wait() == 130
    assert events[-1]["stopped"] is True
    assert runs(database) == events[-1]["trials"] > 0
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT DISTINCT state FROM jobs").fetchall() == [("stopped",)]


def test_a_job_under_nohup_goes_on_when_nobody_reads_its_output(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    database = tmp_path / "tuning.db"
    with started(database, "--trials", "1", prepare=ignore) as job:
        read_until(job, "started")
        job.send_signal(signal.SIGHUP)
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.close()
        said = job.stderr.read()
        assert job.wait() == 0, said
    assert "nobody reads the output any more; the job goes on" in said
    assert runs(database) == 1
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT state FROM jobs").fetchall() == [("done",)]


@pytest.mark.parametrize("replaced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_job_whose_database_is_gone_ends_and_says_where_its_rows_are(
    replaced: bool, tmp_path: Path
) -> None:
    database = tmp_path / "tuning.db"
    with started(database, "--trials", "100000") as job:
        read_until(job, "measured")
        if replaced:
            Database(tmp_path / "other.db").close()
            os.replace(tmp_path / "other.db", database)
        else:
            database.unlink()
        out, said = job.communicate()
        assert job.returncode == 1, said
    happened = "was replaced by another file" if replaced else "was removed"
    assert f"error: the database {database} {happened} while it was in use" in said
    rescued = tmp_path / "tuning.rescued.db"
    assert f"all of its rows are in {rescued}" in said
    measured = 1 + sum(json.loads(line)["event"] == "measured" for line in out.splitlines())
    assert runs(rescued) in (measured, measured + 1)  # the last one is stored, and not reported
    assert "Traceback" not in said


def test_two_jobs_of_a_machine_take_turns_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for this process, and then for one another."""
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))
    database = tmp_path / "tuning.db"
    with Measuring("this test", print):
        jobs = [started(database, "--trials", "1", "--seed", str(n)) for n in range(2)]
        said = f"another job measures on this machine (process {os.getpid()}: this test)"
        for job in jobs:
            assert job.stdout is not None
            assert any(said in line for line in iter(job.stdout.readline, ""))
    trials = 0
    for job in jobs:
        out, err = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, err
        last = json.loads(out.splitlines()[-1])
        assert (last["event"], last["stopped"]) == ("finished", False)
        trials += last["trials"]
    assert runs(database) == trials >= 2
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT state FROM jobs").fetchall() == [("done",)] * 2
    with Database(database) as tuned:
        assert tuned.damage() == []
