"""Tests read and write nothing of the user's: neither folders nor settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from autotune.database.opening import default_database
from autotune.settings import current

ROOT = Path(__file__).parents[1]


def test_every_test_has_empty_folders() -> None:
    home = current().home_path()
    assert home.parent.name.startswith("autotune-tests-")
    assert list(home.iterdir()) == []
    default_database().write_text("of this test alone")
    assert current().cache_path().parent == home


def test_every_test_has_empty_folders_whatever_another_left() -> None:
    test_every_test_has_empty_folders()


def test_the_users_database_and_settings_are_not_read(tmp_path: Path) -> None:
    data = tmp_path / "autotune"
    data.mkdir()
    (data / "tuning.db").write_text("no database")
    users = {f"XDG_{name}_HOME": str(tmp_path) for name in ("DATA", "CACHE")}
    settings = {"AUTOTUNE_DUMP": str(tmp_path / "dump"), "AUTOTUNE_BUILDERS": "many"}
    environment = {**os.environ, **users, **settings}
    environment.pop("AUTOTUNE_HOME")
    test = "tests/cli/test_placement.py::test_a_model_without_devices_is_compiled_as_ever"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert sorted(tmp_path.rglob("*")) == [data, data / "tuning.db"]
