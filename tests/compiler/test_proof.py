"""``--verify``: the default schedules of models are proved, and a wrong one stops the compilation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cli.main import run
from autotune.compiler import compile_in_detail, divide, proof
from autotune.compiler.dividing import distinct_workloads
from autotune.compiler.planned import schedule_for
from autotune.compiler.proof import prove_all
from autotune.compiler.request import CompileRequest
from autotune.errors import LoweringError
from autotune.frontends.model_builder import ModelBuilder
from autotune.lower.verify_isl import Verified
from autotune.target import Target

pytest.importorskip("islpy")
HOST = Target.detect(threads=2)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A product of matrices and a softmax."""
    b = ModelBuilder("small")
    weights = b.constant("w", np.ones((16, 8), np.float32))
    b.node("MatMul", [b.input("x", (8, 16)), weights], "product")
    b.node("Softmax", ["product"], "y", axis=1)
    (tmp_path / "small.onnx").write_bytes(b.finish(["y"]).SerializeToString())
    return tmp_path / "small.onnx"


def test_every_schedule_of_a_model_is_proved() -> None:
    done = compile_in_detail(CompileRequest("zoo:tiny_cnn", target=HOST, verify=True))
    (report,) = done.proofs
    assert {proof.verdict.status for proof in report.proofs} == {"proven"}
    names = [name for proof in report.proofs for name in proof.names]
    assert sorted(names) == sorted(d.name for d in done.coverage.dispatches)
    assert str(report) == f"schedules of {len(names)} dispatches: {len(names)} proven"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["squeezenet", "encoder", "mobilenetv2", "shufflenet"])
def test_default_schedules_are_proved(model: str) -> None:
    parts = divide(f"zoo:{model}")
    report = prove_all(parts, [schedule_for(w, HOST, None, {}) for w in distinct_workloads(parts)])
    open_ones = [proof for proof in report.proofs if proof.verdict.status != "proven"]
    assert {proof.verdict.status for proof in open_ones} <= {"too large"}, report.details()
    assert len(open_ones) <= len(report.proofs) // 4, report.details()


def test_a_wrong_schedule_stops_the_compilation(
    small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: Any, **__: Any) -> Verified:
        raise LoweringError("verify: a value is read that nothing stored before: { END0[] }")

    monkeypatch.setattr(proof, "verify", wrong)
    output = tmp_path / "model.atm"
    assert run(["compile", str(small), "-o", str(output), "--verify"]) == 1
    wanted = r"the schedule of 000_\w+ is wrong; verify: a value is read that nothing stored before"
    assert re.search(wanted, capsys.readouterr().err.replace("\n", " "))
    assert not output.exists()


def test_the_command_says_so(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "model.atm"
    target = ["--target", "x86-64-v3", "--threads", "2"]
    assert run(["compile", str(small), "-o", str(output), "--verify", *target]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert re.search(r"schedules of (\d+) dispatches: \1 proven", said), said


def test_without_islpy_nothing_is_tuned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "islpy", None)
    assert run(["tune", "zoo:tiny_cnn", "--trials", "1", "--verify"]) == 2
    assert "pip install 'autotune-compiler[verify]'" in capsys.readouterr().err
