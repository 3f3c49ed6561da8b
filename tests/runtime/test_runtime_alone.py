"""Artifacts of every kind load and run with NumPy alone: each in a process in which nothing else can be imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import autotune
from autotune.compiler.request import CompileRequest
from autotune.hardware import architecture, usable_cores
from autotune.runtime.artifacts import artifact
from autotune.tuning.compiling import compile_request

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="LLVM maps code on other processors")

LOAD = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        of_python = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        if not of_python and top not in ("autotune", "ml_dtypes", "numpy", "xxhash"):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import autotune

with autotune.load(sys.argv[1]) as model, np.load(sys.argv[2]) as given:
    inputs = {name: given[name] for name in given.files if not name.startswith("out ")}
    answers = [list(model.run(inputs).values()), model(*inputs.values())]
    if hasattr(model, "submit"):
        answers.append(model.submit(*inputs.values()).result())
    outputs = [given[name] for name in given.files if name.startswith("out ")]
    for found in answers:
        for value, wanted in zip(found, outputs, strict=True):
            np.testing.assert_array_equal(value, wanted)
"""


def model(folder: Path, rows: int | str) -> Path:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    chain (float[{rows}, 4] x) => (float[{rows}, 4] y) {{ r = Relu(x)  s = Softmax(r)  y = Tanh(s) }}"""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def plain(path: Path) -> None:
    autotune.compile(model(path.parent, 2), threads=1).save(path)


def placed(path: Path) -> None:
    devices = ("cpu:0", "cpu:1") if usable_cores() > 1 else ("cpu", "cpu:0")
    placement = {"*": devices[0], "Tanh": devices[1]}
    with autotune.compile(model(path.parent, 2), placement=placement) as module:
        assert set(module.devices) == set(devices)
        module.save(path)


def of_several_targets(path: Path) -> None:
    request = CompileRequest(model(path.parent, 2), target=("x86-64", "host"), threads=1)
    artifact.save(compile_request(request).model, path)


def of_open_sizes(path: Path) -> None:
    with autotune.compile_for_sizes(model(path.parent, "n"), {"n": "1..2"}, threads=1) as module:
        module.save(path)


@pytest.mark.parametrize("make", [plain, placed, of_several_targets, of_open_sizes])
def test_an_artifact_loads_and_runs_with_numpy_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "model.atm")
    with autotune.load(tmp_path / "model.atm") as loaded:
        inputs = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
        outputs = {f"out {name}": value for name, value in loaded.run(inputs).items()}
    np.savez(tmp_path / "given.npz", **inputs, **outputs)
    command = [sys.executable, "-c", LOAD, str(tmp_path / "model.atm"), str(tmp_path / "given.npz")]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
