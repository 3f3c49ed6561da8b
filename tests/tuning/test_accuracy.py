"""The error of a compiled model from end to end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.preference import TOLERANCE
from autotune.target import Target
from autotune.tuning.measure.accuracy import EndToEnd, checked
from autotune.tuning.report.units import error_in_words


def graph() -> Graph:
    """Two layers, and how many results are positive."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("layers")
    x = b.input("x", (2, 512))
    for number in range(2):
        w = rng.standard_normal((512, 512)).astype(np.float32) / np.float32(512**0.5)
        x = b.node("Relu", b.node("MatMul", x, b.constant(f"w{number}", w)))
    return b.graph(b.node("Identity", x, name="y"), b.node("ArgMax", x, axis=1, name="index"))


def test_it_is_asked_for_by_a_tolerance_above_the_default() -> None:
    model = graph()
    assert EndToEnd.wanted(TOLERANCE, model) is None
    usual = compile_in_detail(CompileRequest(model))
    assert checked(usual, model) is usual
    assert checked(compile_in_detail(CompileRequest(model, tolerance=2 * TOLERANCE)), model).error < 1e-5


def test_shorter_weights_show_in_it() -> None:
    model = graph()
    errors = []
    for dtype in ("float16", "bfloat16", "int8"):
        done = compile_in_detail(CompileRequest(model, algorithm=f"{dtype} weights", tolerance=1.0))
        errors.append(checked(done, model).error)
    assert errors == sorted(errors)
    assert 1e-5 < errors[0] < 1e-3 < errors[2] < 5e-2


def test_nothing_is_said_of_code_for_other_machines() -> None:
    model = graph()
    done = compile_in_detail(CompileRequest(model))
    other = replace(done.image, target=Target.parse("aarch64"))
    assert EndToEnd(model).error(other) is None


def test_its_line() -> None:
    expected = "error from end to end 0.029 % of the largest result, against float32 and for random inputs"
    assert error_in_words(2.9e-4) == expected
