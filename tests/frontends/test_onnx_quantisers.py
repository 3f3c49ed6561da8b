"""Operators of quantisers outside of ONNX, beside what they are defined by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from tests.frontends import foreign_nodes
from tests.frontends.foreign_nodes import seeds

STEPS = {"a": (0.02, 120), "b": (0.03, 7), "y": (0.05, 90)}
BIAS = np.arange(-300, 300, 100, dtype=np.int32)
ONE_STEP = 1
"""The difference of roundings at a half."""


def run(
    op: str, operands: list[str], feed: dict[str, Any], steps: Any = STEPS, bias: Any = BIAS, **attrs: Any
) -> Any:
    """The output of a node whose operands are arrays of ``feed``, ``bias`` and parameters of ``steps``."""
    from onnx import TensorProto, helper, numpy_helper

    kind = next(array.dtype for array in feed.values() if array.dtype != bool)
    fixed = [numpy_helper.from_array(np.float32(s), f"{n}s") for n, (s, _) in steps.items()]
    fixed += [numpy_helper.from_array(kind.type(z), f"{n}z") for n, (_, z) in steps.items()]
    fixed = [each for each in [*fixed, numpy_helper.from_array(bias, "bias")] if each.name in operands]
    node = helper.make_node(op, operands, ["y"], domain="com.microsoft", **attrs)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    integers = helper.np_dtype_to_tensor_dtype(kind)
    output = helper.make_tensor_value_info("y", integers if "ys" in operands else TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "quantised", inputs, [output], fixed)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    found = evaluate.run(frontend.load(model), feed)["y"]
    if op not in NOT_JUDGED and foreign_nodes.JUDGE is not None:
        (judged,) = foreign_nodes.JUDGE.run(model, feed)
        np.testing.assert_allclose(np.float64(found), np.float64(judged), atol=ONE_STEP, rtol=1e-4)
    return found


NOT_JUDGED = ("QLinearReduceMean",)
"""Those that ONNX Runtime has no kernel for."""


def real(array: Any, name: str) -> Any:
    return stepped(array, STEPS[name])


def stepped(array: Any, step: tuple[float, int]) -> Any:
    scale, zero = step
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


Problem = tuple[list[str], dict[str, Any], Any]
"""Operands, attributes, and what is wanted before it is quantised, of two arrays of numbers."""


def _softmax(a: Any, axis: int) -> Any:
    powers = np.exp(a - a.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _pointwise(wanted: Callable[..., Any], *operands: str, **attrs: Any) -> Callable[..., Problem]:
    return lambda rng, a, b: ([*operands, "ys", "yz"], attrs, wanted(*(a, b)[: len(operands) // 3]))


def _leaky(rng: Any, a: Any, b: Any) -> Problem:
    alpha = float(rng.uniform(0.01, 0.9))
    return [*A, "ys", "yz"], {"alpha": alpha}, np.where(a < 0, a * np.float32(alpha), a)


def _soft(rng: Any, a: Any, b: Any) -> Problem:
    axis = int(rng.integers(-a.ndim, a.ndim))
    return [*A, "ys", "yz"], {"axis": axis, "opset": 13}, _softmax(a, axis)


def _joined(rng: Any, a: Any, b: Any) -> Problem:
    axis = int(rng.integers(0, a.ndim))
    return ["ys", "yz", *A, *B], {"axis": axis}, np.concatenate([a, b], axis)


def _mean(rng: Any, a: Any, b: Any) -> Problem:
    last = int(rng.integers(0, 2))
    axes = (1, 2) if last else (2, 3)
    return [*A, "ys", "yz"], {"channels_last": last}, a.mean(axes, keepdims=True, dtype=np.float64)


def _pooled(rng: Any, a: Any, b: Any) -> Problem:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    last = int(rng.integers(0, 2))
    x = np.moveaxis(a, -1, 1) if last else a
    window = [int(rng.integers(1, min(n, 3) + 1)) for n in x.shape[2:]]
    attrs: dict[str, Any] = {"kernel_shape": window, "strides": [int(n) for n in rng.integers(1, 4, 2)]}
    attrs |= {"pads": [int(rng.integers(0, most)) for most in window * 2]}
    attrs |= {"count_include_pad": int(rng.integers(0, 2))}
    node = helper.make_node("AveragePool", ["x"], ["y"], **attrs)
    (pooled,) = ReferenceEvaluator(node).run(None, {"x": x})
    return [*A, "ys", "yz"], {**attrs, "channels_last": last}, np.moveaxis(pooled, 1, -1) if last else pooled


def _chosen(rng: Any, a: Any, b: Any) -> Problem:
    return ["flags", *A, *B, "ys", "yz"], {}, np.where(checkered(a.shape), a, b)


def checkered(shape: tuple[int, ...]) -> Any:
    return np.indices(shape).sum(0) % 2 == 0


RANDOM: dict[str, Callable[..., Problem]] = {
    "QLinearAdd": _pointwise(np.add, *A, *B),
    "QLinearMul": _pointwise(np.multiply, *A, *B),
    "QLinearSigmoid": _pointwise(lambda a: 1 / (1 + np.exp(-a)), *A),
    "QLinearLeakyRelu": _leaky,
    "QLinearSoftmax": _soft,
    "QLinearConcat": _joined,
    "QLinearGlobalAveragePool": _mean,
    "QLinearAveragePool": _pooled,
    "QLinearWhere": _chosen,
}


@pytest.mark.parametrize("op", RANDOM)
@pytest.mark.parametrize("seed", seeds(75, few=2))
def test_random_steps_shapes_and_signs(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = (np.uint8, np.int8)[int(rng.integers(2))]
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    shape = tuple(int(n) for n in rng.integers(1, 9, 4))
    feed = {name: rng.integers(least, most + 1, shape).astype(kind) for name in "ab"}
    steps = {
        n: (float(np.float32(rng.uniform(0.004, 0.05))), int(rng.integers(least, most + 1))) for n in "aby"
    }
    operands, attrs, wanted = RANDOM[op](rng, *(stepped(feed[n], steps[n]) for n in "ab"))
    feed["flags"] = checkered(shape)
    given = {name: array for name, array in feed.items() if name in operands}
    found = run(op, operands, given, steps, **attrs)
    scale, zero = steps["y"]
    expected = np.clip(np.rint(wanted / np.float32(scale)) + zero, least, most)
    assert np.abs(found.astype(int) - expected).max() <= ONE_STEP


@pytest.mark.parametrize("seed", seeds(75, few=2))
def test_random_products_with_a_bias(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns, depth = (int(n) for n in rng.integers(1, 20, 3))
    turned = [bool(each) for each in rng.integers(0, 2, 2)]
    shapes = [(rows, depth), (depth, columns)]
    feed = {
        name: rng.integers(0, 256, shape[::-1] if turn else shape).astype(np.uint8)
        for name, shape, turn in zip("ab", shapes, turned, strict=True)
    }
    bias = rng.integers(-2000, 2000, columns).astype(np.int32)
    a, b = (real(feed[n], n).T if turn else real(feed[n], n) for n, turn in zip("ab", turned, strict=True))
    wanted = a @ b + bias * np.float32(STEPS["a"][0] * STEPS["b"][0])
    attrs = {"transA": int(turned[0]), "transB": int(turned[1])}
    found = run("QGemm", [*A, *B, "bias"], feed, bias=bias, **attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    whole = run("QGemm", [*A, *B, "bias", "ys", "yz"], feed, bias=bias, **attrs)
    assert np.abs(whole.astype(int) - quantised(wanted)).max() <= ONE_STEP
