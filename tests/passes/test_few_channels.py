"""Convolutions of bfloat16 numbers and bytes take rows of a window's channels at once; columns are whole tiles."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph
from autotune.passes.quantized.few_channels import FewChannels
from autotune.passes.quantized.whole_columns import WholeColumns

pytestmark = pytest.mark.registers


def convolution(channels: int, columns: int, kernel: tuple[int, int], **attrs: Any) -> Graph:
    """A graph with one convolution of whole numbers, whose sums are exact."""
    b, rng = GraphBuilder("convolution"), np.random.default_rng(channels + columns)
    x = b.input("x", (2, 11, 13, channels), "bfloat16")
    w = b.constant("w", rng.integers(-4, 5, (*kernel, channels, columns)).astype("bfloat16"))
    return b.graph(b.node("ShortConv", x, w, layout="NHWC", **attrs))


def drawn(rng: random.Random) -> Graph:
    kernel = rng.randint(1, 5), rng.randint(2, 7)
    pads = tuple(rng.randint(0, size - 1) for size in (*kernel, *kernel))
    strides = rng.randint(1, 3), rng.randint(1, 4)
    return convolution(rng.randint(1, 7), rng.choice((16, 20, 32)), kernel, pads=pads, strides=strides)


def images(graph: Graph) -> dict[str, Array]:
    shape = graph.types["x"].shape
    return {"x": np.random.default_rng(3).integers(-4, 5, shape).astype("bfloat16")}


def of_bytes(rng: random.Random) -> Graph:
    """A convolution of bytes: what is padded is a number that is given."""
    b, values = GraphBuilder("convolution"), np.random.default_rng(rng.randrange(99))
    kernel, channels = (rng.randint(1, 5), rng.randint(2, 7)), rng.randint(1, 7)
    pads = tuple(rng.randint(0, size - 1) for size in (*kernel, *kernel))
    x = b.input("x", (2, 11, 13, channels), "uint8")
    w = b.constant("w", values.integers(-128, 128, (*kernel, channels, rng.choice((16, 20)))).astype("int8"))
    fill = [b.constant("fill", np.asarray(5, "uint8"))] if any(pads) else []
    strides = rng.randint(1, 3), rng.randint(1, 4)
    return b.graph(b.node("IntegerConv", x, w, *fill, layout="NHWC", pads=pads, strides=strides))


@pytest.mark.parametrize("seed", range(12))
def test_few_channels_of_bytes_make_the_same_numbers(seed: int) -> None:
    graph = of_bytes(random.Random(seed))
    after = FewChannels().apply(graph)
    assert [node.op for node in after.nodes] == ["Reshape", "IntegerConv"]
    feed = {"x": np.random.default_rng(3).integers(0, 256, graph.types["x"].shape).astype("uint8")}
    (found,), (wanted,) = (evaluate.run(each, feed).values() for each in (after, graph))
    assert np.array_equal(found, wanted)
    if seed < 3:
        (code,) = autotune.compile(graph).run(feed).values()
        assert np.array_equal(code, wanted)


@pytest.mark.parametrize("seed", range(16))
def test_few_channels_make_the_same_numbers(seed: int) -> None:
    graph = drawn(random.Random(seed))
    after = FewChannels().apply(graph)
    assert [node.op for node in after.nodes] == ["Reshape", "ShortConv"]
    (found,), (wanted,) = (evaluate.run(each, images(graph)).values() for each in (after, graph))
    assert np.array_equal(found, wanted)
    if seed < 4:
        (code,) = autotune.compile(graph).run(images(graph)).values()
        assert np.array_equal(code, wanted)


@pytest.mark.parametrize(
    ("channels", "kernel", "attrs"),
    [(8, (3, 3), {}), (3, (3, 1), {}), (3, (3, 3), {"dilations": (2, 2)}), (4, (3, 3), {"group": 2})],
)
def test_others_stay(channels: int, kernel: tuple[int, int], attrs: dict[str, Any]) -> None:
    depth = channels // int(attrs.get("group", 1))
    b = GraphBuilder("convolution")
    x = b.input("x", (1, 9, 9, channels), "bfloat16")
    w = b.constant("w", np.ones((*kernel, depth, 16), "bfloat16"))
    graph = b.graph(b.node("ShortConv", x, w, layout="NHWC", **attrs))
    assert FewChannels().apply(graph) is graph


def test_columns_beyond_whole_tiles_are_apart() -> None:
    graph = convolution(8, 1000, (1, 1))
    after = WholeColumns().apply(graph)
    assert [after.types[node.outputs[0]].shape[-1] for node in after.nodes] == [992, 8, 1000]
    (found,), (wanted,) = (evaluate.run(each, images(graph)).values() for each in (after, graph))
    assert np.array_equal(found, wanted)
    assert WholeColumns().apply(whole := convolution(8, 144, (1, 1))) is whole
