"""``autotune-runtime``: its wheel in an environment of its own, with NumPy, ml_dtypes and xxhash and no compiler."""

from __future__ import annotations

import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import autotune
from autotune import distribution
from autotune.hardware import architecture
from tests.runtime.test_runtime_alone import model, of_open_sizes

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging" / "runtime"
BACKEND = runpy.run_path(str(FOLDER / "build_runtime.py"))
NEEDED = BACKEND["DEPENDENCIES"]

needs_linker = pytest.mark.skipif(architecture() != "x86_64", reason="LLVM maps code on other processors")


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_the_names_of_distributions_stand_in_one_place() -> None:
    assert project(ROOT)["name"] == distribution.NAME
    assert project(FOLDER)["name"] == distribution.RUNTIME
    whole = project(ROOT)["scripts"]
    assert project(FOLDER)["scripts"].items() <= whole.items()


def test_no_message_names_the_distribution_by_itself() -> None:
    here = ROOT / "autotune" / "distribution.py"
    found = [
        str(path.relative_to(ROOT))
        for folder in ("autotune", "search_spaces", "cost_models", "results")
        for path in (ROOT / folder).rglob("*.py")
        if path != here
        and ("pip install 'autotune" in (text := path.read_text("utf-8")) or "autotune[" in text)
    ]
    assert found == []


def test_the_runtime_imports_what_it_declares() -> None:
    imported = {
        name.partition(".")[0] for path in BACKEND["runtime_files"]() for name in BACKEND["imported"](path)
    }
    assert imported - {*sys.stdlib_module_names} - {"autotune"} == {*NEEDED}


