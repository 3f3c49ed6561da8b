"""One job for several targets: a searching process for each."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest

from autotune.cli import tune_targets
from autotune.cli.main import run
from autotune.errors import MeasureError
from autotune.frontends.zoo_built import mlp
from autotune.tuning.jobs.budget import Budget
from results.bench.fleet.nodes import RayNodes

TARGETS = ("host", "x86-64-v2")


def test_an_error_of_a_target_is_the_error_of_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    call = tune_targets.TargetsCall(["missing.onnx"], Budget(trials=1), {}, {}, False, True, False)
    with pytest.raises(
        MeasureError, match="tuning for host, x86-64-v2 ended with an error, which stands above"
    ):
        tune_targets.tune_for_targets(call, TARGETS)
    errors = capfd.readouterr().err
    assert all(f"{target}: no such file: missing.onnx" in errors for target in TARGETS)


def test_lines_begin_with_their_target() -> None:
    out = io.StringIO()
    named = tune_targets._Named(out, "host")
    for text in ("one", " line\ntwo\nhal", "f"):
        named.write(text)
    assert out.getvalue() == "host: one line\nhost: two\n"


@pytest.mark.slow
def test_models_are_tuned_for_two_targets_in_one_job(tmp_path: Path) -> None:
    """On nodes that count as different machines; each target compiles with hits of its own."""
    pytest.importorskip("ray")
    database, models = str(tmp_path / "tuning.db"), [str(tmp_path / f"{n}.onnx") for n in range(3)]
    for n, path in enumerate(models):
        onnx.save(mlp(8, (16 + 16 * n, 32)), path)
    named = [word for target in TARGETS for word in ("--target", target)]
    with RayNodes(tmp_path / "nodes") as cluster:
        cluster.add()
        cluster.add("other", host="x86-64-v2")
        call = ["tune", *models, "--fleet", cluster.address, *named, "--trials", "48", "--db", database]
        assert run([*call, "--threads", "1"]) == 0
    for path in models:
        for target in TARGETS:
            into = ["--target", target, "--threads", "1", "-o", str(tmp_path / "out.atm")]
            assert run(["compile", path, "--db", database, "--require-hit", *into]) == 0
