"""Taps that only meet padding: what is left of the window, and that the answer is the same."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.verify import verify
from autotune.passes.canonical.dead_taps import DeadTaps

RNG = np.random.default_rng(0)


def convolution(
    size: tuple[int, int],
    kernel: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...],
    **more: object,
) -> Graph:
    layout = str(more.get("layout", "NCHW"))
    last = layout == "NHWC"
    build = GraphBuilder("g")
    x = build.input("x", (1, *size, 3) if last else (1, 3, *size))
    shape = (*kernel, 3, 2) if last else (2, 3, *kernel)
    w = build.constant("w", RNG.standard_normal(shape).astype(np.float32))
    attrs = {"dilations": dilations, "pads": pads, "layout": layout, "strides": more.get("strides", (1, 1))}
    build.node("Conv", x, w, name="y", **attrs)
    return build.graph("y")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("size", "kernel", "dilations", "pads", "strides", "left"),
    [
        ((5, 5), (3, 3), (6, 6), (6, 6, 6, 6), (1, 1), (1, 1)),
        ((5, 7), (3, 3), (6, 6), (6, 6, 6, 6), (1, 1), (1, 3)),
        ((4, 4), (5, 3), (3, 1), (6, 1, 6, 1), (1, 1), (3, 3)),
        ((4, 4), (3, 3), (4, 4), (0, 4, 8, 4), (1, 1), (1, 1)),
        ((4, 4), (3, 3), (5, 5), (5, 5, 5, 5), (2, 2), (1, 1)),
        ((5, 5), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (3, 3)),
    ],
)
def test_what_is_left(
    size: tuple[int, int],
    kernel: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...],
    strides: tuple[int, int],
    left: tuple[int, int],
    layout: str,
) -> None:
    graph = convolution(size, kernel, dilations, pads, strides=strides, layout=layout)
    cut = DeadTaps().apply(graph)
    verify(cut)
    (node,) = cut.nodes
    assert node.attrs["kernel_shape"] == left
    assert (cut is graph) == (left == kernel)
    x = RNG.standard_normal(graph.types["x"].shape).astype(np.float32)
    expected, found = evaluate.run(graph, {"x": x})["y"], evaluate.run(cut, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_weights_that_are_not_finite_stay() -> None:
    graph = convolution((5, 5), (3, 3), (6, 6), (6, 6, 6, 6))
    graph.constants["w"][0, 0, 0, 0] = np.inf
    assert DeadTaps().apply(graph) is graph
