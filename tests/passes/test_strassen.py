"""Strassen's algorithm: where, how exactly, and that it changes no number by more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.plan import rank
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.algorithms.strassen import Strassen
from autotune.passes.options import DIRECT
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from tests.passes.named_option import named_option
from tests.search_spaces import workloads as make

NAME = Strassen.label


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def layer(rows: tuple[int, ...], inner: int, outer: int, dtype: str = "float32") -> Graph:
    """A fully connected layer, with what often follows."""
    b = GraphBuilder("layer")
    y = b.node(
        "MatMul", b.input("x", (*rows, inner), dtype), b.constant("w", normal(inner, outer).astype(dtype))
    )
    y = b.node("Add", y, b.constant("bias", normal(outer).astype(dtype)))
    return b.graph(b.node("Relu", y, name="y"))


def pointwise(image: tuple[int, int, int], outer: int, kernel: int = 1, **attrs: Any) -> Graph:
    b = GraphBuilder("pointwise")
    w = b.constant("w", normal(kernel, kernel, image[-1], outer))
    y = b.node("Conv", b.input("x", (1, *image)), w, layout="NHWC", **attrs)
    return b.graph(b.node("Add", y, b.input("r", b.type_of(y).shape), name="y"))


GRAPHS = {
    "layer": lambda: layer((64,), 500, 384),
    "sequences": lambda: layer((2, 34), 384, 404),
    "pointwise": lambda: pointwise((8, 8, 384), 390),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_computes_the_product(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = {v: normal(*graph.type_of(v).shape, seed=1) for v in graph.inputs}
    ((exact,), (found,)) = (evaluate.run(g, inputs).values() for g in (graph, Strassen().apply(graph)))
    assert 0 < np.abs(found - exact).max() <= Strassen().error * np.abs(exact).max()


@pytest.mark.parametrize("name", GRAPHS)
def test_compiled_it_computes_the_same_each_time(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = [normal(*graph.type_of(v).shape, seed=1) for v in graph.inputs]
    module = Module(compile_in_detail(CompileRequest(graph, algorithm=NAME)).image)
    kinds = ["strasseninput", "matmul", "strassenoutput"]
    assert [sum(kind in d.name.split("/")[-1] for d in module.dispatches) for kind in kinds] == [1, 1, 1]
    exact = evaluate.run(graph, dict(zip(graph.inputs, inputs, strict=True)))["y"]
    (found,) = module(*inputs)
    assert np.abs(found - exact).max() <= Strassen().error * np.abs(exact).max()
    np.testing.assert_array_equal(found, module(*inputs)[0])


@pytest.mark.parametrize("terms", [384, 1024, 4096])
def test_its_error_is_within_what_is_declared(terms: int) -> None:
    b = GraphBuilder("product")
    y = b.node("MatMul", b.input("x", (64, terms)), b.constant("w", normal(terms, 384)), name="y")
    graph, x = b.graph(y), np.maximum(normal(64, terms, seed=1), 0)
    exact = x.astype(np.float64) @ graph.constants["w"].astype(np.float64)
    found = evaluate.run(Strassen().apply(graph), {"x": x})["y"]
    assert np.abs(found - exact).max() <= Strassen().error / 3 * np.abs(exact).max()


def test_it_declares_how_far_its_inputs_may_go() -> None:
    b = GraphBuilder("product")
    w = b.constant("w", np.full((384, 384), 1e-4, np.float32))
    graph = b.graph(b.node("MatMul", b.input("x", (64, 384)), w, name="y"))
    most = np.float32(np.finfo(np.float32).max / Strassen().growth * 0.9)
    found = evaluate.run(Strassen().apply(graph), {"x": np.sign(normal(64, 384)) * most})["y"]
    assert np.isfinite(found).all()


def test_its_weights_are_seven_quarters() -> None:
    found = named_option(layer((32,), 500, 384), NAME)
    sizes = [
        [r.region.graph.type_of(v).shape for v in sorted(r.region.constant_inputs)] for r in found.regions
    ]
    assert sizes == [[], [(7, 250, 192)], [(384,)]]


def test_a_zen_4_uses_it_untuned_where_many_rows_share_the_weights() -> None:
    zen4 = replace(make.AVX512, cpu="znver4", threads=2)
    (dispatch,) = divide(layer((128,), 768, 768)).dispatches
    ranking = rank([dispatch.workload], zen4, None, Preference())[dispatch.workload.key]
    assert [time.option.name for time in ranking.times] == [NAME, DIRECT]


OTHERS = {
    "few rows": lambda: layer((62,), 384, 384),
    "odd rows": lambda: layer((65,), 384, 384),
    "odd sums": lambda: layer((64,), 385, 384),
    "odd columns": lambda: layer((64,), 384, 385),
    "short sums": lambda: layer((64,), 254, 768),
    "few columns": lambda: layer((64,), 768, 254),
    "float64": lambda: layer((64,), 384, 384, "float64"),
    "odd width": lambda: pointwise((16, 7, 384), 384),
    "window": lambda: pointwise((8, 8, 384), 384, 3),
    "strided": lambda: pointwise((16, 16, 384), 384, strides=(2, 2)),
    "padded": lambda: pointwise((8, 8, 384), 384, pads=(1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    graph = OTHERS[name]()
    assert Strassen().apply(graph) is graph


def test_few_rows_are_left_to_comparisons() -> None:
    assert named_option(layer((32,), 384, 384), NAME).speculative
    assert not named_option(layer((64,), 384, 384), NAME).speculative
    graph = layer((30,), 384, 384)
    assert Strassen(few=True).apply(graph) is graph


def test_two_inputs_and_batches_of_weights_stay() -> None:
    b = GraphBuilder("inputs")
    graph = b.graph(b.node("MatMul", b.input("x", (64, 384)), b.input("w", (384, 384))))
    assert Strassen().apply(graph) is graph
    b = GraphBuilder("batch")
    graph = b.graph(b.node("MatMul", b.input("x", (2, 32, 384)), b.constant("w", normal(2, 384, 384))))
    assert Strassen().apply(graph) is graph
