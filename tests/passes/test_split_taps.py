"""Taps that meet little of the image: the convolutions that are left, and that their sum is the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.verify import verify
from autotune.passes.algorithms.split_taps import SplitTaps
from autotune.runtime.module import Module
from tests.passes.test_dead_taps import RNG, convolution

ALWAYS = SplitTaps(saved=0)
CASES = [
    ((14, 14), (3, 3), (12, 12), (12, 12, 12, 12), (1, 1), 9),
    ((14, 28), (3, 3), (12, 2), (12, 2, 12, 2), (1, 1), 9),
    ((9, 9), (3, 3), (8, 8), (8, 8, 8, 8), (2, 2), 9),
    ((8, 16), (3, 3), (7, 3), (7, 4, 6, 2), (1, 2), 6),
    ((8, 8), (3, 3), (2, 2), (2, 2, 2, 2), (1, 1), 1),
    ((8, 8), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("size", "kernel", "dilations", "pads", "strides", "parts"), CASES)
def test_the_sum_is_the_convolution(
    size: tuple[int, int],
    kernel: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...],
    strides: tuple[int, int],
    parts: int,
    layout: str,
) -> None:
    graph = convolution(size, kernel, dilations, pads, strides=strides, layout=layout)
    split = ALWAYS.apply(graph)
    verify(split)
    assert Counter(node.op for node in split.nodes)["Conv"] == parts
    assert (split is graph) == (parts == 1)
    kept = sum(array.size for array in split.constants.values())
    assert kept <= graph.constants["w"].size  # no weight is there twice
    x = RNG.standard_normal(graph.types["x"].shape).astype(np.float32)
    expected, found = evaluate.run(graph, {"x": x})["y"], evaluate.run(split, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_little_work_and_infinite_weights_stay() -> None:
    graph = convolution(*CASES[0][:4])
    assert SplitTaps().apply(graph) is graph
    graph.constants["w"][0, 0, 0, 0] = np.inf
    assert ALWAYS.apply(graph) is graph


def test_machine_code_of_a_pyramid() -> None:
    build = GraphBuilder("g")
    x = build.input("x", (1, 128, 14, 14))
    w = build.constant("w", RNG.standard_normal((160, 128, 3, 3)).astype(np.float32))
    bias = build.constant("b", RNG.standard_normal(160).astype(np.float32))
    y = build.node("Conv", x, w, bias, name="y", dilations=(12, 12), pads=(12, 12, 12, 12))
    build.node("Relu", y, name="z")
    graph = build.graph("z")
    done = compile_in_detail(CompileRequest(graph))
    assert sum("conv" in dispatch.name for dispatch in done.partition.dispatches) == 9
    feed = {"x": RNG.standard_normal((1, 128, 14, 14)).astype(np.float32)}
    with Module(done.image) as module:
        found = module.run(feed)["z"]
    expected = evaluate.run(graph, feed)["z"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
