"""Maxima along rows and then along columns: the same numbers, in one dispatch, where windows overlap."""

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
from autotune.passes.algorithms.separable_pool import SeparablePool
from autotune.passes.options import DIRECT
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check

NAME = SeparablePool.label


def pool(image: tuple[int, ...], op: str = "MaxPool", layout: str = "NHWC", **attrs: Any) -> Graph:
    b = GraphBuilder("pool")
    return b.graph(b.node(op, b.input("x", image), name="y", layout=layout, **attrs))


GRAPHS = {
    "padded": lambda: pool((2, 9, 7, 19), kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    "dilated": lambda: pool((1, 11, 12, 5), kernel_shape=(3, 2), dilations=(2, 3), pads=(0, 1, 2, 0)),
    "long": lambda: pool((1, 9, 10, 33), kernel_shape=(5, 7), pads=(2, 3, 2, 3)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_computes_the_maxima(name: str) -> None:
    graph = GRAPHS[name]()
    x = np.random.default_rng(0).standard_normal(graph.type_of("x").shape).astype(np.float32)
    x[0, 3, 4] = np.nan
    ((expected,), (found,)) = (
        evaluate.run(g, {"x": x}).values() for g in (graph, SeparablePool().apply(graph))
    )
    np.testing.assert_array_equal(found, expected)
    module = Module(compile_in_detail(CompileRequest(graph, algorithm=NAME)).image)
    assert [dispatch.kind for dispatch in module.dispatches] == ["chain"]
    np.testing.assert_array_equal(module(x)[0], expected)


@pytest.mark.parametrize("seed", range(6))
def test_all_executions_agree(seed: int) -> None:
    rng = random.Random(seed)
    window = rng.choice([2, 3, 4])
    image = (rng.randint(1, 2), rng.randint(window, 12), rng.randint(window, 12), rng.randint(1, 40))
    check(make.separable_pool(image, window, tuple(rng.choices((0, 1), k=4))), rng, make.host())


def test_an_untuned_model_has_it() -> None:
    graph = pool((1, 13, 13, 512), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    (dispatch,) = divide(graph).dispatches
    ranking = rank([dispatch.workload], make.AVX512, None, Preference())[dispatch.workload.key]
    assert [time.option.name for time in ranking.times] == [NAME, DIRECT]


OTHERS = {
    "stride 2": lambda: pool((1, 9, 9, 16), kernel_shape=(3, 3), strides=(2, 2)),
    "one axis": lambda: pool((1, 9, 9, 16), kernel_shape=(3, 1)),
    "average": lambda: pool((1, 9, 9, 16), "AveragePool", kernel_shape=(3, 3)),
    "channels first": lambda: pool((1, 16, 9, 9), layout="NCHW", kernel_shape=(3, 3)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    graph = OTHERS[name]()
    assert SeparablePool().apply(graph) is graph
