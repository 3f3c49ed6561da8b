"""Folders that do not stay."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from autotune.files import file_pages, give_up_pages, is_in_file, locked, replacing, scratch_folder


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


def test_what_a_killed_process_left_half_written_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "model.atm"
    old, young, others = (
        tmp_path / f".{name}.0123456789ab.tmp" for name in ("model.atm", "model.atm.x", "other.atm")
    )
    for each in (old, young, others):
        each.write_text("half")
    for each in (old, others):
        os.utime(each, (time.time() - 7200,) * 2)
    with replacing(path) as temporary:
        temporary.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, young, others])
    assert path.read_text() == "whole"


def test_pages_of_a_file_that_were_given_up_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    data = np.random.default_rng(0).integers(0, 256, 3 * mmap.ALLOCATIONGRANULARITY + 5, np.uint8)
    path.write_bytes(data.tobytes())
    part = file_pages(path, 7, len(data) - 11)
    other = part.reshape(2, -1).T if len(part) % 2 == 0 else part[1:].reshape(2, -1).T
    assert is_in_file(part)
    assert is_in_file(other)
    assert not is_in_file(data)
    held = other.copy()
    for each in (part, other, data):
        give_up_pages(each)
    np.testing.assert_array_equal(part, data[7:-4])
    np.testing.assert_array_equal(other, held)
