"""``autotune lock`` and ``autotune compile --lock``: the same code by any process, whatever its database has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.runtime.artifacts import artifact
from tests.cli.conftest import MODEL


@pytest.fixture(scope="module")
def lock(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lock") / "model.lock"
    assert cli.run(["lock", MODEL, "-o", str(path), "--db", str(tuned), "--threads", "1"]) == 0
    return path


def test_another_process_without_the_database_makes_the_same_code(
    lock: Path, tuned: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here.atm", tmp_path / "there.atm"
    assert cli.run(["compile", MODEL, "-o", str(here), "--db", str(tuned), "--threads", "1"]) == 0
    command = [
        sys.executable,
        "-m",
        "autotune.cli.main",
        "compile",
        MODEL,
        "-o",
        str(there),
        "--lock",
        str(lock),
    ]
    done = subprocess.run(
        [*command, "--json"],
        env={**os.environ, "AUTOTUNE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["database"] == str(lock)
    mine, its = artifact.load_image(here), artifact.load_image(there)
    assert mine.same_code(its)
    assert [d.trace_json for d in mine.dispatches] == [d.trace_json for d in its.dispatches]


def test_what_a_lock_pins_is_not_given_again(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--threads", "1", "--tolerance", "0"]
    assert cli.run(["compile", MODEL, "-o", "no.atm", "--lock", str(lock), *given]) == 2
    assert capsys.readouterr().err == (
        f"error: threads, tolerance given together with the lock {lock}\n"
        "  which pins what these choose: leave them out, or make another lock with them\n"
    )


def test_a_lock_as_json(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.lock"
    assert cli.run(["lock", MODEL, "-o", str(path), "--db", str(tuned), "--threads", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lock"] == str(path)
    assert found["database"] == str(tuned)
    assert found["schedules"] == len(json.loads(path.read_text())["schedules"])
