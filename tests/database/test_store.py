"""The tuning database: what is stored comes back, nothing is counted twice, misses say why."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.database import (
    ContestRow,
    Database,
    Hit,
    JobRow,
    Key,
    Latency,
    Miss,
    MissReason,
    Origin,
    Outcome,
    Rival,
    Run,
    WorkloadRow,
)
from autotune.database.engine import translated
from autotune.database.merge import merge
from autotune.errors import DatabaseError, MissingExtraError, SchemaVersionError, UsageError
from autotune.target import Target

HOST = Target.parse("x86-64-v3", threads=2)
OTHER = Target.parse("x86-64-v4", threads=8)
KEY = Key("w" * 64, HOST.key, "s" * 64)


def run(trace: str, ns: float | None, **changes: object) -> Run:
    latency = Latency(5, ns, ns * 1.1, ns * 0.05) if ns is not None else None
    outcome = Outcome.OK if latency else Outcome.CRASHED
    base = Run(KEY, trace, "[]", '{"tile": 4}', outcome, latency, created=1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.db"
    with Database(path) as database:
        prepare(database)
    return path


def prepare(database: Database) -> None:
    database.add_workload(WorkloadRow(KEY.workload, "text", "contraction", 10, 20))
    for target in (HOST, OTHER):
        database.add_target(target)
    for space in (KEY.space, "t" * 64):
        database.add_space(space, KEY.workload, "{}")


def test_a_run_comes_back_as_it_was_stored(path: Path) -> None:
    stored = run("a", 100.0, error=1e-6, message="m", host="h", versions="v", seed=3)
    with Database(path) as database:
        assert database.record(stored)
    with Database(path, read_only=True) as database:
        (found,) = database.records()
        assert replace(found, id=None) == stored
        assert database.workloads() == [WorkloadRow(KEY.workload, "text", "contraction", 10, 20)]
        assert database.targets() == {HOST.key: HOST, OTHER.key: OTHER}


def test_the_same_schedule_is_not_counted_twice(path: Path) -> None:
    with Database(path) as database:
        assert database.record(run("a", 100.0))
        assert not database.record(run("a", 50.0))
        assert [r.latency_ns for r in database.records()] == [100.0]


def test_best_is_the_fastest_that_worked(path: Path) -> None:
    with Database(path) as database:
        for trace, ns in [("a", 100.0), ("b", 80.0), ("c", None)]:
            database.record(run(trace, ns, origin=Origin.DEFAULT if trace == "a" else Origin.SEARCH))
        best = database.best(KEY.workload, KEY.target, KEY.space)
        assert isinstance(best, Run)
        assert best.trace_key == "b"
        hit = database.lookup(KEY.workload, KEY.target, KEY.space)
        assert isinstance(hit, Hit)
        assert (hit.runs, hit.ok, hit.speedup) == (3, 2, 1.25)
        assert [r.trace_key for r in database.top(KEY, 5)] == ["b", "a"]


def latency(ns: float) -> Latency:
    return Latency(9, ns, ns + 1.0, 1.0)


def test_the_winner_of_the_newest_confirmation_is_used(path: Path) -> None:
    with Database(path) as database:
        for trace, ns in [("a", 80.0), ("b", 81.0), ("c", 99.0)]:
            database.record(run(trace, ns, origin=Origin.DEFAULT if trace == "c" else Origin.SEARCH))
        a, b, c = database.records()
        database.confirm([Rival(a, latency(95.0)), Rival(b, latency(85.0), won=True)], "net")
        assert (_best(database).trace_key, _best(database).confirmed_ns, _best(database).inside) == (
            "b",
            85.0,
            "net",
        )
        tie = [Rival(a, latency(84.0)), Rival(b, latency(83.9)), Rival(c, latency(84.5), won=True)]
        database.confirm(tie, "other net")
        assert (_best(database).trace_key, _best(database).inside) == ("c", "other net")


def test_what_was_not_confirmed_is_believed_only_if_it_is_clearly_faster(path: Path) -> None:
    with Database(path) as database:
        database.record(run("default", 100.0, origin=Origin.DEFAULT))
        database.record(run("lucky", 92.0))
        assert _best(database).trace_key == "default"
        database.record(run("fast", 80.0))
        assert _best(database).trace_key == "fast"
        default, _, fast = database.records()
        database.confirm([Rival(default, latency(90.0)), Rival(fast, latency(70.0), won=True)], "net")
        database.record(run("d", 75.0))
        assert _best(database).trace_key == "fast"
        database.record(run("e", 70.0))
        assert _best(database).trace_key == "e"


def test_a_confirmation_has_one_winner(path: Path) -> None:
    with Database(path) as database:
        database.record(run("a", 80.0))
        (a,) = database.records()
        with pytest.raises(DatabaseError, match="one winner"):
            database.confirm([Rival(a, latency(1.0))], "net")
        with pytest.raises(DatabaseError, match="came from the database"):
            database.confirm([Rival(run("b", 1.0), latency(1.0), won=True)], "net")


def _best(database: Database) -> Run:
    best = database.best(KEY.workload, KEY.target, KEY.space)
    assert isinstance(best, Run)
    return best


@pytest.mark.parametrize(
    ("rows", "reason", "words"),
    [
        ([], MissReason.NO_WORKLOAD, "not in the database; run `autotune tune`"),
        ([{"target": OTHER.key}], MissReason.OTHER_TARGET, "only for other targets (x86-64-v4, 8"),
        ([{"space": "t" * 64}], MissReason.OTHER_SPACE, "in another search space (1 known)"),
        ([{}], MissReason.ALL_FAILED, "all 1 measured candidates failed (1 crashed)"),
    ],
)
def test_a_miss_says_why_and_what_to_run(
    path: Path, rows: list[dict[str, str]], reason: MissReason, words: str
) -> None:
    with Database(path) as database:
        for changes in rows:
            database.record(run("a", None, key=replace(KEY, **changes)))
        for answer in (
            database.best(KEY.workload, KEY.target, KEY.space),
            database.lookup(KEY.workload, KEY.target, KEY.space),
        ):
            assert isinstance(answer, Miss)
            assert answer.reason is reason
            assert words in str(answer)


def test_runs_can_be_narrowed_and_followed(path: Path) -> None:
    with Database(path) as database:
        database.record(run("a", 1.0))
        database.record(run("b", 2.0, key=replace(KEY, space="t" * 64)))
        assert [r.trace_key for r in database.records(space=KEY.space)] == ["a"]
        last = database.records()[-1].id
        assert last is not None
        database.record(run("c", 3.0))
        assert [r.trace_key for r in database.records(after=last)] == ["c"]
        assert database.outcomes() == {"ok": 3}


def job(fingerprint: str = "f", owner: str = "me", name: str = "j1") -> JobRow:
    return JobRow(name, fingerprint, "m", HOST.key, "{}", JobRow.RUNNING, owner, 0.0, 1.0, 1.0)


def test_a_job_is_continued_only_when_its_owner_is_gone(path: Path) -> None:
    with Database(path) as database:
        first = database.claim_job(job(), alive=lambda owner: True)
        assert first.id == "j1"
        assert database.claim_job(job(name="j2", owner="you"), lambda owner: True).id == "j2"
        taken = database.claim_job(job(name="j3", owner="new"), lambda owner: owner == "you")
        assert (taken.id, taken.owner) == ("j1", "new")
        database.update_job(replace(taken, state=JobRow.DONE))
        database.update_job(replace(job(name="j2"), state=JobRow.STOPPED, elapsed_s=4.0))
        stopped = database.claim_job(job(name="j4"), lambda owner: True)
        assert (stopped.id, stopped.elapsed_s) == ("j2", 4.0)


def _write(path: Path, prefix: str, count: int) -> None:
    with Database(path) as database:
        for i in range(count):
            database.record(run(f"{prefix}{i}", 1.0 + i))
            database.record(run(f"shared{i}", 1.0 + i))


def test_several_processes_write_at_once(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_write, args=(path, name, 20)) for name in "xy"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    with Database(path) as database:
        assert len(database.records()) == 60


def test_what_was_recorded_survives_kill_9(path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\nfrom test_store import Database, run\n"
        "with Database(Path(sys.argv[1])) as d:\n"
        "    for i in range(10**6):\n"
        "        d.record(run(str(i), 1.0)); print(i, flush=True)\n"
    )
    here = str(Path(__file__).parent)
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path), here], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(25):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    said = 25 + len([line for line in writer.stdout if line.endswith("\n")])
    writer.wait()
    with Database(path) as database:
        kept = [r.trace_key for r in database.records()]
    assert kept == [str(i) for i in range(len(kept))]
    assert said <= len(kept) <= said + 1


def test_a_newer_schema_is_refused_with_both_versions(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    raw.close()
    with pytest.raises(SchemaVersionError) as caught:
        Database(path)
    assert str(caught.value) == (
        f"the database {path} has schema version 99, this autotune knows version 4; "
        "install a newer autotune, or give another --db"
    )


def test_files_that_are_no_tuning_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.db"
    text.write_text("hello, this is not a database at all\n" * 50)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as raw:
        raw.execute("CREATE TABLE songs (name TEXT)")
    raw.close()
    for path, words in [
        (text, "it is not a database file"),
        (foreign, "it holds other tables (songs)"),
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "such.db", "its folder does not exist"),
        (Path("/proc/tuning.db"), "it cannot be opened or created"),
    ]:
        with pytest.raises(DatabaseError) as caught:
            Database(path)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"no such database: .*; `autotune tune --db"):
        Database(tmp_path / "none.db", read_only=True)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune\[postgres\]'"):
        Database("postgresql://server/db")
    with pytest.raises(UsageError, match="not a database URL"):
        Database("nosuch://server/db")


def test_a_locked_database_says_so(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with Database(path, read_only=True) as reader:
        assert reader.records() == []
    with pytest.raises(DatabaseError, match="another process keeps it locked"):
        Database(path, timeout=0.05)
    raw.close()


def test_a_full_disk_says_so_and_loses_nothing(path: Path) -> None:
    with Database(path) as database:
        database.record(run("a", 1.0))
        with database._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 20")
        with pytest.raises(DatabaseError, match="the disk is full"):
            database.record(run("b", 1.0, message="x" * 10**6))
        assert [r.trace_key for r in database.records()] == ["a"]


def test_reading_never_writes(path: Path) -> None:
    before = path.read_bytes()
    with Database(path, read_only=True) as database:
        with pytest.raises(DatabaseError, match="opened for reading only"):
            database.record(run("a", 1.0))
        assert database.records() == []
    assert path.read_bytes() == before


def test_exact_lookup_does_not_read_the_whole_table(path: Path) -> None:
    with Database(path) as database, database._writing() as connection:
        from autotune.database import rows

        query = str(
            rows.select_fastest(KEY, 5).compile(database._engine, compile_kwargs={"literal_binds": True})
        )
        plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + query).all()
    assert any("USING INDEX fastest" in str(line) for line in plan)
    assert not any("SCAN runs" in str(line) for line in plan)


def test_time_stamps_are_filled_in(path: Path) -> None:
    before = time.time()
    with Database(path) as database:
        database.record(run("a", 1.0, created=0.0))
        assert before <= database.records()[0].created <= time.time()


@pytest.mark.parametrize("name", ["a b.db", "50%41.db", "what?.db", "a#1.db", "ünï.db", "a&b=c.db"])
def test_any_file_name(tmp_path: Path, name: str) -> None:
    Database(tmp_path / name).close()
    assert name in {path.name for path in tmp_path.iterdir()}
    with Database(tmp_path / name, read_only=True) as store:
        assert store.records() == []


def test_message_that_is_not_text() -> None:
    with pytest.raises(DatabaseError, match="the file is damaged"), translated("x.db"):
        b"\x9e".decode()


def contestants(*named: tuple[str, float | None]) -> list[ContestRow]:
    return [
        ContestRow(name, "k" * 64, None if ns is None else Latency(5, ns, ns * 1.1, 1.0), 1e-6, "m")
        for name, ns in named
    ]


def test_the_newest_contest_is_found_again(path: Path) -> None:
    with Database(path) as database:
        assert database.contest(KEY.workload, KEY.target) == []
        database.record_contest(KEY.workload, KEY.target, contestants(("a", 1.0), ("b", 2.0)))
        newest = contestants(("a", 3.0), ("c", None))
        database.record_contest(KEY.workload, KEY.target, newest)
        found = database.contest(KEY.workload, KEY.target)
        assert [replace(row, created=0.0) for row in found] == newest
        assert database.contest(KEY.workload, OTHER.key) == []


def as_version_1(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TABLE contests")
        raw.execute("DROP TABLE verdicts")
        raw.execute("DROP TABLE layers")
        raw.execute("CREATE TABLE confirmations (id INTEGER, run_id INTEGER REFERENCES runs (id))")
        raw.execute("INSERT INTO confirmations VALUES (1, 1)")
        raw.execute("UPDATE meta SET value = '1' WHERE name = 'schema_version'")
    raw.close()


def test_a_database_of_version_1_is_read_as_it_is_and_brought_up_to_date_by_writing(path: Path) -> None:
    with Database(path) as database:
        database.record(run("a", 5.0))
    as_version_1(path)
    with Database(path, read_only=True) as database:
        assert len(database.records()) == 1
        assert _best(database).trace_key == "a"
        assert isinstance(database.lookup(KEY.workload, KEY.target, KEY.space), Hit)
        assert database.contest(KEY.workload, KEY.target) == []
        assert database.runs()["layer"].tolist() == [""]
    with Database(path) as database:
        assert len(database.records()) == 1
        database.record_contest(KEY.workload, KEY.target, contestants(("a", 1.0)))
        database.confirm([Rival(database.records()[0], latency(4.0), won=True)], "net")
        assert database.damage() == []
    with Database(path, read_only=True) as database:
        assert [row.name for row in database.contest(KEY.workload, KEY.target)] == ["a"]


def test_contests_are_merged_once_and_databases_of_version_1_have_none(path: Path, tmp_path: Path) -> None:
    with Database(path) as source, Database(tmp_path / "into.db") as into:
        source.record_contest(KEY.workload, KEY.target, contestants(("a", 1.0)))
        for _ in range(2):
            merge(into, source)
        assert into.contest(KEY.workload, KEY.target) == source.contest(KEY.workload, KEY.target)
    as_version_1(path)
    with Database(path, read_only=True) as source, Database(tmp_path / "other.db") as into:
        merge(into, source)
        assert into.contest(KEY.workload, KEY.target) == []
