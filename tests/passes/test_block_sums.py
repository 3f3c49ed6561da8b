"""Long sums are taken in blocks: as precise as short ones, also where all elements have one sign."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune.graph import Graph, evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.verify import verify
from autotune.passes.algorithms.block_sums import BlockSums
from search_spaces import spaces
from tests.search_spaces import workloads as w


def reduction(op: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: object) -> Graph:
    b = GraphBuilder()
    return b.graph(b.node(op, b.input("x", shape, dtype), name="y", **attrs))  # type: ignore[arg-type]


def product(left: tuple[int, ...], right: tuple[int, ...], constant: bool = False) -> Graph:
    b = GraphBuilder()
    x = b.input("x", left)
    weights = b.constant("w", positive(right)) if constant else b.input("w", right)
    return b.graph(b.node("MatMul", x, weights, name="y"))


def positive(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(dtype)


GRAPHS = {
    "two axes": reduction("ReduceSum", (2, 30, 40, 3), axes=(1, 2)),
    "a product of lengths": reduction("ReduceMean", (2, 8192, 3), axes=(1,), keepdims=0),
    "a rest": reduction("ReduceSum", (9001, 2), axes=(0,)),
    "a row": reduction("ReduceMean", (1, 100_007), axes=(1,)),
    "halves": reduction("ReduceMean", (9001, 2), "float16", axes=(0,)),
    "NCHW": reduction("GlobalAveragePool", (1, 3, 300, 310)),
    "NHWC": reduction("GlobalAveragePool", (1, 80, 90, 3), layout="NHWC"),
    "product": product((3, 8192), (8192, 2)),
    "product of matrices": product((2, 3, 9001), (2, 9001, 4)),
    "one right operand": product((2, 3, 9001), (9001, 4), constant=True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_compute_the_same(name: str) -> None:
    graph = GRAPHS[name]
    cut = BlockSums(longest=500).apply(graph)
    verify(cut)
    assert len(cut.nodes) > len(graph.nodes)
    inputs = {v: positive(graph.types[v].shape, graph.types[v].dtype) for v in graph.inputs}
    expected, found = evaluate.run(graph, inputs)["y"], evaluate.run(cut, inputs)["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-3 if expected.dtype == np.float16 else 2e-5)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_what_is_short_or_no_sum_stays(op: str) -> None:
    graph = (
        reduction(op, (1 << 15, 2), axes=(0,))
        if op == "ReduceSum"
        else reduction(op, (1 << 17, 2), axes=(0,))
    )
    assert BlockSums().apply(graph) is graph
    integers = reduction("ReduceSum", (1 << 17, 2), "int64", axes=(0,))
    assert BlockSums().apply(integers) is integers


@pytest.mark.parametrize(
    "graph",
    [
        reduction("GlobalAveragePool", (1, 3, 500, 500)),
        reduction("ReduceSum", (300_007, 3), axes=(0,)),
        product((4, 300_000), (300_000, 4)),
    ],
    ids=["pool", "sum", "product"],
)
def test_long_sums_of_one_sign_are_precise(graph: Graph) -> None:
    inputs = {v: positive(graph.types[v].shape) for v in graph.inputs}
    exact = {v: a.astype(np.float64) for v, a in inputs.items()}
    if "w" in exact:
        expected = exact["x"] @ exact["w"]
    else:
        axes = (2, 3) if graph.nodes[0].op == "GlobalAveragePool" else (0,)
        fold = np.mean if graph.nodes[0].op == "GlobalAveragePool" else np.sum
        expected = fold(exact["x"], axis=axes, keepdims=True)
    with autotune.compile(graph, threads=1) as module:
        np.testing.assert_allclose(module.run(inputs)["y"], expected, rtol=2e-6)


def test_windows_larger_than_a_core_can_wait_for_are_not_fetched_ahead() -> None:
    workload = w.unary("ReduceSum", (1, 2000, 2000, 3), axes=(2,))
    assert "ahead" not in {knob.name for knob in spaces.space_for(workload, w.AVX2).knobs}
