"""The compiled executor and its cache file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.runtime import native

RUN = """
import sys
from tests.runtime.kernels import chain
from autotune.runtime.module import Module
import numpy as np
with Module(chain(3, 8), 2) as module:
    assert (module(np.zeros(8, np.int64))[0] == 3).all()
print("numba" in sys.modules)
"""


def run(cache: Path) -> str:
    """Whether a new process with this cache folder needed numba."""
    root = str(Path(__file__).parents[2])
    environment = {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": root, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_second_process_loads_without_numba_and_damage_is_repaired(tmp_path: Path) -> None:
    assert run(tmp_path) == "True"
    (file,) = (tmp_path / "autotune").iterdir()
    assert run(tmp_path) == "False"
    good = file.read_bytes()
    file.write_bytes(good[:-100])
    assert run(tmp_path) == "True"
    assert len(file.read_bytes()) == len(good)


@pytest.mark.slow
def test_an_unwritable_cache_is_no_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(blocked) == "True"


def test_the_cache_file_is_named_for_sources_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    path = native.cache_path()
    assert path == native.cache_path()
    monkeypatch.setattr(native, "version", lambda name: "another")
    assert native.cache_path() != path


def test_damaged_cache_files_are_not_read(tmp_path: Path) -> None:
    native._write(tmp_path / "x.o", b"code")
    assert native._read(tmp_path / "x.o") == b"code"
    data = (tmp_path / "x.o").read_bytes()
    for damaged in (b"", data[:10], data[:-1], data[:-1] + b"!"):
        (tmp_path / "x.o").write_bytes(damaged)
        assert native._read(tmp_path / "x.o") is None
    assert native._read(tmp_path / "none") is None
