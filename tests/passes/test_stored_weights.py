"""Weights stored in a shorter type: where, how exactly, and in how many bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.plan import rank
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.ops.common import STORED
from autotune.passes.algorithms.winograd import Winograd
from autotune.passes.layout import stored_weights
from autotune.passes.layout.stored_weights import StoredWeights
from autotune.passes.options import DIRECT, allowed, options_of
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from autotune.target import Target

pytestmark = pytest.mark.registers

BYTES = {"float16": 2, "bfloat16": 2, "int8": 1}


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def layer(weights: Any, rows: int = 2, dtype: str = "float32") -> Graph:
    """A fully connected layer."""
    b = GraphBuilder("layer")
    y = b.node("MatMul", b.input("x", (rows, weights.shape[0]), dtype), b.constant("w", weights))
    return b.graph(b.node("Relu", b.node("Add", y, b.constant("bias", normal(weights.shape[1]))), name="y"))


def convolution(weights: Any, size: int = 7) -> Graph:
    b = GraphBuilder("convolution")
    x, w = b.input("x", (1, size, size, weights.shape[2])), b.constant("w", weights)
    y = b.node("Conv", x, w, layout="NHWC", pads=(1, 1, 1, 1))
    return b.graph(b.node("Add", y, b.constant("bias", normal(weights.shape[-1])), name="y"))


def names(graph: Graph, tolerance: float) -> list[str]:
    """The options of its first dispatch that store weights."""
    workload = divide(graph).dispatches[0].workload
    found = [option.name for option in allowed(workload, Preference(tolerance), speculative=True)]
    return [name for name in found if "weights" in name]


def test_a_tolerance_says_what_weights_may_be_stored_in() -> None:
    graph = layer(normal(512, 512))
    assert names(graph, Preference().tolerance) == []
    assert names(graph, 1e-3) == ["float16 weights"]
    assert names(graph, 1e-2) == ["float16 weights", "bfloat16 weights"]
    assert names(graph, 5e-2) == [f"{dtype} weights" for dtype in STORED]


def test_few_weights_stay_and_others_than_weights_do() -> None:
    assert names(layer(normal(511, 512)), 1.0) == []
    b = GraphBuilder("two inputs")
    assert names(b.graph(b.node("MatMul", b.input("x", (2, 512)), b.input("w", (512, 512)))), 1.0) == []
    b = GraphBuilder("float64")
    w = b.constant("w", normal(512, 512).astype(np.float64))
    assert names(b.graph(b.node("MatMul", b.input("x", (2, 512), "float64"), w)), 1.0) == []


def test_convolutions_store_them_too_and_winograds_transformed_ones() -> None:
    found = names(convolution(normal(3, 3, 128, 256)), 5e-2)
    assert found[:3] == [f"{dtype} weights" for dtype in STORED]
    assert found[3:] == [f"winograd F({tile}x{tile}), float16 weights" for tile in (2, 4, 6)]


def magnitudes(columns: int) -> Any:
    """A factor for each column: numbers of all sizes that float32 has, and zero."""
    factors = 10.0 ** np.linspace(-37, 30, columns)
    factors[::7] = 0
    return factors.astype(np.float32)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("rows", [16, 700])
def test_the_error_of_each_channel_is_within_what_is_declared(
    dtype: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_weights, "LEAST_BYTES", 0)
    scales = magnitudes(70)
    b = GraphBuilder("sizes")
    w = b.constant("w", normal(rows, 70) * scales)
    graph = b.graph(b.node("MatMul", b.input("x", (64, rows)), w, name="y"))
    rule = StoredWeights(dtype)
    changed = rule.apply(graph)
    assert changed is not graph
    x = normal(64, rows, seed=1)
    exact = x.astype(np.float64) @ graph.constants["w"].astype(np.float64)
    found = evaluate.run(changed, {"x": x})["y"]
    largest = np.abs(exact).max(axis=0)
    assert np.all(np.abs(found - exact).max(axis=0) <= rule.error * largest)


@pytest.mark.parametrize("tile", [2, 4, 6])
def test_the_error_of_winograds_weights_is_within_what_is_declared(
    tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_weights, "LEAST_BYTES", 0)
    graph = convolution(normal(3, 3, 64, 24), size=13)
    rule = StoredWeights("float16", Winograd(tile))
    x = normal(1, 13, 13, 64)
    exact, found = (evaluate.run(g, {"x": x})["y"] for g in (graph, rule.apply(graph)))
    assert Winograd(tile).error < np.abs(found - exact).max() / np.abs(exact).max() < rule.error


def test_weights_that_were_float16_are_not_changed() -> None:
    graph = layer(normal(512, 512).astype(np.float16).astype(np.float32))
    x = normal(2, 512)
    expected, found = (evaluate.run(g, {"x": x})["y"] for g in (graph, StoredWeights("float16").apply(graph)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_channel(dtype: str, odd: float) -> None:
    weights = normal(512, 512)
    weights[3, 5] = odd
    graph = layer(weights)
    changed = StoredWeights(dtype).apply(graph)
    product = next(n for n in changed.nodes if n.op == "Add").inputs[0]
    with np.errstate(invalid="ignore"):
        found = evaluate.run(changed.replace(outputs=(product,)), {"x": normal(2, 512)})[product]
    assert not np.isfinite(found[:, 5]).any()
    assert np.isfinite(np.delete(found, 5, axis=1)).all()


@pytest.mark.parametrize("dtype", STORED)
def test_the_compiled_model_holds_them_in_that_type(dtype: str) -> None:
    graph, x = layer(normal(600, 450)), normal(2, 600)
    done = compile_in_detail(CompileRequest(graph, algorithm=f"{dtype} weights", tolerance=1.0))
    widest = max(done.image.constants, key=lambda array: array.nbytes)
    assert widest.dtype == dtype
    # panels of a register tile's columns, the last one filled up
    assert 600 * 450 * BYTES[dtype] <= widest.nbytes <= 600 * 512 * BYTES[dtype]
    assert sum(array.nbytes for array in done.image.constants) < widest.nbytes + 20_000
    expected = evaluate.run(graph, {"x": x})["y"]
    with Module(done.image) as module:
        (found,) = module(x)
    bound = StoredWeights(dtype).error
    assert 0 < np.abs(found - expected).max() / np.abs(expected).max() < bound


def test_without_its_conversions_float16_is_not_tried() -> None:
    workload = divide(layer(normal(512, 512))).dispatches[0].workload
    preference = Preference(1e-2)
    for target, missing in (("x86-64-v3", False), ("x86-64-v2", True), ("aarch64", False)):
        ranking = rank([workload], Target.parse(target), None, preference)[workload.key]
        assert ("float16 weights" not in {t.option.name for t in ranking.times}) == missing


def test_half_of_the_bytes_is_what_the_estimate_sees() -> None:
    workload = divide(layer(normal(4096, 4096), rows=1)).dispatches[0].workload
    ranking = rank([workload], Target.parse("x86-64-v3"), None, Preference(1e-3))[workload.key]
    took = {time.option.name: time.latency_ns for time in ranking.times}
    assert ranking.chosen.name == "float16 weights"
    assert took["float16 weights"] < 0.7 * took[DIRECT]


def test_of_equal_estimates_the_more_exact_one_is_used() -> None:
    workload = divide(layer(normal(4096, 4096), rows=1)).dispatches[0].workload
    ranking = rank([workload], Target.parse("x86-64-v3"), None, Preference(1e-2))[workload.key]
    assert ranking.chosen.name == "float16 weights"


def test_a_default_tolerance_does_not_even_look() -> None:
    workload = divide(layer(normal(512, 512))).dispatches[0].workload
    assert [o.name for o in options_of(workload, tolerance=Preference().tolerance)] == [DIRECT]
