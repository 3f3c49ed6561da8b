"""The counts of ``autotune db stats``."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.db_stats import BY, lines_of, stats_of
from autotune.database import Database, WorkloadRow
from tests.database.examples import HOST, KEY, compare, job, prepare, run, schedules


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(tmp_path / "tuning.db")
    prepare(database)
    database.claim_job(job(), lambda owner: True)
    database.add_layers("j1", {KEY.workload: ["000_conv"]})
    for name, ns in (("a", 100.0), ("b", 80.0)):
        database.record(run(name, ns, job="j1"))
    first, second = database.records()
    compare(database, schedules((first, 75.0), (second, 60.0), won="b"))
    return database


def test_workloads_are_counted_by_model_family_and_target(database: Database) -> None:
    facts = stats_of(database)
    assert list(facts["by"]) == list(BY)
    counts = {"workloads": 1, "runs": 2, "confirmed_faster": 1, "gain": pytest.approx(1.25)}
    assert facts["by"]["model"] == [{"name": "m", **counts}]
    assert facts["by"]["family"] == [{"name": "contraction", **counts}]
    assert facts["by"]["target"] == [{"name": HOST.name, **counts}]
    *_, heading, line = lines_of(facts, None, "model")
    assert heading.split() == ["model", "workloads", "runs", "faster", "their", "speed-up"]
    assert line.split() == ["m", "1", "2", "1", "1.25×"]


def test_what_was_not_measured_is_counted_too(database: Database) -> None:
    database.add_workload(WorkloadRow("v" * 64, "text", "pool", 1, 1))
    facts = stats_of(database)
    assert [group["name"] for group in facts["by"]["model"]] == ["m", "no model"]
    assert facts["by"]["target"][0] == {
        "name": "not measured", "workloads": 1, "runs": 0, "confirmed_faster": 0, "gain": None
    }  # fmt: skip
