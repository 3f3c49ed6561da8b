"""Lookups read what they need: by indexes, and of thousands of candidates only those that may be faster."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, event
from sqlalchemy.engine import Connection

from autotune.database import Database, Origin, Run, schema, statements
from autotune.database.inside import estimates
from autotune.database.posterior import CERTAIN, decided
from autotune.database.records import Comparison, Key, Latency, Ratio, Reading, WorkloadRow
from tests.database.examples import KEY, prepare, run


@pytest.mark.parametrize("last", ["defaults", "fastest"])
@pytest.mark.parametrize(
    ("query", "index"),
    [
        (statements.select_default(), "defaults"),
        (statements.select_default(alive=True), "defaults"),
        (statements.count_defaults(), "defaults"),
        (statements.count_outcomes(), "fastest"),
        (statements.select_winner(), "compared"),
        (statements.select_crashes(), "compared"),
        (statements.select_comparison(of_key=True), "compared"),
        (statements.select_readings_below(), "read"),
        (statements.select_run(), "sqlite_autoindex_runs_1"),
    ],
)
def test_what_a_lookup_asks_is_found_by_an_index(
    tmp_path: Path, query: Select[Any], index: str, last: str
) -> None:
    """Whichever index was made last, as by an upgrade or an import."""
    values = statements.parameters(KEY, bound=0.9, trace="a")

    def explained(connection: Connection) -> list[str]:
        given = {name: values[name] for name in query.compile(connection).params if name in values}
        text = query.params(given).compile(connection, compile_kwargs={"literal_binds": True})
        return [str(line) for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]

    made_last = next(found for found in schema.runs.indexes if found.name == last)

    def remake(connection: Connection) -> None:
        made_last.drop(connection)
        made_last.create(connection)

    with Database(tmp_path / "x.db") as database:
        database.session.write(remake)
        plan = database.session.read(explained)
    assert any(f"INDEX {index} " in line for line in plan), plan
    assert not any("SCAN" in line for line in plan), plan


@pytest.mark.parametrize("slow", [0.8, 1.0, 1.5])
def test_all_that_may_be_faster_is_looked_at(tmp_path: Path, slow: float) -> None:
    rng = random.Random(f"{slow}")
    with Database(tmp_path / "x.db") as database:
        prepare(database)
        database.record(run("default", 100.0, origin=Origin.DEFAULT))
        names = [f"t{number}" for number in range(12)]
        for name in names:
            database.record(run(name, 100.0))
        for _ in range(2):
            read = [Reading(name, slow * rng.uniform(0.7, 1.3), rng.randint(1, 5), 90.0) for name in names]
            database.read_inside(KEY, read, "net")
        known = {trace: found.posterior for trace, found in estimates(database.readings(KEY)).items()}
        best = database.best(KEY.workload, KEY.target, KEY.space)
    assert isinstance(best, Run)
    assert best.trace_key == decided(known | {"default": CERTAIN}, "default")


@pytest.mark.parametrize("any_target", [False, True])
def test_what_is_near_is_asked_in_three_queries_however_many_are(tmp_path: Path, any_target: bool) -> None:
    asked = WorkloadRow("asked", "v0 = Relu(i0) : float32[16]", "elementwise", 1, 1)
    with Database(tmp_path / "x.db") as database:
        prepare(database)
        here = next(iter(database.targets().values()))
        for size in range(1, 9):
            key = Key(f"{size}", here.key, f"s{size}")
            row = WorkloadRow(key.workload, f"v0 = Relu(i0) : float32[{size}]", "elementwise", 1, 1)
            database.add_workload(row)
            database.add_space(key.space, key.workload, "{}")
            database.record(run("default", 100.0, key=key))
            database.record(run("faster", 50.0, key=key))
        said = list[str]()
        event.listen(database.session._engine, "before_cursor_execute", lambda *given: said.append(given[2]))
        found = database.near(asked, here, "space", any_target=any_target)
    assert [(near.key.workload, near.runs) for near in found] == [(f"{n}", 2) for n in range(8, 0, -1)]
    assert len([text for text in said if text.startswith("SELECT")]) == 3


def test_kin_comes_after_other_sizes_the_nearest_by_its_work(tmp_path: Path) -> None:
    asked = WorkloadRow("asked", "v0 = Relu(i0) : float32[16]", "elementwise", 100, 100)
    texts = {
        "far": ("v0 = Relu(i0) : float32[999]", 9000, 9000),
        "kin": ("v0 = Abs(i0) : float32[8]", 200, 100),
        "far kin": ("v0 = Abs(i0) : float32[8]", 100, 1000),
        "kin in another type": ("v0 = Abs(i0) : int8[8]", 100, 100),
        "the same in another type": ("v0 = Relu(i0) : bfloat16[16]", 100, 100),
    }
    with Database(tmp_path / "x.db") as database:
        prepare(database)
        here = next(iter(database.targets().values()))
        for name, (text, flops, nbytes) in texts.items():
            database.add_workload(WorkloadRow(name, text, "elementwise", flops, nbytes))
            database.add_space(f"s{name}", name, "{}")
            database.record(run("default", 100.0, key=Key(name, here.key, f"s{name}")))
        alone = database.near(asked, here, "space")
        found = database.near(asked, here, "space", with_kin=True)
    assert [near.key.workload for near in alone] == ["far"]
    assert [(near.key.workload, near.kin) for near in found] == [
        ("far", False),
        ("kin", True),
        ("far kin", True),
    ]


def test_leaders_are_what_was_faster_inside_models(tmp_path: Path) -> None:
    with Database(tmp_path / "x.db") as database:
        prepare(database)
        database.record(run("default", 100.0, origin=Origin.DEFAULT))
        ratios = {"fast": 0.5, "faster": 0.4, "crashing": 0.3, "lost": 0.6, "slow": 1.2, "fair": 0.8}
        for name in ratios:
            database.record(run(name, 100.0))
        database.read_inside(KEY, [Reading(name, ratio, 98, 90.0) for name, ratio in ratios.items()], "net")
        database.crashed_inside(KEY, {"crashing": ""}, "net")
        numbers = {found.trace_key: found.id for found in database.records(workload=KEY.workload)}
        took, ratio = Latency(9, 1.0, 1.0, 0.0), Ratio(1.1, (1.0, 1.2))
        compared = [
            Comparison("default", KEY.space, took, True, run=numbers["default"]),
            Comparison("lost", KEY.space, took, False, ratio, numbers["lost"]),
        ]
        database.compared(KEY.workload, KEY.target, "schedule", compared, "net")
        found = database.leaders(KEY, 9)
        assert database.leaders(KEY, 1) == found[:1]
    assert [one.trace_key for one, _ in found] == ["faster", "fast", "fair"]  # three processes against one
    assert [ratio for _, ratio in found] == sorted(ratio for _, ratio in found)
    assert all(ratios[one.trace_key] < ratio < 1 for one, ratio in found)
