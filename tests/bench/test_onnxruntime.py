"""Compiled models against ONNX Runtime; skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.bench.problem import write_onnx
from autotune.bench.side_by_side import difference
from autotune.bench.suites import models
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.frontends import zoo
from autotune.runtime.module import Module

onnxruntime = pytest.importorskip("onnxruntime")

QUICK = ("tiny_cnn", "mlp", "encoder")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in zoo.names()]
)
def test_compiled_output_equals_that_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    problem = models.model(name).build()
    assert problem.model is not None
    session = onnxruntime.InferenceSession(
        write_onnx(problem.model, tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, dict(problem.inputs))
    with Module(compile_in_detail(CompileRequest(problem.graph, target="host")).image) as module:
        found = module.run(problem.inputs)
    assert difference([found[v] for v in problem.graph.outputs], expected, np.asarray) <= 1e-4
