"""Operators of quantisers outside of ONNX, beside what they are defined by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate

STEPS = {"a": (0.02, 120), "b": (0.03, 7), "y": (0.05, 90)}


def run(op: str, operands: list[str], feed: dict[str, Any], **attrs: Any) -> Any:
    """The output of a node whose operands are arrays of ``feed`` and parameters of :data:`STEPS`."""
    from onnx import TensorProto, helper, numpy_helper

    fixed = [numpy_helper.from_array(np.float32(s), f"{n}s") for n, (s, _) in STEPS.items()]
    fixed += [numpy_helper.from_array(np.uint8(z), f"{n}z") for n, (_, z) in STEPS.items()]
    fixed.append(numpy_helper.from_array(np.arange(-300, 300, 100, dtype=np.int32), "bias"))
    node = helper.make_node(op, operands, ["y"], domain="com.microsoft", **attrs)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    output = helper.make_tensor_value_info(
        "y", TensorProto.UINT8 if "ys" in operands else TensorProto.FLOAT, None
    )
    graph = helper.make_graph([node], "quantised", inputs, [output], fixed)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return evaluate.run(frontend.load(helper.make_model(graph, opset_imports=opsets)), feed)["y"]


def real(array: Any, name: str) -> Any:
    scale, zero = STEPS[name]
    return (array.astype(np.float32) - zero) * np.float32(scale)


def quantised(values: Any) -> Any:
    scale, zero = STEPS["y"]
    return np.clip(np.rint(values / np.float32(scale)) + zero, 0, 255)


A, B = ["a", "as", "az"], ["b", "bs", "bz"]


@pytest.fixture
def feed() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 256, (1, 4, 6, 6)).astype(np.uint8) for name in "ab"}


def test_operators_of_two_operands(feed: dict[str, Any]) -> None:
    a, b = (real(feed[name], name) for name in "ab")
    np.testing.assert_array_equal(run("QLinearAdd", [*A, *B, "ys", "yz"], feed), quantised(a + b))
    np.testing.assert_array_equal(run("QLinearMul", [*A, *B, "ys", "yz"], feed), quantised(a * b))
    joined = run("QLinearConcat", ["ys", "yz", *A, *B], feed, axis=1)
    np.testing.assert_array_equal(joined, quantised(np.concatenate([a, b], 1)))


def test_operators_of_one_operand(feed: dict[str, Any]) -> None:
    only = {"a": feed["a"]}
    a = real(feed["a"], "a")
    mean = quantised(a.mean((2, 3), keepdims=True, dtype=np.float64))
    np.testing.assert_array_equal(run("QLinearGlobalAveragePool", [*A, "ys", "yz"], only), mean)
    leaky = quantised(np.where(a < 0, a * np.float32(0.1), a))
    np.testing.assert_array_equal(run("QLinearLeakyRelu", [*A, "ys", "yz"], only, alpha=0.1), leaky)


def test_products_with_a_bias_in_their_steps() -> None:
    rng = np.random.default_rng(0)
    feed = {
        "a": rng.integers(0, 256, (5, 8)).astype(np.uint8),
        "b": rng.integers(0, 256, (6, 8)).astype(np.uint8),
    }
    wanted = real(feed["a"], "a") @ real(feed["b"], "b").T + np.arange(-300, 300, 100) * np.float32(0.0006)
    found = run("QGemm", [*A, *B, "bias"], feed, transB=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    steps = run("QGemm", [*A, *B, "bias", "ys", "yz"], feed, transB=1)
    assert np.abs(steps.astype(int) - quantised(wanted)).max() <= 1


def test_images_with_channels_last(feed: dict[str, Any]) -> None:
    mean = quantised(real(feed["a"], "a").mean((1, 2), keepdims=True, dtype=np.float64))
    operands = [*A, "ys", "yz"]
    found = run("QLinearGlobalAveragePool", operands, {"a": feed["a"]}, channels_last=1)
    np.testing.assert_array_equal(found, mean)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    last = run(
        "QLinearAveragePool", operands, {"a": feed["a"].transpose(0, 2, 3, 1)}, channels_last=1, **window
    )
    first = run("QLinearAveragePool", operands, {"a": feed["a"]}, **window)
    np.testing.assert_array_equal(last, first.transpose(0, 2, 3, 1))


def test_choices_and_means(feed: dict[str, Any]) -> None:
    a, b = (real(feed[name], name) for name in "ab")
    flags = np.arange(6) % 2 == 0
    found = run("QLinearWhere", ["flags", *A, *B, "ys", "yz"], {**feed, "flags": flags})
    np.testing.assert_array_equal(found, quantised(np.where(flags, a, b)))
    found = run("QLinearReduceMean", [*A, "ys", "yz"], {"a": feed["a"]}, axes=[1, 3], keepdims=0)
    np.testing.assert_array_equal(found, quantised(a.mean((1, 3), dtype=np.float64)))


def test_a_softmax_before_opset_13_is_refused(feed: dict[str, Any]) -> None:
    with pytest.raises(ModelImportError, match="opset below 13 is not supported"):
        run("QLinearSoftmax", [*A, "ys", "yz"], {"a": feed["a"]}, opset=12)
