"""Every version of the schema is brought up to date, from a database as that version stored it.

The files in ``versions`` are SQL text: the tables by the schema of that version, and a row or more in each. A change of
the schema gets a file for the new version, and leaves the others as they are.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from autotune.cli import main as cli
from autotune.database import Database, Footprint, Run, schema
from autotune.database.address import DatabaseAddress
from autotune.database.records import DEVICES
from autotune.errors import SchemaVersionError
from tests.database.examples import KEY, options, run
from tests.database.server import Server

FOLDER = Path(__file__).parent / "versions"
VERSIONS = range(schema.OLDEST, schema.VERSION + 1)
ON_SERVERS = [version for version in VERSIONS if version >= 4]
"""The versions of autotune before had files only."""

Make = Callable[[int], str]


def statements(version: int) -> list[str]:
    text = (FOLDER / f"{version}.sql").read_text(encoding="utf-8")
    return [statement for statement in text.split(";\n") if statement.strip()]


@pytest.fixture
def file(tmp_path: Path) -> Make:
    """The path of a file as a version stored it."""

    def make(version: int) -> str:
        path = tmp_path / f"{version}.db"
        with sqlite3.connect(path) as raw:
            for statement in statements(version):
                raw.execute(statement)
        raw.close()
        return str(path)

    return make


@pytest.fixture
def on_server(server: Server) -> Make:
    """The URL of a database as a version stored it; numbers of rows are counted by the server."""

    def make(version: int) -> str:
        url = server.create()
        engine = sqlalchemy.create_engine(DatabaseAddress.parse(url).server)
        with engine.begin() as connection:
            for statement in statements(version):
                connection.exec_driver_sql(statement.replace("  id INTEGER NOT NULL", "  id SERIAL NOT NULL"))
        engine.dispose()
        return url

    return make


def structure(database: Database) -> dict[str, Any]:
    """Columns, indexes and constraints of every table, by name."""

    def read(connection: sqlalchemy.Connection) -> dict[str, Any]:
        inspector = sqlalchemy.inspect(connection)
        any_size = connection.dialect.name == "sqlite"  # whole numbers of every type alike

        def kind(declared: object) -> str:
            return "INTEGER" if any_size and str(declared) == "BIGINT" else str(declared)

        return {
            table: {
                "columns": {
                    c["name"]: (kind(c["type"]), c["nullable"]) for c in inspector.get_columns(table)
                },
                "indexes": {i["name"]: i["column_names"] for i in inspector.get_indexes(table)},
                "unique": sorted(
                    map(str, (u["column_names"] for u in inspector.get_unique_constraints(table)))
                ),
                "refers": sorted(
                    (f["constrained_columns"], f["referred_table"]) for f in inspector.get_foreign_keys(table)
                ),
            }
            for table in inspector.get_table_names()
        }

    return database.session.read(read)


def check(where: str, version: int, fresh: str) -> None:
    """A database of a version is refused by readers, unless it lacks indexes alone, and afterwards as good as a new one
    that has what it had."""
    if version >= schema.READABLE:
        with Database(where, read_only=True) as database:
            check_contents(database, version)
    else:
        with pytest.raises(
            SchemaVersionError, match=f"has schema version {version}, this autotune reads version"
        ):
            Database(where, read_only=True)
    with Database(where) as database, Database(fresh) as new:
        assert structure(database) == structure(new)
    with Database(where, read_only=True) as database:
        check_contents(database, version)
    with Database(where) as database:
        assert database.record(run("new", 1.0, seed=2**40))
        assert database.record(run("fast", 1.0, code="e" * 64))
        assert not database.record(run("fast", 1.0, code="e" * 64))
        assert [found.id for found in database.records()] == [1, 2, 3, 4, 5]
        database.compared(KEY.workload, KEY.target, "option", options(("a", 1.0), won="a"), "net")
        assert database.damage() == []


def check_contents(database: Database, version: int) -> None:
    default, fast, bad = database.records()
    assert (default.latency_ns, fast.latency_ns, bad.outcome, bad.message) == (
        90.0,
        72.0,
        "timeout",
        "too slow",
    )
    assert (default.config, default.job, default.seed) == ({"tile": 4}, "j1", 3)
    assert [found.model for found in database.jobs()] == ["net.onnx"]
    best = database.best(KEY.workload, KEY.target, KEY.space)
    assert isinstance(best, Run)
    if version >= 3:  # had verdicts, later comparisons
        assert (best.trace_key, best.confirmed_ns, best.inside) == ("fast", 70.0, "net")
    else:
        assert (best.trace_key, best.confirmed_ns) == ("default", None)
    compared = database.comparison(KEY.workload, KEY.target, "option")
    expected = [("direct", False), ("winograd", True), ("bad", False)] if version >= 2 else []
    assert [(row.name, row.won) for row in compared] == expected
    assert len(database.layers()) == (version >= 4)
    assert [reading.ratio for reading in database.readings(KEY)] == ([0.9] if version >= 6 else [])
    placed = database.compared_at(DEVICES, workload="k" * 64)
    assert [(row.won, row.latency, json.loads(row.detail)) for row in placed] == (
        [(True, None, {"devices": ["cpu:0", "cpu:1"], "expected_ns": 90.0, "placement": {"*": "cpu:1"}})]
        if version >= 11
        else []
    )
    assert [row.key for row in database.compared_at(DEVICES, job="j1")] == ["c" * 64] * len(placed)
    assert best.footprint == (Footprint(4096, 9000, 1024) if version >= 9 else None)
    assert [run.code for run in (default, fast, bad)] == (
        ["d" * 64, "c" * 64, ""] if version >= 12 else ["", "", ""]
    )
    assert len(database.runs()) == 3
    said = (database.jobs()[0].status, database.job_report("j1"))
    assert said == (('{"phase": "search"}', "{}") if version >= 15 else ("", ""))
    assert database.job_trials(["j1", "none"]) == {"j1": 3, "none": 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_each_version(file: Make, version: int, tmp_path: Path) -> None:
    check(file(version), version, str(tmp_path / "fresh.db"))


@pytest.mark.parametrize("version", ON_SERVERS)
def test_a_database_on_a_server_of_each_version(on_server: Make, server: Server, version: int) -> None:
    check(on_server(version), version, server.create())


def test_the_command_brings_a_file_up_to_date(file: Make, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(schema.OLDEST)
    with pytest.raises(SchemaVersionError) as caught:
        Database(path, read_only=True)
    assert str(caught.value) == (
        f"the database {path} has schema version {schema.OLDEST}, this autotune reads version {schema.VERSION}; "
        f"`autotune db upgrade --db {path}` brings it up to date"
    )
    assert cli.run(["db", "upgrade", "--db", path]) == 0
    assert capsys.readouterr().out == f"{path} has schema version {schema.VERSION}\n"
    with Database(path, read_only=True) as database:
        assert len(database.records()) == 3
