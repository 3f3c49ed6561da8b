"""Folders that do not stay."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from autotune.files import locked, scratch_folder


def test_what_a_killed_process_left_is_removed_and_what_another_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, used, young = (tmp_path / f"mine-{name}" for name in ("left", "used", "young"))
    for folder in (left, used, young):
        folder.mkdir()
        (folder / "0.json").write_text("{}")
    for folder in (left, used):
        os.utime(folder, (time.time() - 60,) * 2)
    with locked(used), scratch_folder("mine-") as folder:
        assert sorted(tmp_path.iterdir()) == sorted([used, young, folder])
        with pytest.raises(OSError), locked(folder):
            pass
    assert sorted(tmp_path.iterdir()) == sorted([used, young])
