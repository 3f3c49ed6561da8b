"""Operators between DequantizeLinear and QuantizeLinear become operators on integers, within one step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.ir import Graph
from autotune.passes.pipeline import run_passes, standard_passes

pytestmark = pytest.mark.registers

ZEROS = {"uint8": 117, "int8": -3}


class Quantised(ModelBuilder):
    """A builder of QDQ models whose activations are of one type."""

    def __init__(self, dtype: str) -> None:
        super().__init__("quantised")
        self.dtype = dtype

    def steps(self, name: str, scale: float, zero: int | None = None) -> list[str]:
        zero = ZEROS[self.dtype] if zero is None else zero
        return [
            self.constant(f"{name}.scale", np.float32(scale)),
            self.constant(f"{name}.zero", np.asarray(zero, self.dtype)),
        ]

    def both(self, value: str, scale: float, zero: int | None = None) -> str:
        """A value after QuantizeLinear and DequantizeLinear."""
        steps = self.steps(value, scale, zero)
        return self.node(
            "DequantizeLinear",
            [self.node("QuantizeLinear", [value, *steps], f"{value}.q"), *steps],
            f"{value}.dq",
        )

    def weights(self, name: str, shape: tuple[int, ...], axis: int) -> str:
        q = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = self.rng.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
        operands = [self.constant(f"{name}.q", q), self.constant(f"{name}.scale", scales)]
        return self.node("DequantizeLinear", operands, name, axis=axis)


def layers(b: Quantised, x: str, group: int = 1) -> str:
    """Convolutions of a residual block with bounds, a pool, a join of different steps, and a classifier."""
    x = b.both(x, 0.03)
    bias = b.constant("bias", b.rng.standard_normal(16).astype(np.float32))
    one = b.node(
        "Conv", [x, b.weights("w1", (16, 8 // group, 3, 3), 0), bias], "one", pads=[1] * 4, group=group
    )
    one = b.both(b.node("Relu", [one], "one.relu"), 0.02)
    two = b.node("Conv", [one, b.weights("w2", (16, 1, 3, 3), 0)], "two", pads=[1] * 4, group=16)
    two = b.both(
        b.node("Clip", [two, b.constant("low", np.float32(0)), b.constant("six", np.float32(6))], "two.six"),
        0.024,
    )
    three = b.both(b.node("Conv", [two, b.weights("w3", (16, 16, 1, 1), 0)], "three"), 0.05)
    added = b.both(b.node("Relu", [b.node("Add", [three, one], "sum")], "sum.relu"), 0.05)
    pooled = b.both(b.node("MaxPool", [added], "pooled", kernel_shape=[2, 2], strides=[2, 2]), 0.05)
    other = b.both(b.node("Conv", [pooled, b.weights("w4", (8, 16, 1, 1), 0)], "other"), 0.07)
    joined = b.both(b.node("Concat", [pooled, other], "joined", axis=1), 0.08)
    mean = b.both(b.node("GlobalAveragePool", [joined], "mean"), 0.02)
    flat = b.node("Flatten", [mean], "flat")
    return b.node(
        "Gemm", [flat, b.weights("w5", (10, 24), 0), b.constant("c", np.ones(10, np.float32))], "y", transB=1
    )


def forms(proto: Any, activations: str = "uint8") -> tuple[Graph, Graph]:
    graph = frontend.load(proto)
    return graph, run_passes(graph, standard_passes(activations=activations))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_network_is_computed_on_integers(dtype: str, group: int) -> None:
    b = Quantised(dtype)
    proto = b.finish([layers(b, b.input("x", (1, 8, 12, 10)), group)])
    graph, integers = forms(proto)
    x = b.rng.standard_normal((1, 8, 12, 10), dtype=np.float32)
    wanted, found = (evaluate.run(form, {"x": x})["y"] for form in (graph, integers))
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    counted = Counter(node.op for node in integers.nodes)
    assert not counted["Conv"] + counted["MatMul"] + counted["Gemm"]
    assert counted["IntegerConv"] == 3 + group
    read = {
        integers.type_of(node.inputs[0]).dtype
        for node in integers.nodes
        if node.op in ("IntegerConv", "IntegerMatMul", "MaxPool")
    }
    assert read == {"uint8"}
    compiled = autotune.compile(proto, threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(compiled, found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_values_between_are_of_the_type_that_the_target_takes(activations: str) -> None:
    b = Quantised("int8" if activations == "uint8" else "uint8")
    x = b.both(b.input("x", (1, 8, 6, 6)), 0.03)
    one = b.both(b.node("Conv", [x, b.weights("w", (8, 8, 1, 1), 0)], "one"), 0.02)
    proto = b.finish([b.node("Conv", [one, b.weights("v", (8, 8, 1, 1), 0)], "y")])
    graph, integers = forms(proto, activations)
    read = {integers.type_of(n.inputs[0]).dtype for n in integers.nodes if n.op == "IntegerConv"}
    assert read == {activations}
    feed = {"x": b.rng.standard_normal((1, 8, 6, 6), dtype=np.float32)}
    np.testing.assert_allclose(
        evaluate.run(integers, feed)["y"], evaluate.run(graph, feed)["y"], rtol=1e-4, atol=0.06
    )


def test_what_quantised_values_are_otherwise_read_by_keeps_its_numbers() -> None:
    b = Quantised("int8")
    x = b.input("x", (2, 3, 4))
    q = b.node("QuantizeLinear", [x, *b.steps("x", 0.03)], "q")
    real = b.node("DequantizeLinear", [q, "x.scale", "x.zero"], "real")
    proto = b.finish(
        [
            q,
            b.node(
                "Clip", [real, b.constant("low", np.float32(-0.1)), b.constant("high", np.float32(0.2))], "y"
            ),
        ]
    )
    graph, integers = forms(proto)
    feed = {"x": b.rng.standard_normal((2, 3, 4), dtype=np.float32)}
    for name in ("q", "y"):
        np.testing.assert_array_equal(evaluate.run(integers, feed)[name], evaluate.run(graph, feed)[name])


def test_steps_that_are_known_only_at_run_time_stay() -> None:
    b = Quantised("uint8")
    x, scale = b.input("x", (1, 4, 5, 5)), b.input("scale", ())
    q = b.node("QuantizeLinear", [x, scale, b.constant("zero", np.uint8(3))], "q")
    real = b.node("DequantizeLinear", [q, scale, "zero"], "real")
    proto = b.finish([b.node("Conv", [real, b.weights("w", (4, 4, 1, 1), 0)], "y")])
    graph, integers = forms(proto)
    feed = {"x": b.rng.standard_normal((1, 4, 5, 5), dtype=np.float32), "scale": np.float32(0.02)}
    np.testing.assert_allclose(
        evaluate.run(integers, feed)["y"], evaluate.run(graph, feed)["y"], rtol=1e-5, atol=1e-5
    )


def test_integers_that_are_added_after_a_product_are_widened_in_its_epilogue() -> None:
    from autotune.compiler import divide

    b = Quantised("uint8")
    x = b.both(b.input("x", (1, 8, 6, 6)), 0.03)
    one = b.both(b.node("Conv", [x, b.weights("w", (8, 8, 1, 1), 0)], "one"), 0.02)
    two = b.node("Conv", [one, b.weights("v", (8, 8, 3, 3), 0)], "two", pads=[1] * 4)
    y = b.node("QuantizeLinear", [b.node("Add", [two, one], "sum"), *b.steps("y", 0.05)], "y")
    proto = b.finish([y])
    parts = divide(proto)
    assert {parts.types[v].dtype for each in parts.dispatches for v in each.outputs} == {"uint8"}
    feed = {"x": b.rng.standard_normal((1, 8, 6, 6), dtype=np.float32)}
    wanted = evaluate.run(forms(proto)[1], feed)["y"].astype(int)
    found = autotune.compile(proto, threads=1).run(feed)["y"].astype(int)
    assert np.abs(found - wanted).max() <= 1


def test_what_two_products_add_lies_in_bytes_between_them() -> None:
    """The group of the later one widens it: the earlier one would store four times as much."""
    from autotune.compiler import divide

    b = Quantised("uint8")
    x = b.both(b.input("x", (1, 8, 6, 6)), 0.03)
    one, two = (
        b.both(b.node("Conv", [x, b.weights(name, (8, 8, 1, 1), 0)], f"{name}.y"), 0.02) for name in "wv"
    )
    y = b.node("QuantizeLinear", [b.node("Add", [two, one], "sum"), *b.steps("y", 0.05)], "y")
    proto = b.finish([y])
    parts = divide(proto)
    assert {parts.types[v].dtype for each in parts.dispatches for v in each.outputs} == {"uint8"}
    feed = {"x": b.rng.standard_normal((1, 8, 6, 6), dtype=np.float32)}
    wanted = evaluate.run(forms(proto)[1], feed)["y"].astype(int)
    found = autotune.compile(proto, threads=1).run(feed)["y"].astype(int)
    assert np.abs(found - wanted).max() <= 1


def attention(b: Quantised) -> Any:
    """Scores of one operand by another, softmax, and the mean of a third by them, between QDQ as quantisers write."""
    q, k, v = (b.both(b.input(name, (2, 3, 9, 20)), 0.03) for name in "qkv")
    k = b.both(b.node("Transpose", [k], "turned", perm=[0, 1, 3, 2]), 0.03)
    scores = b.both(b.node("MatMul", [q, k], "scores"), 0.2)
    shares = b.both(
        b.node("Softmax", [scores], "shares", axis=-1), 1 / 255, 0 if b.dtype == "uint8" else -128
    )
    mean = b.node("MatMul", [shares, v], "mean")
    return b.finish([b.node("QuantizeLinear", [mean, *b.steps("y", 0.03)], "y")])


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_products_of_two_activations_are_on_integers(dtype: str, activations: str) -> None:
    proto = attention(b := Quantised(dtype))
    feed = {name: b.rng.standard_normal((2, 3, 9, 20), dtype=np.float32) for name in "qkv"}
    graph, integers = forms(proto, activations)
    found = Counter(node.op for node in integers.nodes)
    assert found["IntegerMatMul"] == 2
    assert not found["MatMul"]
    wanted = evaluate.run(graph, feed)["y"].astype(int)
    assert np.abs(evaluate.run(integers, feed)["y"].astype(int) - wanted).max() <= 1
    if activations == "uint8":
        assert np.abs(autotune.compile(proto, threads=1).run(feed)["y"].astype(int) - wanted).max() <= 1


def test_products_of_matrices_and_vectors_of_activations() -> None:
    b = Quantised("uint8")
    x, w, v = b.both(b.input("x", (3, 4, 12)), 0.03), b.both(b.input("w", (12, 5)), 0.02), b.input("v", (5,))
    both = b.both(b.node("MatMul", [x, w], "xw"), 0.05)
    proto = b.finish([b.node("MatMul", [both, b.both(v, 0.03)], "y")])
    feed = {
        n: b.rng.standard_normal(s, dtype=np.float32)
        for n, s in (("x", (3, 4, 12)), ("w", (12, 5)), ("v", (5,)))
    }
    graph, integers = forms(proto)
    assert Counter(node.op for node in integers.nodes)["IntegerMatMul"] == 2
    wanted = evaluate.run(graph, feed)["y"]
    np.testing.assert_allclose(evaluate.run(integers, feed)["y"], wanted, atol=0.2)
    np.testing.assert_allclose(autotune.compile(proto, threads=1).run(feed)["y"], wanted, atol=0.2)


def test_integers_of_the_other_sign_that_are_read_with_a_scale_an_index_stay() -> None:
    b = Quantised("int8")
    q = b.node("QuantizeLinear", [b.input("x", (8, 3)), *b.steps("x", 0.05)], "q")
    scales = b.constant("scales", b.rng.uniform(0.01, 0.1, 8).astype(np.float32))
    real = b.node("DequantizeLinear", [q, scales], "real", axis=0)
    proto = b.finish(
        [b.node("Add", [real, b.node("DequantizeLinear", [q, *b.steps("q", 0.02)], "other")], "y")]
    )
    feed = {"x": b.rng.standard_normal((8, 3), dtype=np.float32)}
    graph, integers = forms(proto)
    np.testing.assert_allclose(
        evaluate.run(integers, feed)["y"], evaluate.run(graph, feed)["y"], rtol=1e-5, atol=1e-5
    )


def test_steps_along_an_axis_of_one_element() -> None:
    b = Quantised("uint8")
    steps = [b.constant("s", np.float32([0.05])), b.constant("z", np.uint8([3]))]
    q = b.node("QuantizeLinear", [b.input("x", (1, 6)), *steps], "q", axis=0)
    bounds = [b.constant("low", np.float32(-0.1)), b.constant("high", np.float32(2))]
    real = b.node("DequantizeLinear", [q, *steps], "real", axis=0)
    proto = b.finish([b.both(b.node("Clip", [real, *bounds], "clipped"), 0.02, 5)])
    feed = {"x": b.rng.standard_normal((1, 6), dtype=np.float32)}
    graph, integers = forms(proto)
    (name,) = graph.outputs
    np.testing.assert_allclose(
        evaluate.run(integers, feed)[name], evaluate.run(graph, feed)[name], atol=0.021
    )
