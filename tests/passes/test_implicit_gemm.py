"""Convolutions as products of patches: one dispatch, which has what surrounds it, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.compiler import divide
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.algorithms.implicit_gemm import ImplicitGemm
from autotune.passes.options import Option, options_of


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def build(size: tuple[int, ...], kernel: tuple[int, ...], c: int = 6, oc: int = 5, **attrs: Any) -> Graph:
    """A channels-last convolution with bias, residual and ReLU."""
    b = GraphBuilder("conv")
    x, w = b.input("x", (2, *size, c)), b.constant("w", normal(*kernel, c // int(attrs.get("group", 1)), oc))
    y = b.node("Add", b.node("Conv", x, w, layout="NHWC", **attrs), b.constant("bias", normal(oc)))
    return b.graph(b.node("Relu", b.node("Add", y, b.input("r", b.type_of(y).shape)), name="y"))


def implicit(graph: Graph) -> list[Option]:
    """The options of that name of the dispatches of a graph."""
    every = [a for d in divide(graph).dispatches for a in options_of(d.workload)]
    return [a for a in every if a.name == "implicit GEMM"]


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((9,), (3,), {"pads": (1, 1)}),
    ((7, 8), (3, 3), {"pads": (1, 1, 1, 1)}),
    ((7, 8), (3, 2), {"pads": (0, 1, 2, 0), "strides": (2, 3)}),
    ((9, 9), (3, 3), {"dilations": (2, 3)}),
    ((3, 4, 5), (2, 3, 2), {"pads": (1, 1, 0, 0, 1, 2)}),
    ((7, 5), (1, 1), {"strides": (2, 2)}),
    ((2, 2), (1, 1), {"pads": (1, 0, 0, 2)}),
]


@pytest.mark.parametrize(("size", "kernel", "attrs"), GEOMETRIES)
def test_the_rewritten_graph_computes_the_same(size: Any, kernel: Any, attrs: Any) -> None:
    graph = build(size, kernel, **attrs)
    changed = ImplicitGemm().apply(graph)
    assert {"Patches", "MatMul"} <= {node.op for node in changed.nodes}
    given = {v: normal(*graph.type_of(v).shape) for v in graph.inputs}
    (expected,), (found,) = (list(evaluate.run(g, given).values()) for g in (graph, changed))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "kernel", "attrs"), GEOMETRIES)
def test_it_is_one_dispatch_with_its_epilogue(size: Any, kernel: Any, attrs: Any) -> None:
    (found,) = implicit(build(size, kernel, **attrs))
    (region,) = found.regions
    assert [node.op for node in region.region.graph.nodes] == ["Patches", "MatMul", "Add", "Add", "Relu"]
    assert region.kind == "contraction"


def test_what_brings_an_image_to_channels_last_goes_along() -> None:
    b = GraphBuilder("planes")
    x, w = b.input("x", (1, 3, 9, 9)), b.constant("w", normal(3, 3, 3, 8))
    turned = b.node("Transpose", x, perm=(0, 2, 3, 1))
    y = b.node("Conv", turned, w, layout="NHWC", strides=(2, 2), pads=(1, 1, 1, 1))
    (found,) = implicit(b.graph(b.node("Relu", y)))
    (region,) = found.regions
    assert [node.op for node in region.region.graph.nodes] == ["Transpose", "Patches", "MatMul", "Relu"]


@pytest.mark.parametrize(("kernel", "attrs"), [((1, 1), {}), ((3, 3), {"group": 2}), ((3, 3), {"group": 6})])
def test_what_is_a_product_already_and_groups_are_left_alone(kernel: Any, attrs: Any) -> None:
    graph = build((6, 7), kernel, oc=6, **attrs)
    assert ImplicitGemm().apply(graph) is graph