class Bare(NamedTuple):
    """An environment in which the wheel is installed; ``run`` is its command."""

    folder: Path
    wheel: Path

    def run(self, *arguments: object, code: int = 0) -> str:
        """Return standard output and error of ``autotune-run``."""
        return self.started(self.folder / "bin" / "autotune-run", *arguments, code=code)

    def started(self, *command: object, code: int = 0) -> str:
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"PATH": ""},
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The wheel as pip builds and installs it, offline; what it needs is that of this environment."""
    folder = tmp_path_factory.mktemp("bare")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-index", "--wheel-dir", folder, FOLDER]
    subprocess.run([*map(str, build)], check=True, env=os.environ | {"PYTHONPATH": ""})
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in NEEDED:
        for top in {Path(str(file)).parts[0] for file in importlib.metadata.files(name) or ()} - {
            "..",
            "__pycache__",
        }:
            (packages / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))
    install = [*pip, "--python", folder / "bin" / "python", "install", "--quiet", "--no-index", wheel]
    subprocess.run([*map(str, install)], check=True)
    return Bare(folder, wheel)


def test_the_wheel_has_the_runtime_and_nothing_that_compiles(bare: Bare) -> None:
    names = zipfile.ZipFile(bare.wheel).namelist()
    assert "autotune/runtime/run_command.py" in names
    assert "autotune/runtime/cpu/translate/functions.py" in names, "the fingerprint of the executor reads it"
    assert not [
        name for name in names if "/llvm/" in name or name.startswith(("autotune/tuning", "autotune/te"))
    ]
    absent = "import sys; [__import__(name) for name in sys.argv[1:]]"
    for name in ("llvmlite", "pandas", "optuna", "click"):
        assert "ModuleNotFoundError" in bare.started(
            bare.folder / "bin" / "python", "-c", absent, name, code=1
        )


@needs_linker
def test_an_artifact_runs_with_right_numbers(bare: Bare, tmp_path: Path) -> None:
    autotune.compile(model(tmp_path, 2), threads=1).save(tmp_path / "m.atm")
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    run = ("--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--repeat", 3)
    found = json.loads(bare.run(tmp_path / "m.atm", *run, "--json"))
    assert found["outputs"]["y"]["shape"] == [2, 4]
    assert 0 < found["latency"]["min_ns"] <= found["latency"]["median_ns"]
    raised = np.exp(np.maximum(x, 0))
    np.testing.assert_allclose(
        np.load(tmp_path / "out" / "y.npy"), np.tanh(raised / raised.sum(1, keepdims=True)), rtol=1e-5
    )
    assert "latency: minimum " in bare.run(tmp_path / "m.atm", "--random", "--repeat", 2, "--mapped")


@needs_linker
def test_the_size_of_a_request_is_chosen_by_name(bare: Bare, tmp_path: Path) -> None:
    of_open_sizes(tmp_path / "open.atm")
    assert "y: float32 1×4" in bare.run(tmp_path / "open.atm", "--random", "--shape", "n=1")
    assert "y: float32 2×4" in bare.run(tmp_path / "open.atm", "--random")
    assert "--shape m: this artifact has sizes such as n=2" in bare.run(
        tmp_path / "open.atm", "--random", "--shape", "m=1", code=2
    )


@needs_linker
def test_each_wrong_input_is_one_clear_error(bare: Bare, tmp_path: Path) -> None:
    path = tmp_path / "m.atm"
    autotune.compile(model(tmp_path, 2), threads=1).save(path)
    np.save(tmp_path / "wide.npy", np.zeros((2, 5), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((2, 4)))
    (tmp_path / "text.npy").write_text("no array")
    damaged = tmp_path / "damaged.atm"
    damaged.write_bytes(path.read_bytes()[:-100])
    (tmp_path / "model.txt").write_text("no artifact")
    x = f"x={tmp_path}/"
    cases: list[tuple[tuple[object, ...], str, int]] = [
        ((tmp_path / "none.atm", "--random"), "no such file: ", 2),
        ((tmp_path, "--random"), "not a file: ", 2),
        ((tmp_path / "model.txt", "--random"), "not an archive, or damaged", 1),
        ((damaged, "--random"), "damaged", 1),
        ((path,), "no value for the input x: float32[2, 4]; give --input x=FILE.npy, or --random", 2),
        ((path, "--input", "z=a.npy"), "cannot read a.npy: No such file or directory", 2),
        ((path, "--input", x + "text.npy"), "is not a NumPy array file", 2),
        ((path, "--input", "x"), "is not NAME=FILE.npy", 2),
        ((path, "--input", f"q={tmp_path}/wide.npy"), "the model has no input 'q'; its inputs are x", 2),
        ((path, "--input", x + "wide.npy"), "expected float32[2, 4], got float32[2, 5]", 2),
        ((path, "--input", x + "double.npy"), "expected float32[2, 4], got float64[2, 4]", 2),
        ((path, "--random", "--threads", "999"), "999 threads were requested, but this process may use", 2),
        ((path, "--random", "--shape", "n=2"), "all sizes of", 2),
        ((path, "--random", "--shape", "n"), "is not NAME=N", 2),
        ((path, "--random", "--seed", "-1"), "a seed is from 0", 2),
        ((path, "--random", "--repeat", "0"), "--repeat is 1 or more, got 0", 2),
        ((path, "--random", "--target", "x86-64-v9"), "x86-64-v9", 2),
        ((path, "--rendom"), "unrecognized arguments: --rendom", 2),
    ]
    for arguments, said, code in cases:
        out = bare.run(*arguments, code=code)
        assert said in out, (arguments, out)
        assert "Traceback" not in out


@needs_linker
def test_what_needs_the_compiler_names_what_to_install(bare: Bare, tmp_path: Path) -> None:
    python = bare.folder / "bin" / "python"
    said = bare.started(python, "-c", "import autotune; autotune.tune", code=1)
    assert said.endswith(
        "autotune.tune is not in autotune-runtime, which loads and runs artifacts: pip install autotune-compiler\n"
    )
    made = "from autotune.runtime.cpu.native import executor; executor()"
    assert "no compiler is here\n  compile the model again" in bare.started(python, "-c", made, code=1)
