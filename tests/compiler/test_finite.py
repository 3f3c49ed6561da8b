"""Ranges of algorithms: Winograd's overflows before its result and spreads NaN over tiles; ``finite`` leaves it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.cli import main as cli
from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import LockError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.passes.options import RULES, allowed
from autotune.passes.preference import Preference
from autotune.runtime.artifacts import artifact
from autotune.runtime.module import Module

LARGE = 1e37


def convolution(path: Path | None = None) -> Any:
    """3x3, 64 channels, whose weights sum to little: results of inputs of 1e37 are finite."""
    b = ModelBuilder("convolution")
    weights = b.rng.standard_normal((64, 64, 3, 3), dtype=np.float32) / 1024
    b.node("Conv", [b.input("x", (1, 64, 28, 28)), b.constant("w", weights)], "y", pads=[1] * 4)
    model = b.finish(["y"])
    if path is not None:
        path.write_bytes(model.SerializeToString())
    return model


def inputs() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    large = np.full((1, 64, 28, 28), LARGE, np.float32)
    one = np.random.default_rng(0).standard_normal((1, 64, 28, 28), dtype=np.float32)
    one[0, 5, 14, 14] = np.nan
    return large, one


def test_finite_forms_cover_large_inputs_and_keep_one_nan_apart() -> None:
    large, one = inputs()
    with autotune.compile(convolution(), threads=1, finite=True) as module:
        assert np.isfinite(module(large)[0]).all()
        wrong = np.isnan(module(one)[0])
    assert wrong.sum() == 9 * 64
    assert wrong[0, :, 13:16, 13:16].all()


def test_winograds_form_does_neither() -> None:
    """Why there is the option: what is promised without it."""
    large, one = inputs()
    done = compile_in_detail(CompileRequest(convolution(), threads=1, algorithm="winograd F(4x4)"))
    assert done.image.metadata["growth"] == "100"
    with Module(done.image) as module:
        assert not np.isfinite(module(large)[0]).all()
        assert np.isfinite(module(large / 100)[0]).all()  # within the range that is said
        assert np.isnan(module(one)[0]).sum() > 9 * 64


def test_the_preference_leaves_out_all_that_enlarges() -> None:
    workloads = {
        d.workload.key: d.workload
        for d in compile_in_detail(CompileRequest(convolution(), threads=1)).partition.dispatches
    }
    assert any(rule.growth > 1 for rule in RULES)
    for rule in RULES:
        assert rule.growth == 1 or rule.error > 0  # tolerance 0 leaves them out too
    seen = 0
    for workload in workloads.values():
        every, finite = (allowed(workload, Preference(finite=f), speculative=True) for f in (False, True))
        assert [o.name for o in finite] == [o.name for o in every if o.growth == 1]
        seen += len(every) > len(finite)
    forced = compile_in_detail(
        CompileRequest(convolution(), threads=1, algorithm="winograd F(4x4)", finite=True)
    )
    assert forced.image.metadata["growth"] == "1"


@pytest.mark.usefixtures("shared_pools")
def test_commands_take_it_and_say_the_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, artifact = tmp_path / "c.onnx", str(tmp_path / "c.atm")
    convolution(path)
    for command in (
        ["compile", str(path), "-o", artifact, "--threads", "1"],
        ["explain", str(path), "--threads", "1"],
        ["lock", str(path), "-o", str(tmp_path / "c.lock"), "--threads", "1"],
        ["tune", str(path), "--trials", "1", "--db", str(tmp_path / "t.db"), "--threads", "1"],
        ["query", str(path), "--db", str(tmp_path / "t.db"), "--threads", "1"],
    ):
        assert cli.run([*command, "--finite"]) == 0, command
        assert "for magnitudes up to" not in capsys.readouterr().out
    with autotune.compile(str(path), lock=tmp_path / "c.lock") as module:
        assert np.isfinite(module(inputs()[0])[0]).all()
    with pytest.raises((UsageError, LockError), match="finite given together with the lock"):
        autotune.compile(str(path), lock=tmp_path / "c.lock", finite=True)


def test_the_range_is_said_where_it_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = compile_in_detail(CompileRequest(convolution(), threads=1, algorithm="winograd F(4x4)"))
    artifact.save(done.image, tmp_path / "c.atm")
    assert cli.run(["explain", str(tmp_path / "c.atm")]) == 0
    assert ", for magnitudes up to 3e+36; " in capsys.readouterr().out
    assert done.range_line.startswith(
        "good for magnitudes up to 3e+36 of what convolutions and products read"
    )
    assert compile_in_detail(CompileRequest(convolution(), threads=1, finite=True)).range_line == ""
