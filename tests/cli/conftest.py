"""A tuned database that the tests of several commands read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.job_states import fill
from tests.once import made_once
from tests.patience import PATIENCE_S

MODEL = "zoo:tiny_cnn"
TRIALS = 20
DATABASE = "tuning.db"
EVENTS = "events.jsonl"
"""Events that the job has printed, beside its database."""


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that a short real job wrote."""
    return made_once(tmp_path_factory, "tuned", _tune) / DATABASE


@pytest.fixture
def job_states(tmp_path: Path) -> str:
    """A database with jobs in every state."""
    where = str(tmp_path / "tuning.db")
    fill(where)
    return where


def _tune(folder: Path) -> None:
    command = [sys.executable, "-m", "autotune.cli.main", "tune", MODEL]
    command += ["--trials", str(TRIALS), "--db", str(folder / DATABASE), "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    (folder / EVENTS).write_text(done.stdout)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "finished"
    assert events[-1]["trials"] == TRIALS
    assert events[-1]["models"][0]["gain"]["before"]["min_ns"] > 0
