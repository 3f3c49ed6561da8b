"""A database file that is removed or replaced under those who write to it: noticed at the next commit, no row lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.database import Database
from autotune.errors import DatabaseError
from tests.database.examples import KEY, prepare, run


def remove(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    Database(other).close()
    os.replace(other, path)


@pytest.mark.parametrize("change", [remove, remove_all, move, replace, remove_the_folder])
def test_a_lost_file_is_noticed_and_its_rows_are_saved(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "tuning.db"
    with Database(path) as database:
        prepare(database)
        assert database.record(run("first", 1.0))
        change(path)
        with pytest.raises(DatabaseError) as caught:
            database.record(run("second", 1.0))
        with pytest.raises(DatabaseError) as again:  # and nothing is written any more
            database.record(run("third", 1.0))
    assert str(again.value) == str(caught.value)
    happened, where = str(caught.value).splitlines()
    word = "was replaced by another file" if change is replace else "was removed"
    assert happened == f"the database {path} {word} while it was in use"
    rescued = (tmp_path if change is remove_the_folder else folder) / "tuning.rescued.db"
    assert where == (
        f"  all of its rows are in {rescued}: go on with --db {rescued}, or `autotune db merge {rescued}`"
    )
    with Database(rescued) as saved:
        found = saved.records(workload=KEY.workload, target=KEY.target, space=KEY.space, after=0)
        assert {each.trace_key for each in found} == {"first", "second"}
        assert saved.damage() == []


def test_a_file_that_is_replaced_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    with Database(path) as database:
        prepare(database)
        remove_all(path)
        with Database(path) as other:
            prepare(other)
            assert other.record(run("theirs", 1.0))
            for _ in range(2):
                with pytest.raises(DatabaseError, match="was replaced by another file"):
                    database.record(run("ours", 1.0))
    with Database(path) as other:
        found = other.records(workload=KEY.workload, target=KEY.target, space=KEY.space, after=0)
        assert [each.trace_key for each in found] == ["theirs"]
        assert other.damage() == []


def test_each_copy_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    for _ in range(3):
        with Database(path) as database:
            prepare(database)
            path.unlink()
            with pytest.raises(DatabaseError, match="was removed"):
                database.record(run("run", 1.0))
    names = {each.name for each in tmp_path.glob("*.db")}
    assert names == {"tuning.rescued.db", "tuning.rescued-2.db", "tuning.rescued-3.db"}
