"""Transposed convolutions in phases: random attributes, NumPy against the rewritten graph and machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.compiler import divide
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.pipeline import run_passes, standard_passes
from tests.seeds import seeds


def random_graph(seed: int) -> Graph:
    """A transposed convolution of rank 1 to 3 with any attributes, perhaps a bias, a ReLU and a residual."""
    rng = np.random.default_rng(seed)
    rank, group = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2]))
    kernel, strides, dilations = (tuple(map(int, rng.integers(1, top, rank))) for top in (5, 4, 3))
    size = tuple(map(int, rng.integers(2, 6, rank)))
    extra = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True))
    whole = [
        (i - 1) * s + (k - 1) * d + 1 + e
        for i, s, k, d, e in zip(size, strides, kernel, dilations, extra, strict=True)
    ]
    begins = [int(rng.integers(0, min(4, o))) for o in whole]
    ends = [int(rng.integers(0, min(4, o - b))) for o, b in zip(whole, begins, strict=True)]
    ic, oc = int(rng.choice([2, 9])) * group, int(rng.integers(1, 9)) * group
    b = GraphBuilder("transposed")
    b.input("x", (1, ic, *size))
    b.constant("w", rng.standard_normal((ic, oc // group, *kernel), dtype=np.float32))
    operands = ["x", "w"]
    if rng.integers(2):
        operands.append(b.constant("bias", rng.standard_normal(oc, dtype=np.float32)))
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": (*begins, *ends)}
    value = b.node("ConvTranspose", *operands, group=group, output_padding=extra, **attrs)
    if rng.integers(2):
        out = [o - p - q for o, p, q in zip(whole, begins, ends, strict=True)]
        b.input("residual", (1, oc, *out))
        value = b.node("Relu", b.node("Add", value, "residual"))
    return b.graph(value)


def inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {v: rng.standard_normal(graph.type_of(v).shape, dtype=np.float32) for v in graph.inputs}


@pytest.mark.parametrize("seed", range(60))
def test_phases_compute_the_same(seed: int) -> None:
    graph = random_graph(seed)
    given = inputs(graph, seed)
    (expected,) = evaluate.run(graph, given).values()
    (found,) = evaluate.run(run_passes(graph, standard_passes()), given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", seeds(5, 12, first=100))
def test_machine_code_computes_the_same(seed: int) -> None:
    graph = random_graph(seed)
    given = inputs(graph, seed)
    (expected,) = evaluate.run(graph, given).values()
    (found,) = autotune.compile(graph).run(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_phases_are_written_in_place_with_what_follows() -> None:
    b = GraphBuilder("up")
    b.input("x", (1, 4, 4, 32))
    b.constant("w", np.ones((4, 4, 32, 32), np.float32))
    b.constant("bias", np.ones(32, np.float32))
    y = b.node("ConvTranspose", "x", "w", "bias", layout="NHWC", strides=(2, 2), pads=(1, 1, 1, 1))
    parts = divide(b.graph(b.node("Relu", y)))
    assert [[node.op for node in d.region.graph.nodes] for d in parts.dispatches] == [
        ["Conv", "Add", "Relu"]
    ] * 4
    places = [parts.placements[d.outputs[0]] for d in parts.dispatches]
    assert [place.offset for place in places] == [0, 32, 8 * 32, 9 * 32]
    assert {place.strides for place in places} == {(8 * 8 * 32, 2 * 8 * 32, 2 * 32, 1)}


def test_stride_one_is_one_convolution() -> None:
    b = GraphBuilder("same")
    b.input("x", (1, 5, 5, 4))
    b.constant("w", np.ones((3, 3, 4, 8), np.float32))
    graph = run_passes(b.graph(b.node("ConvTranspose", "x", "w", layout="NHWC")), standard_passes())
    assert [node.op for node in graph.nodes] == ["Conv"]


def test_few_output_channels_are_one_product() -> None:
    b = GraphBuilder("picture")
    b.input("x", (1, 4, 4, 32))
    b.constant("w", np.ones((4, 4, 32, 3), np.float32))
    b.constant("bias", np.ones(3, np.float32))
    y = b.node("ConvTranspose", "x", "w", "bias", layout="NHWC", strides=(2, 2), pads=(1, 1, 1, 1))
    parts = divide(b.graph(b.node("Tanh", y)))
    regions = [[node.op for node in d.region.graph.nodes] for d in parts.dispatches]
    assert regions == [["MatMul"], ["OverlapAdd", "Add", "Tanh"]]
