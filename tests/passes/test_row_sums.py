"""Products of a matrix and a vector as sums along rows: the same numbers, untuned too, and nothing else."""

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
from autotune.passes.algorithms.row_sums import RowSums
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from tests.passes.named_option import named_option
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check

NAME = RowSums.label


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def product(left: tuple[int, ...], right: tuple[int, ...], constant: bool = False) -> Graph:
    """A product with what often follows."""
    b = GraphBuilder("product")
    w = b.constant("w", normal(*right)) if constant else b.input("w", right)
    y = b.node("Add", b.node("MatMul", b.input("x", left), w), b.constant("bias", normal(1)))
    return b.graph(b.node("Relu", y, name="y"))


GRAPHS = {
    "a matrix and a vector": lambda: product((5, 37), (37, 1)),
    "two vectors": lambda: product((1, 1000), (1000, 1), constant=True),
    "one vector for all matrices": lambda: product((2, 3, 20), (20, 1), constant=True),
    "a vector a matrix": lambda: product((2, 1, 3, 20), (4, 20, 1)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_computes_the_product(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = {v: normal(*graph.type_of(v).shape, seed=1) for v in graph.inputs}
    ((expected,), (found,)) = (evaluate.run(g, inputs).values() for g in (graph, RowSums().apply(graph)))
    # Roundings of 1000 terms, added up in any order, most of which cancel out.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    module = Module(compile_in_detail(CompileRequest(graph, algorithm=NAME)).image)
    (compiled,) = module(*(inputs[v] for v in graph.inputs))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GRAPHS)
def test_all_executions_agree(name: str, seed: int) -> None:
    (region,) = named_option(GRAPHS[name](), NAME).regions
    check(region, random.Random(seed), make.host())


@pytest.mark.parametrize("shape", [(1, 9216), (16, 4096), (4096, 32)])
def test_it_is_what_an_untuned_model_gets(shape: tuple[int, int]) -> None:
    (dispatch,) = divide(product(shape, (shape[1], 1))).dispatches
    ranking = rank([dispatch.workload], make.AVX512, None, Preference())[dispatch.workload.key]
    assert ranking.times[0].option.name == NAME


@pytest.mark.parametrize("right", [(20, 2), (2, 20, 2), (20,)])
def test_other_products_stay(right: tuple[int, ...]) -> None:
    b = GraphBuilder("product")
    graph = b.graph(b.node("MatMul", b.input("x", (2, 3, 20)), b.input("w", right)))
    assert RowSums().apply(graph) is graph


def test_types_whose_sums_are_rounded_stay() -> None:
    b = GraphBuilder("product")
    graph = b.graph(b.node("MatMul", b.input("x", (3, 20), "float16"), b.input("w", (20, 1), "float16")))
    assert RowSums().apply(graph) is graph
