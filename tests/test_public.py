"""The public surface: its names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import ArtifactError, AutotuneError, InputError, TargetError, UsageError

HEAVY = {
    "numpy",
    "numba",
    "llvmlite",
    "optuna",
    "xgboost",
    "pandas",
    "pyarrow",
    "sqlalchemy",
    "onnx",
    "scipy",
    "rich",
}


def test_every_public_name_is_there_and_is_listed() -> None:
    assert autotune.__all__ == sorted(autotune.__all__)
    for name in autotune.__all__:
        assert getattr(autotune, name) is not None
    assert set(autotune.__all__) <= set(dir(autotune))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = autotune.nonsense


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, autotune; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _matmul(n: int = 48) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = (te.placeholder((n, n), name=name) for name in "AB")
    k = te.reduce_axis((0, n), name="k")
    return a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def test_a_tensor_expression_is_scheduled_lowered_built_and_run() -> None:
    a, b, c = _matmul()
    s = te.create_schedule(c.op)
    s[c].tile(*s[c].op.axis, 6, 16)
    text = autotune.lower(s, [a, b, c], simple_mode=True)
    assert "for (i.outer, 0, 8)" in text
    gemm = autotune.build(s, [a, b, c], target="host", threads=1)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((48, 48)).astype(np.float32) for _ in range(2))
    z = np.full((48, 48), np.nan, np.float32)
    assert gemm(x, y, z) is None
    np.testing.assert_allclose(z, x @ y, rtol=1e-4, atol=1e-4)
    assert len(gemm.time(x, y, z, repeat=3)) == 3
    assert "define" in gemm.ir
    with pytest.raises(InputError, match="got 2 arrays for the 3 arguments A, B, C"):
        gemm(x, y)
    with pytest.raises(InputError):
        gemm(x, y.astype(np.float64), z)


def test_a_function_with_workspaces_and_two_outputs() -> None:
    x = te.placeholder((32, 8), name="x")
    double = te.compute((32, 8), lambda i, j: x[i, j] * 2.0, name="double")
    first, second = te.compute((32, 8), lambda i, j: (double[i, j] + 1.0, double[i, j] - 1.0), name="out")
    s = te.create_schedule(first.op)
    function = autotune.build(s, [x, first, second], threads=1)
    value = np.arange(256, dtype=np.float32).reshape(32, 8)
    up, down = np.empty_like(value), np.empty_like(value)
    function(value, up, down)
    np.testing.assert_array_equal(up, 2 * value + 1)
    np.testing.assert_array_equal(down, 2 * value - 1)


def test_code_for_another_machine_cannot_be_built_into_a_function() -> None:
    a, b, c = _matmul()
    with pytest.raises(TargetError, match="this machine cannot run code for 'aarch64': it is"):
        autotune.build(te.create_schedule(c.op), [a, b, c], target="aarch64")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> autotune.Module:
    empty = tmp_path_factory.mktemp("public") / "tuning.db"
    autotune.Database(empty).close()
    return autotune.compile("zoo:tiny_cnn", database=empty, threads=1)


def test_a_module_is_saved_and_loaded(compiled: autotune.Module, tmp_path: Path) -> None:
    compiled.save(tmp_path / "tiny.atm")
    loaded = autotune.load(tmp_path / "tiny.atm")
    (spec,) = loaded.inputs
    x = np.random.default_rng(0).standard_normal(spec.shape).astype(spec.dtype)
    for got, wanted in zip(loaded(x), compiled(x), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert (loaded.threads, autotune.load(str(tmp_path / "tiny.atm"), 2).threads) == (1, 2)


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("missing.atm", UsageError, "no such file: {path}"),
        (".", UsageError, "not a file: {path}"),
        (
            "model.onnx",
            ArtifactError,
            "artifact {path}: not an archive, or damaged: File is not a zip file; an artifact is what "
            "`autotune compile` or Module.save wrote",
        ),
        ("arrays.npz", ArtifactError, "artifact {path}: unexpected member 'x.npy'"),
    ],
)
def test_other_files_are_no_artifacts(
    what: str, error: type[AutotuneError], message: str, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07not a zip file")
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    with pytest.raises(error) as caught:
        autotune.load(tmp_path / what)
    assert str(caught.value) == message.format(path=tmp_path / what)


def test_an_artifact_is_given_by_its_path() -> None:
    number: Any = 3
    with pytest.raises(UsageError, match="an artifact is given by its path, not as int"):
        autotune.load(number)


def test_an_artifact_is_no_model(compiled: autotune.Module, tmp_path: Path) -> None:
    compiled.save(tmp_path / "tiny.atm")
    with pytest.raises(
        AutotuneError, match=r"is compiled already: `autotune run` and autotune\.load take it"
    ):
        autotune.compile(tmp_path / "tiny.atm")


def test_objects_say_what_they_are_in_a_line(compiled: autotune.Module, tmp_path: Path) -> None:
    a, b, c = _matmul()
    function = autotune.build(te.create_schedule(c.op), [a, b, c], threads=1)
    assert repr(function) == (
        "<Function 'main' (A: float32[48, 48], B: float32[48, 48], C: float32[48, 48]) writes C, threads=1>"
    )
    spec, result = compiled.inputs[0], compiled.outputs[0]
    assert repr(compiled) == (
        f"<Module 'tiny_cnn' ({spec}) -> ({result}), 0 of {len(compiled.dispatches)} dispatches tuned, threads=1>"
    )
    with autotune.Database(tmp_path / "t.db") as database:
        assert repr(database) == f"<Database {tmp_path / 't.db'}>"
        answers = autotune.query("zoo:tiny_cnn", database=database, threads=1)
    assert all("\n" not in repr(answer) for answer in answers)
    first = answers[0]
    assert repr(first).startswith(f"<Answer {first.title} (float32[")
    assert repr(first).endswith(f"]): {first.summary}>")
    assert "is not in the database; run `autotune tune`" in first.summary
    assert repr(autotune.Target.parse("x86-64-v3", 2)) == (
        "<Target x86_64 x86-64-v3, generic: 256-bit vectors, 2 threads of 1 core, caches 32 KiB, 512 KiB and 8 MiB>"
    )
