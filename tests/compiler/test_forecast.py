"""Predictions of a model before it is compiled."""

from __future__ import annotations

import json

import pytest

from autotune.codegen.llvm import backend
from autotune.compiler import compile_in_detail, predict_in_detail, predict_ns
from autotune.compiler.forecast import LatencySource
from autotune.compiler.request import CompileRequest
from autotune.target import Target

MODEL = "zoo:tiny_cnn"


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_that_of_the_compiled_model(threads: int) -> None:
    said = predict_in_detail(CompileRequest(MODEL, threads=threads)).memory
    image = compile_in_detail(CompileRequest(MODEL, threads=threads)).image
    assert said.arena_bytes == image.arena_bytes
    assert said.scratch_bytes == image.scratch_bytes(threads)
    assert said.constant_bytes == sum(constant.nbytes for constant in image.constants)


def test_nothing_is_compiled_for_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("machine code was made")

    monkeypatch.setattr(backend, "compile_ir", refuse)
    found = predict_in_detail(CompileRequest(MODEL, target=Target.parse("x86-64-v3")))
    assert found.latency_ns == pytest.approx(sum(d.latency_ns for d in found.dispatches))
    assert predict_ns(CompileRequest(MODEL, target=Target.parse("x86-64-v3"))) == found.latency_ns
    assert found.interval_ns[0] < found.latency_ns < found.interval_ns[1]
    assert sum(map(found.share, found.dispatches)) == pytest.approx(1.0)
    assert found.sources == {LatencySource.PREDICTED: len(found.dispatches)}
    assert json.loads(json.dumps(found.to_json()))["memory"]["peak_bytes"] == found.memory.peak_bytes
