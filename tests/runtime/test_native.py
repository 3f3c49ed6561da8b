"""The executor is compiled in every process that no artifact brings it to: nothing is kept, numba is not needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.codegen.elf import read_symbols
from autotune.hardware import architecture
from autotune.runtime.cpu import native
from autotune.runtime.cpu.native import machine_code
from autotune.runtime.cpu.translate.module import llvm_ir
from autotune.runtime.module import Module
from tests.runtime.kernels import chain

RUN = """
import sys
sys.modules["numba"] = None  # importing it fails
from tests.runtime.kernels import chain
from autotune.runtime.module import Module
import numpy as np
with Module(chain(3, 8), 2) as module:
    assert (module(np.zeros(8, np.int64))[0] == 3).all()
"""


def run(code: str = RUN, **folders: str) -> None:
    """Compile, load and run a model in a new process that has these folders."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "", **folders}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_was_given_the_executor_compiles_none(tmp_path: Path) -> None:
    path = tmp_path / "executor.o"
    path.write_bytes(machine_code())
    given = f"""
from pathlib import Path
from autotune.runtime.cpu import native
native.give(Path({str(path)!r}).read_bytes())
native._compiled = None  # calling it fails
"""
    run(given + RUN)


def test_the_executor_keeps_nothing_on_disk(tmp_path: Path) -> None:
    run(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc/nowhere", os.devnull])
def test_folders_that_cannot_be_written_are_no_failure(folder: str) -> None:
    run(XDG_CACHE_HOME=folder, HOME=folder)


LINKED = {"llvmlite"} if architecture() == "x86_64" else set()
"""Modules that are not needed where code is mapped without them."""

LOAD = """
import sys
import numpy as np
import autotune
with autotune.load(sys.argv[1]) as module:
    assert (module(np.zeros(8, np.int64))[0] == 3).all()
names = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(*sorted(name for name in names if not name.startswith("_") and "." not in name))
print(*sorted(name for name in sys.modules if name.startswith("autotune.") and name.count(".") == 1))
"""


def test_an_artifact_loads_and_runs_without_a_compiler(tmp_path: Path) -> None:
    with Module(chain(3, 8), 2) as module:
        module.save(tmp_path / "chain.atm")
    command = [sys.executable, "-c", LOAD, str(tmp_path / "chain.atm")]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    packages, stages = (set(line.split()) for line in done.stdout.splitlines())
    assert packages <= {"autotune", "ml_dtypes", "numpy", "xxhash"} | ({"llvmlite"} - LINKED)
    assert not stages & {
        f"autotune.{stage}" for stage in ("compiler", "graph", "lower", "passes", "schedule", "te")
    }


def test_the_fingerprint_covers_the_source_of_all_that_is_compiled() -> None:
    text = llvm_ir([*native._ENTRY_POINTS, *native._SHARED])
    made = {name.rpartition(".")[0] for name in re.findall(r"@(autotune\.[\w.]+)\(", text)}
    assert made
    assert made <= {f"autotune.runtime.cpu.{name}".replace("/", ".") for name in native._SOURCES}


def test_the_executor_calls_what_is_listed() -> None:
    symbols = read_symbols(machine_code())
    assert symbols.undefined <= native.SYMBOLS
    assert symbols.defined >= native.ENTRY_SYMBOLS
