"""Convolutions and pools of one to three dimensions with any attributes: NumPy against machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.module import Module
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import host, run
from tests.seeds import seeds


def random_graph(seed: int) -> Graph:
    """One convolution (plain, grouped or depthwise) or pool, perhaps with a ReLU."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    kernel, strides, dilations = (tuple(map(int, rng.integers(1, top, rank))) for top in (4, 4, 3))
    pads = tuple(int(rng.integers(0, k)) for k in kernel * 2)
    size = tuple((k - 1) * d + 1 + int(rng.integers(0, 7)) for k, d in zip(kernel, dilations, strict=True))
    group, per_group = [(1, 3), (2, 4), (1, 19), (5, 1)][rng.integers(4)]
    b = GraphBuilder("window")
    b.input("x", (int(rng.integers(1, 3)), group * per_group, *size))
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
    if rng.integers(3):
        outputs = group * int(rng.choice([1, 2, 17]))
        b.constant("w", rng.standard_normal((outputs, per_group, *kernel), dtype=np.float32))
        value = b.node("Conv", "x", "w", group=group, **attrs)
    elif rng.integers(2):
        value = b.node("MaxPool", "x", kernel_shape=kernel, **attrs)
    else:
        value = b.node(
            "AveragePool", "x", kernel_shape=kernel, count_include_pad=int(rng.integers(2)), **attrs
        )
    return b.graph(b.node("Relu", value) if rng.integers(2) else value)


@pytest.mark.parametrize("seed", seeds(12, 24))
def test_default_schedules(seed: int) -> None:
    graph = random_graph(seed)
    rng = np.random.default_rng(seed)
    given = {v: rng.standard_normal(graph.type_of(v).shape, dtype=np.float32) for v in graph.inputs}
    (expected,) = evaluate.run(graph, given).values()
    (found,) = autotune.compile(graph).run(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", seeds(6, 16, first=200))
def test_as_products_of_patches(seed: int) -> None:
    graph = random_graph(seed)
    rng = np.random.default_rng(seed)
    given = {v: rng.standard_normal(graph.type_of(v).shape, dtype=np.float32) for v in graph.inputs}
    (expected,) = evaluate.run(graph, given).values()
    with Module(compile_in_detail(CompileRequest(graph, algorithm="implicit GEMM")).image) as module:
        (found,) = module.run(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", seeds(5, 12, first=100))
def test_random_schedules(seed: int) -> None:
    for workload in distinct_workloads(divide(random_graph(seed))):
        space = space_for(workload, host())
        for config in space.population(np.random.default_rng(seed), 2):
            found, expected = run(space, config)
            for got, want in zip(found, expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
