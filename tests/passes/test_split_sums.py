"""Long sums with few results in parts: where, that the numbers are the same, and when an untuned model has them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.plan import rank
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.algorithms.split_sums import LEAST_TERMS, MOST_RESULTS, SplitSums
from autotune.passes.options import DIRECT
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from tests.passes.named_option import named_option
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check
from tests.seeds import seeds

NAME = SplitSums.label


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def product(left: tuple[int, ...], right: tuple[int, ...], constant: bool = True) -> Graph:
    """A product with what often follows."""
    b = GraphBuilder("product")
    w = b.constant("w", normal(*right)) if constant else b.input("w", right)
    y = b.node("Add", b.node("MatMul", b.input("x", left), w), b.constant("bias", normal(right[-1])))
    return b.graph(b.node("Relu", y, name="y"))


def total(op: str, shape: tuple[int, ...], **attrs: Any) -> Graph:
    b = GraphBuilder("total")
    return b.graph(b.node("Relu", b.node(op, b.input("x", shape), **attrs), name="y"))


GRAPHS = {
    "one row": lambda: product((1, 1280), (1280, 10)),
    "rows": lambda: product((3, 700), (700, 5)),
    "two inputs": lambda: product((2, 2, 520), (2, 520, 3), constant=False),
    "sum": lambda: total("ReduceSum", (1000, 3), axes=(0,), keepdims=0),
    "mean": lambda: total("ReduceMean", (2, 900, 7), axes=(1,)),
    "two axes": lambda: total("ReduceSum", (30, 20, 5), axes=(0, 1)),
    "image": lambda: total("GlobalAveragePool", (1, 24, 26, 5), layout="NHWC"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_parts_compute_the_same(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = {v: normal(*graph.type_of(v).shape, seed=1) for v in graph.inputs}
    ((expected,), (found,)) = (evaluate.run(g, inputs).values() for g in (graph, SplitSums().apply(graph)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
    module = Module(compile_in_detail(CompileRequest(graph, algorithm=NAME)).image)
    (compiled,) = module(*(inputs[v] for v in graph.inputs))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("name", GRAPHS)
def test_all_executions_agree(name: str, seed: int) -> None:
    regions = named_option(GRAPHS[name](), NAME).regions
    assert len(regions) == 2  # the parts, and their sum with what follows
    for region in regions:
        check(region, random.Random(seed), make.host())


@pytest.mark.parametrize(("wanted", "count"), [(8, 8), (4, 4), (7, 7)])
def test_parts_are_equal_and_about_as_many_as_wanted(wanted: int, count: int) -> None:
    graph = SplitSums(wanted).apply(product((1, 2800), (2800, 3)))
    assert any(node.attrs.get("shape") == (1, count, 2800 // count) for node in graph.nodes)


def ranked(graph: Graph) -> list[str]:
    (dispatch,) = divide(graph).dispatches
    ranking = rank([dispatch.workload], make.AVX512, None, Preference())[dispatch.workload.key]
    return [time.option.name for time in ranking.times]


def test_an_untuned_model_has_parts_where_each_addition_waits_for_the_one_before() -> None:
    assert ranked(product((1, 25088), (25088, 10))) == [NAME, DIRECT]
    assert ranked(total("ReduceSum", (12544, 16), axes=(0,))) == [NAME, DIRECT]


OTHERS = {
    "many results": lambda: product((1, 1024), (1024, MOST_RESULTS + 1)),
    "few terms": lambda: product((1, LEAST_TERMS - 2), (LEAST_TERMS - 2, 10)),
    "a prime number of terms": lambda: product((1, 1031), (1031, 10)),
    "rows": lambda: total("ReduceSum", (3, 1000), axes=(1,)),
    "axes apart": lambda: total("ReduceSum", (30, 4, 30, 2), axes=(0, 2)),
    "maximum": lambda: total("ReduceMax", (1000, 3), axes=(0,)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    graph = OTHERS[name]()
    assert SplitSums().apply(graph) is graph


def test_types_whose_sums_are_rounded_stay() -> None:
    b = GraphBuilder("total")
    graph = b.graph(b.node("ReduceSum", b.input("x", (1000, 3), "float16"), axes=(0,)))
    assert SplitSums().apply(graph) is graph
