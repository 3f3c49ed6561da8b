"""Every dispatch is answered by a labelled tier: as text, as JSON, by ``query``, ``explain`` and ``compile`` alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotune.cli import main as cli
from autotune.compiler import divide
from autotune.compiler.plan import plan_of
from autotune.compiler.tiers import Tier, listed_tiers
from autotune.database import Database
from autotune.passes.preference import Preference
from autotune.target import Target
from tests.cli.conftest import MODEL
from tests.compiler.test_tiers import tuned

TUNED = Target.parse("x86-64-v3", threads=2)
ONE_THREAD = ("--target", "x86-64-v3", "--threads", "1")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model tuned with two threads; of every other workload with little success."""
    path = tmp_path_factory.mktemp("tiers") / "tuning.db"
    workloads = [dispatch.workload for dispatch in divide(MODEL).dispatches]
    schedules = plan_of(list(dict.fromkeys(workloads)), TUNED, None, Preference()).schedules
    with Database(path) as store:
        for number, planned in enumerate(schedules.values()):
            tuned(store, planned.workload, TUNED, (0.5, 1.0)[number % 2])
    return path


def run(capsys: pytest.CaptureFixture[str], command: str, *arguments: object) -> str:
    assert cli.run([command, MODEL, *map(str, arguments)]) == 0
    return capsys.readouterr().out


def found(capsys: pytest.CaptureFixture[str], command: str, *arguments: object) -> Any:
    return json.loads(run(capsys, command, "--json", *arguments))


def test_another_number_of_threads_is_answered_by_labelled_tiers(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_BUILDERS", "1")  # what this process knows already need no worker find out
    asked = ("--db", database, *ONE_THREAD)
    explained = found(capsys, "explain", *asked)
    tiers = {row["name"]: Tier(row["tier"]) for row in explained["dispatches"]}
    assert {Tier.TARGET} < set(tiers.values()) <= {Tier.TARGET, Tier.SHAPE, Tier.ANALYTIC}
    answers = [answer for answer in found(capsys, "query", *asked) if answer["used"]]
    assert {name: answer["tier"] for answer in answers for name in answer["dispatches"]} == tiers
    for answer in answers:
        assert (answer["transfer"] is not None) == (answer["tier"] != Tier.ANALYTIC)
        assert answer["latency_ns"] > 0
    summary, _, *lines, last = run(capsys, "query", *asked).splitlines()
    assert summary.endswith(f": {listed_tiers(tiers.values())}")
    labels = [re.search(r"\)  ([a-z ]+): ", line) for line in lines]
    assert {label[1] if label else "" for label in labels} == set(tiers.values())
    text = run(capsys, "explain", *asked)
    assert f"schedules: {listed_tiers(tiers.values())}" in text
    for name, tier in tiers.items():
        assert re.search(rf"^  {name}  \w+  [0-9a-f]{{12}}  {tier}: ", text, re.M)
    assert last.startswith(
        f"{len(tiers)} dispatches not measured for this target: run `autotune tune {MODEL} --db "
    )
    assert "--target x86-64-v3 --threads 1" in last
