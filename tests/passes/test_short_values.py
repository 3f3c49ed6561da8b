"""Values that a model rounds to bfloat16 are stored so, and products of them are products of bfloat16."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import autotune
from autotune.compiler.dividing import divide
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph
from autotune.passes.pipeline import run_passes, standard_passes

pytestmark = pytest.mark.registers

SHORT = ml_dtypes.bfloat16


class Rounded(GraphBuilder):
    """A builder of graphs whose values are rounded to bfloat16 at some places, or at none."""

    def __init__(self, seed: int, share: float = 1.0) -> None:
        super().__init__("rounded")
        self.rng = np.random.default_rng(seed)
        self.share = share
        self.count = 0

    def rounded(self, value: str) -> str:
        """Return a value after conversion to bfloat16 and back, or as it is."""
        if self.rng.random() > self.share:
            return value
        return self.node("Cast", self.node("Cast", value, to="bfloat16"), to="float32")

    def weights(self, *shape: int) -> str:
        array = (self.rng.standard_normal(shape) / np.prod(shape[:-1]) ** 0.5).astype(np.float32)
        self.count += 1
        return self.constant(f"w{self.count}", array.astype(SHORT).astype(np.float32))


def layers(b: Rounded, x: str) -> str:
    """A residual block, pools, a join, a shuffle, attention's views and a classifier, channels last."""
    last = {"layout": "NHWC"}
    x = b.rounded(x)
    one = b.node("Conv", x, b.weights(3, 3, 4, 16), pads=(1, 1, 1, 1), **last)
    one = b.rounded(b.node("Relu", one))
    two = b.node("Conv", one, b.weights(3, 3, 1, 16), pads=(1, 1, 1, 1), group=16, **last)
    two = b.rounded(b.node("Clip", two, min=0.0, max=6.0))
    three = b.rounded(b.node("Conv", two, b.weights(1, 1, 16, 16), **last))
    added = b.rounded(b.node("Relu", b.node("Add", three, one)))
    window = {"kernel_shape": (2, 2), "strides": (2, 2), **last}
    most = b.node("MaxPool", added, **window)
    mean = b.rounded(b.node("AveragePool", added, **window))
    joined = b.node("ChannelShuffle", b.node("Concat", most, mean, axis=3), groups=2, **last)
    groups = b.rounded(b.node("Conv", b.rounded(joined), b.weights(1, 1, 16, 32), group=2, **last))
    four = b.node("Conv", groups, b.weights(1, 1, 32, 24), **last)
    turned = b.node("Transpose", b.node("Relu", four), perm=(0, 3, 1, 2))
    rows = b.rounded(b.node("Reshape", turned, shape=(12, 24)))
    return b.node("Softmax", b.node("MatMul", rows, b.weights(24, 10)), axis=1)


def graph_of(seed: int, share: float = 1.0) -> Graph:
    b = Rounded(seed, share)
    return b.graph(layers(b, b.input("x", (1, 6, 8, 4))))


def feed() -> dict[str, Array]:
    return {"x": np.random.default_rng(1).standard_normal((1, 6, 8, 4)).astype(np.float32)}


def test_no_dispatch_converts_and_all_between_is_short() -> None:
    """Logits and what is made of them are float32."""
    parts = divide(graph_of(0))
    names = [dispatch.name.split("_", 1)[1] for dispatch in parts.dispatches]
    assert "cast" not in names
    between = [d.region.graph.types[v].dtype for d in parts.dispatches[:-2] for v in d.region.graph.outputs]
    assert {*between} == {"bfloat16"}
    assert len(names) == len(divide(graph_of(0, 0.0)).dispatches)


def test_products_of_rounded_values_are_short() -> None:
    found = Counter(node.op for node in run_passes(graph_of(0), standard_passes()).nodes)
    assert (found["ShortConv"], found["ShortMatMul"]) == (4, 1)
    assert not {"Conv", "MatMul"} & {*found}


@pytest.mark.parametrize("seed", range(8))
def test_numbers_stay(seed: int) -> None:
    """Random places are rounded; NumPy has what the passes keep, and machine code what NumPy has."""
    graph = graph_of(seed, (1.0, 0.5)[seed % 2])
    ((name, wanted),) = evaluate.run(graph, feed()).items()
    passed = evaluate.run(run_passes(graph, standard_passes()), feed())[name]
    # Other orders of sums may round a value to its neighbour, a 256th away.
    np.testing.assert_allclose(passed, wanted, rtol=0.02)
    found = autotune.compile(graph, threads=1).run(feed())[name]
    np.testing.assert_allclose(found, wanted, rtol=0.02)


def test_weights_of_other_numbers_stay_float32() -> None:
    b = Rounded(0)
    x = b.rounded(b.input("x", (4, 8)))
    w = b.constant("w", b.rng.standard_normal((8, 5)).astype(np.float32))
    after = run_passes(b.graph(b.node("MatMul", x, w)), standard_passes())
    assert [node.op for node in after.nodes] == ["Cast", "Cast", "MatMul"]


def test_scales_do_not_go_into_short_weights() -> None:
    """They would not be numbers of bfloat16 then: the scale is part of the epilogue."""
    b = Rounded(0)
    x = b.rounded(b.input("x", (4, 8)))
    scale = b.constant("scale", b.rng.uniform(0.5, 2, 5).astype(np.float32))
    product = b.node("Mul", b.node("MatMul", x, b.weights(8, 5)), scale)
    after = run_passes(b.graph(product), standard_passes())
    assert [node.op for node in after.nodes] == ["Cast", "ShortMatMul", "Mul"]


def test_a_graph_without_bfloat16_stays() -> None:
    graph = graph_of(0, 0.0)
    assert "Cast" not in {node.op for node in run_passes(graph, standard_passes()).nodes}
