"""Merging databases, and forgetting keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.database import Database, Key, Run
from autotune.database.merge import forget, merge
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
        assert (report.new, report.known, str(report)) == (2, 1, "2 new runs, 1 were known")
        assert [r.latency_ns for r in mine.records()[:2]] == [9.0, 2.0]
        assert [r.confirmed_ns for r in mine.records()] == [None, 1.5, None]
        assert merge(mine, source).new == 0
        assert len(mine.records()) == 3
        assert mine.damage() == []
    source.close()


def test_merging_into_an_empty_database(tmp_path: Path) -> None:
    with filled(tmp_path / "source.db", run("a", 1.0)) as source, Database(tmp_path / "new.db") as mine:
        assert merge(mine, source).new == 1
        assert mine.workloads() == source.workloads()
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
