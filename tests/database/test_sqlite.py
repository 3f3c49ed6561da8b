"""A tuning database in an SQLite file."""

from __future__ import annotations

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from autotune.cli import main as cli
from autotune.database import Database, Run, statements
from autotune.database.address import DatabaseAddress
from autotune.database.failures import translated
from autotune.database.merge import merge
from autotune.database.records import Reading
from autotune.errors import DatabaseError, MissingExtraError, UsageError
from tests.database.conformance import Conformance
from tests.database.examples import KEY, options, prepare, run, schedules


class TestSqlite(Conformance):
    """All that every database must do."""

    @pytest.fixture
    def empty(self, tmp_path: Path) -> str:
        return str(tmp_path / "tuning.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.db"
    with Database(path) as database:
        prepare(database)
    return path


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
    with pytest.raises(UsageError, match=r"no such database: .*; `autotune tune MODEL --db"):
        Database(tmp_path / "none.db", read_only=True)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-compiler\[postgres\]'"):
        Database("postgresql://server/db")
    with pytest.raises(UsageError, match="not a database URL"):
        Database("nosuch://server/db")


def test_a_locked_database_says_so(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with Database(path, read_only=True) as reader:
        assert reader.records() == []
    with Database(path, timeout=0.05) as writer:
        with pytest.raises(DatabaseError, match="another process keeps it locked"):
            writer.record(run("a", 1.0))
        raw.execute("COMMIT")
        assert writer.record(run("a", 1.0))
    raw.close()


def test_a_full_disk_says_so_and_loses_nothing(path: Path) -> None:
    with Database(path) as database:
        database.record(run("a", 1.0))
        database.session.read(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 20"))
        with pytest.raises(DatabaseError, match="the disk is full"):
            database.record(run("b", 1.0, message="x" * 10**6))
        assert [r.trace_key for r in database.records()] == ["a"]


def test_exact_lookup_does_not_read_the_whole_table(path: Path) -> None:
    def explained(connection: Connection) -> list[str]:
        query = statements.select_fastest().params(statements.parameters(KEY, count=5))
        query = query.compile(connection, compile_kwargs={"literal_binds": True})
        return [str(line) for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]

    with Database(path) as database:
        plan = database.session.read(explained)
    assert any("USING INDEX fastest" in line for line in plan)
    assert not any("SCAN runs" in line for line in plan)


@pytest.mark.parametrize("name", ["a b.db", "50%41.db", "what?.db", "a#1.db", "ünï.db", "a&b=c.db"])
def test_any_file_name(tmp_path: Path, name: str) -> None:
    Database(tmp_path / name).close()
    assert name in {path.name for path in tmp_path.iterdir()}
    with Database(tmp_path / name, read_only=True) as store:
        assert store.records() == []


def test_message_that_is_not_text() -> None:
    with pytest.raises(DatabaseError, match="the file is damaged"), translated(DatabaseAddress(Path("x.db"))):
        b"\x9e".decode()


def test_only_a_database_that_is_there_is_upgraded(tmp_path: Path) -> None:
    assert cli.run(["db", "upgrade", "--db", str(tmp_path / "none.db")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_comparisons_are_merged_once(path: Path, tmp_path: Path) -> None:
    with Database(path) as source, Database(tmp_path / "into.db") as into:
        source.record(run("a", 5.0))
        source.compared(KEY.workload, KEY.target, "option", options(("a", 1.0), won="a"), "net")
        winner = schedules((source.records()[0], 1.0), won="a")
        source.compared(KEY.workload, KEY.target, "schedule", winner, "net")
        source.read_inside(KEY, [Reading("a", 0.9, 3, 90.0)], "net")
        prepare(into)
        into.record(run("b", 9.0))  # so that runs have other numbers there
        for _ in range(2):
            merge(into, source)
        for site in ("option", "schedule"):
            theirs = source.comparison(KEY.workload, KEY.target, site)
            mine = into.comparison(KEY.workload, KEY.target, site)
            assert [replace(row, run=None) for row in mine] == [replace(row, run=None) for row in theirs]
        assert _best(into).trace_key == "a"
        assert into.readings(KEY) == source.readings(KEY)


def test_what_crashed_inside_a_model_is_merged(path: Path, tmp_path: Path) -> None:
    with Database(path) as source, Database(tmp_path / "into.db") as into:
        for trace in ("a", "b"):
            source.record(run(trace, 5.0))
        source.crashed_inside(KEY, {"a": "it hung"}, "net")
        merge(into, source)
        found = {run.trace_key: run.crashed for run in into.records() if run.crashed}
        assert found == {"a": "crashed inside the model: it hung"}
        assert _best(into).trace_key == "b"


def _best(database: Database) -> Run:
    best = database.best(KEY.workload, KEY.target, KEY.space)
    assert isinstance(best, Run)
    return best
