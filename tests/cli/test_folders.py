"""Commands where neither the home nor a cache folder can be written, or not even be looked into."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.product import write_product

ROOT = Path(__file__).parents[2]
MODEL = "zoo:tiny_cnn"
_DROP, _ROOTS_ACCESS = 24, (1, 2)  # prctl's PR_CAPBSET_DROP; capabilities to pass over permissions


def autotune(
    home: str | Path, *arguments: object, folder: Path = ROOT, first: Callable[[], None] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """A command in a folder, whose home and other folders of the user are this; root has the rights of others only.
    What its process does ``first`` it does with all rights."""
    folders = {f"XDG_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
    environment = {**os.environ, **folders, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    environment.pop("AUTOTUNE_HOME", None)
    prctl = ctypes.CDLL(None).prctl

    def without_root() -> None:
        first()
        for capability in _ROOTS_ACCESS:
            prctl(_DROP, capability, 0, 0, 0)

    return subprocess.run(
        [sys.executable, "-m", "autotune.cli.main", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=folder,
        preexec_fn=without_root,
    )


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that its user has no rights in."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o000)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("home", [os.devnull, "locked"])
def test_compile_run_and_tune(home: str, locked: Path, tmp_path: Path) -> None:
    artifact, database = tmp_path / "model.atm", tmp_path / "tuning.db"
    model = write_product(tmp_path / "product.onnx")
    for arguments in (
        ("compile", model, "-o", artifact),
        ("run", artifact, "--random"),
        ("tune", model, "--trials", 1, "--db", database, "--json"),
    ):
        done = autotune(locked if home == "locked" else home, *arguments)
        assert done.returncode == 0, done.stderr
    finished = json.loads(done.stdout.splitlines()[-1])
    assert (finished["event"], finished["outcomes"]) == ("finished", {"ok": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("db", "stats"), "cannot use the database {}/autotune/tuning.db: Permission denied"),
        (("tune", MODEL), "cannot make the folder {}/autotune: Permission denied; give a --db"),
        (("tune", MODEL, "--db", "{}/x.db"), "cannot use the database {}/x.db: Permission denied"),
        (("run", "{}/x.onnx", "--random"), "cannot read {}/x.onnx: Permission denied"),
        (("compile", MODEL, "-o", "{}/x.atm"), "cannot write artifact {}/x.atm: Permission denied"),
    ],
)
def test_what_a_locked_folder_forbids_is_one_line(
    arguments: tuple[str, ...], message: str, locked: Path
) -> None:
    done = autotune(locked, *(argument.format(locked) for argument in arguments))
    assert done.stderr.splitlines()[-1] == "error: " + message.format(locked)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)


@pytest.mark.parametrize("arguments", [("zoo",), ("jobs", "--db", "/no/such.db"), ("run", "/no/such.atm")])
def test_a_deleted_working_directory_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = autotune(tmp_path, *arguments, folder=gone, first=gone.rmdir)
    message = (
        "the working directory is not there any more (No such file or directory); change to another folder"
    )
    assert (done.returncode, done.stderr) == (2, f"error: {message}\n")


def test_defaults_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    defaults = tmp_path / "autotune.toml"
    defaults.touch(mode=0o000)
    done = autotune(tmp_path, "zoo", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"error: cannot read {defaults}: Permission denied\n")
