"""Engines are used again, but nothing of the file that they had open before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqlalchemy

from autotune.database import Database, schema
from autotune.database import engine as engines
from autotune.database.opening import opened
from autotune.errors import SchemaVersionError, UsageError
from tests.database.examples import KEY, prepare, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return stored(tmp_path / "x.db", "a")


def stored(path: Path, trace: str) -> Path:
    """A database with one run."""
    with Database(path) as database:
        prepare(database)
        database.record(run(trace, 5.0))
    return path


def known(path: Path) -> list[str]:
    with opened(path, read_only=True) as database:
        return [row.trace_key for row in database.records()]


def test_an_engine_is_used_again_by_one_at_a_time(path: Path) -> None:
    with Database(path, read_only=True) as first:
        used = first.session._engine
        with Database(path, read_only=True) as beside:
            assert beside.session._engine is not used
    with Database(path, read_only=True) as again:
        assert again.session._engine is used
        with Database(path) as writing:
            assert writing.session._engine is not used


def test_to_close_twice_gives_back_once(path: Path) -> None:
    database = Database(path, read_only=True)
    database.close()
    database.close()
    with Database(path, read_only=True) as one, Database(path, read_only=True) as other:
        assert one.session._engine is not other.session._engine


def test_no_more_are_kept_than_a_few(tmp_path: Path) -> None:
    for number in range(12):
        Database(tmp_path / f"{number}.db").close()
    assert len(engines._IDLE) == engines._KEPT


def test_a_closed_database_is_not_held_open(path: Path) -> None:
    assert known(path) == ["a"]
    held = [os.readlink(found.path) for found in os.scandir("/proc/self/fd") if os.path.lexists(found.path)]
    assert not [name for name in held if name.startswith(str(path))]


def test_a_file_that_was_replaced_or_removed_meanwhile(path: Path, tmp_path: Path) -> None:
    assert known(path) == ["a"]
    stored(tmp_path / "y.db", "b").replace(path)
    assert known(path) == ["b"]
    path.unlink()
    with pytest.raises(UsageError, match="no such database"):
        known(path)
    assert known(stored(path, "c")) == ["c"]


def test_a_file_that_a_newer_version_took_over_meanwhile(path: Path) -> None:
    assert known(path) == ["a"]
    with Database(path) as database:
        newer = schema.meta.update().values(value=str(schema.VERSION + 1))
        database.session.write(lambda connection: connection.execute(newer))
    with pytest.raises(SchemaVersionError, match="install a newer autotune"):
        known(path)


def test_the_working_folder_may_change(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    stored(tmp_path / "other" / "x.db", "b")
    monkeypatch.chdir(tmp_path)
    assert known(Path("x.db")) == ["a"]
    monkeypatch.chdir(tmp_path / "other")
    assert known(Path("x.db")) == ["b"]


def test_a_forked_process_makes_its_own(path: Path) -> None:
    assert known(path) == ["a"]
    assert engines._IDLE
    child = os.fork()
    if not child:
        os._exit(len(engines._IDLE) + 2 * (known(path) != ["a"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_statements_are_put_together_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(path) as database:
        database.lookup(*vars(KEY).values())

    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("a statement was put together again")

    monkeypatch.setattr(sqlalchemy.sql.elements.ClauseElement, "_compiler", compiled)
    with Database(path) as database:
        database.lookup(*vars(KEY).values())
