"""A tuned database that the tests of several commands read, and a browser that shows pages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.bench.chromium import Browser, binary
from tests.cli.job_states import fill
from tests.once import made_once
from tests.patience import PATIENCE_S

MODEL = "zoo:tiny_cnn"
TRIALS = 12
DATABASE = "tuning.db"
EVENTS = "events.jsonl"
"""Events that the job has printed, beside its database."""
SIZES = [(1400, False), (1400, True), (400, False), (400, True)]
"""Widths of the window, and whether it is dark."""


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser; the test is skipped where none is installed."""
    path = binary()
    if path is None:
        pytest.skip("no Chromium is installed; on Debian: apt-get install chromium")
    found = Browser(path, tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def rules() -> str:
    """The script of axe-core, which finds what people with other senses or means cannot use."""
    package = pytest.importorskip("axe_core_python", reason="the extra test is not installed")
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def faults(browser: Browser, rules: str, width: int) -> list[object]:
    """Return what is wrong with the page that a browser shows: wider than the window, or not for everybody."""
    browser.value(rules)
    found = browser.value("axe.run().then(all => all.violations)")
    wide = browser.value("document.documentElement.scrollWidth")
    broken = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
    return broken + ([("width", wide)] if wide > width else [])


def _tune(folder: Path) -> None:
    command = [sys.executable, "-m", "autotune.cli.main", "tune", MODEL]
    command += ["--trials", str(TRIALS), "--db", str(folder / DATABASE), "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    (folder / EVENTS).write_text(done.stdout)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "finished"
    assert events[-1]["trials"] == TRIALS
    assert events[-1]["models"][0]["gain"]["before"]["min_ns"] > 0
