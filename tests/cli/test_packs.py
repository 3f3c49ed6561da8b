"""``autotune db export FILE.pack``, ``import``, ``diff`` and ``verify PACK``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.database import Database
from tests.database.test_pack import replaced, rewritten, rows

SPLIT = r"[\"split\""
"""A step as it stands in a row: JSON in JSON."""


@pytest.fixture
def pack(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "good.pack"
    assert cli.run(["db", "export", str(path), "--db", str(tuned)]) == 0
    with Database(tuned, read_only=True) as database:
        count = len(database.records())
    assert capsys.readouterr().out == f"wrote {count} runs to {path}\n"
    return path


def test_an_imported_pack_answers_as_the_database_did(
    pack: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["db", "verify", str(pack)]) == 0
    assert capsys.readouterr().out == "no problems found\n"
    new = tmp_path / "new.db"
    assert cli.run(["db", "import", str(pack), "--db", str(new)]) == 0
    assert " new runs, 0 known, in " in capsys.readouterr().out
    with Database(new, read_only=True) as mine, Database(tuned, read_only=True) as its:
        keys = its.tuned_keys()
        assert sorted(mine.tuned_keys(), key=str) == sorted(keys, key=str)
        for key in keys:
            best, same = (d.best(key.workload, key.target, key.space) for d in (mine, its))
            assert best.trace_key == same.trace_key
    assert cli.run(["db", "diff", str(pack), "--db", str(new), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["here"], found["there"], found["conflicts"], found["used"]) == (0, 0, [], [])


@pytest.mark.parametrize(
    "change",
    [
        ("runs", SPLIT, SPLIT.replace("split", "unite"), "cannot be read: trace names the unknown primitive"),
        ("runs", '"origin":"default"', '"origin":"\\u001b[31m"', "run .* is damaged"),
        ("workloads", "Conv", "Conf", "workload .* cannot be read"),
    ],
    ids=["schedule", "origin", "workload"],
)
def test_rows_that_make_no_sense_are_refused_before_anything_is_written(
    pack: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Sequence[str]
) -> None:
    table, old, new, problem = change
    rewritten(pack, rows(table, replaced(old, new)))
    mine, none = tmp_path / "mine.db", tmp_path / "none.db"
    shutil.copy(tuned, mine)
    before = mine.read_bytes()
    for database in (mine, none):
        assert cli.run(["db", "import", str(pack), "--db", str(database)]) == 1
        assert re.search(f"^error: cannot use the pack {pack}: .*{problem}", capsys.readouterr().err)
    assert mine.read_bytes() == before
    assert not none.exists()


@pytest.mark.parametrize(
    "command",
    [
        ["export", "a.csv", "--sign", "key.pem"],
        ["diff", "b.db", "--key", "key.pub"],
        ["verify", "--key", "key.pub"],
    ],
)
def test_what_is_for_packs_is_refused_elsewhere(command: list[str]) -> None:
    assert cli.run(["db", *command]) == 2
