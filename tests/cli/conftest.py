"""A tuned database that the tests of several commands read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = "zoo:tiny_cnn"
TRIALS = 20


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that a short real job wrote."""
    path = tmp_path_factory.mktemp("tuned") / "tuning.db"
    command = [sys.executable, "-m", "autotune.cli.main", "tune", MODEL]
    command += ["--trials", str(TRIALS), "--db", str(path), "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "finished"
    assert events[-1]["trials"] == TRIALS
    assert events[-1]["models"][0]["gain"]["before"]["min_ns"] > 0
    return path
