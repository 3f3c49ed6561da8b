"""Merging databases, and forgetting keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Connection, Row

import autotune.database.merge as merge_module
from autotune.database import Database, Key, Run
from autotune.database.conflict import Prefer
from autotune.database.merge import diff, forget, merge
from tests.database.examples import KEY, compare, prepare, run, schedules


def filled(path: Path, *runs: Run) -> Database:
    database = Database(path)
    prepare(database)
    for one in runs:
        database.record(one)
    return database


def test_merging_adds_what_is_new_and_keeps_what_was_there(tmp_path: Path) -> None:
    source = filled(tmp_path / "source.db", run("a", 1.0), run("b", 2.0), run("c", None))
    found = source.records()[1]
    compare(source, schedules((found, 1.5), won=found.trace_key))
    with filled(tmp_path / "mine.db", run("a", 9.0)) as mine:
        report = merge(mine, source)
        assert (report.new, report.known, str(report)) == (
            2,
            1,
            "2 new runs, 1 known, 1 of these read differently",
        )
        assert [r.latency_ns for r in mine.records()[:2]] == [9.0, 2.0]
        assert [r.confirmed_ns for r in mine.records()] == [None, 1.5, None]
        assert merge(mine, source).new == 0
        assert len(mine.records()) == 3
        assert mine.damage() == []
    source.close()


def test_readings_whose_intervals_overlap_agree(tmp_path: Path) -> None:
    theirs = [run("a", 108.0, created=2.0), run("b", 150.0, created=2.0), run("c", None, created=0.5)]
    mine = [run("a", 100.0), run("b", 100.0), run("c", 100.0)]
    with filled(tmp_path / "theirs.db", *theirs) as source, filled(tmp_path / "mine.db", *mine) as here:
        found = diff(here, source)
        assert (found.here, found.there, found.both, len(found.conflicts)) == (0, 0, 3, 2)
        assert [c.trace_key for c in found.conflicts] == ["b", "c"]
        assert str(found.conflicts[1]).endswith("schedule c: 0.1 µs (0.1 to 0.1) here, crashed there")
        assert [c.taken for c in merge(here, source).conflicts] == [False, False]
        assert [r.latency_ns for r in here.records()] == [100.0, 100.0, 100.0]
        assert [c.taken for c in merge(here, source, Prefer.NEWER).conflicts] == [True, False]
        assert [r.latency_ns for r in here.records()] == [100.0, 150.0, 100.0]
        assert [c.taken for c in merge(here, source, Prefer.THEIRS).conflicts] == [True]
        assert [r.outcome for r in here.records()] == ["ok", "ok", "crashed"]
        assert here.damage() == []


def test_a_difference_names_the_keys_that_use_another_schedule(tmp_path: Path) -> None:
    runs = [run("a", 100.0), run("b", 100.0)]
    with filled(tmp_path / "theirs.db", *runs) as source, filled(tmp_path / "mine.db", *runs) as here:
        assert diff(here, source).used == ()
        first, second = source.records()
        compare(source, schedules((first, 70.0), (second, 60.0), won="b"))
        assert diff(here, source).used == (KEY,)
        assert str(diff(here, source)) == (
            "0 runs only here, 0 only there; of 2 in both 2 agree, 0 read differently; "
            "another schedule is used for 1 workload"
        )


def test_merging_into_an_empty_database(tmp_path: Path) -> None:
    with filled(tmp_path / "source.db", run("a", 1.0)) as source, Database(tmp_path / "new.db") as mine:
        assert merge(mine, source).new == 1
        assert mine.workload_rows() == source.workload_rows()
        assert mine.targets() == source.targets()


def test_forgetting_a_key_leaves_the_others(tmp_path: Path) -> None:
    other = replace(KEY, space="t" * 64)
    with filled(tmp_path / "a.db", run("a", 1.0), run("b", 2.0, key=other)) as database:
        found = database.records()[1]
        compare(database, schedules((found, 1.5), won=found.trace_key))
        assert sorted(database.tuned_keys(), key=str) == sorted([KEY, other], key=str)
        assert forget(database, [other, Key("x", "y", "z")]) == 1
        assert [r.trace_key for r in database.records()] == ["a"]
        assert database.damage() == []


def test_a_merge_has_a_part_of_the_runs_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, copy = list[int](), merge_module._copy

    def counted(connection: Connection, *, values: Sequence[Row[Any]], **more: Any) -> Any:
        sizes.append(len(values))
        return copy(connection, values=values, **more)

    monkeypatch.setattr(merge_module, "STREAMED", {"yield_per": 3})
    monkeypatch.setattr(merge_module, "_copy", counted)
    with Database(tmp_path / "a.db") as source, Database(tmp_path / "b.db") as into:
        prepare(source)
        for number in range(8):
            source.record(run(f"t{number}", 1.0))
        report = merge(into, source)
        assert (report.new, report.known, len(into.records())) == (8, 0, 8)
    assert max(sizes) == 3
