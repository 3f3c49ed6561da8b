"""Reductions, softmax and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.graph import ops
from tests.graph.ops.op_checks import check, normal, reduction, refusal, stages
from tests.schedule.machine import run_machine_code

FOLDS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
}


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("axes", [None, (0,), (-1,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(op: str, axes: tuple[int, ...] | None, keepdims: int) -> None:
    x = normal(2, 3, 4)
    attrs: dict[str, Any] = {} if axes is None else {"axes": axes}
    expected = FOLDS[op](x, axis=axes, keepdims=bool(keepdims))
    result = check(op, x, keepdims=keepdims, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", FOLDS)
def test_reducing_nothing(op: str) -> None:
    x = normal(2, 3)
    np.testing.assert_array_equal(check(op, x, axes=()), x)
    check(op, np.float32(3.0).reshape(()))


def test_reduction_stages_and_axes() -> None:
    x = normal(2, 3, 4)
    assert stages("ReduceSum", x) == ["out"]
    assert stages("ReduceMean", x) == ["out.sum", "out"]
    assert [a.name for a in reduction("ReduceSum", x, axes=(1,)).reduce_axis] == ["rk"]
    assert [a.name for a in reduction("ReduceSum", x).reduce_axis] == ["rk0", "rk1", "rk2"]


def test_reduction_refusals() -> None:
    x = normal(2, 3)
    assert refusal("ReduceSum", x, axes=(2,)) == "axis 2 is out of range for rank 2"
    assert refusal("ReduceSum", x, axes=(0, -2)) == "axes (0, -2) name an axis twice"
    assert refusal("ReduceMean", np.ones(3, np.int64)) == "ReduceMean does not take int64"
    assert refusal("ReduceMean", np.ones((0, 2))) == "ReduceMean of no elements: x has shape (0, 2)"


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis: int) -> None:
    x = normal(3, 4, 5) * 10
    exps = np.exp(x.astype(np.float64))
    expected = exps / exps.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(check("Softmax", x, axis=axis), expected, rtol=1e-4, atol=1e-6)
    logs = check("LogSoftmax", x, axis=axis)
    np.testing.assert_allclose(logs, np.log(expected), rtol=1e-4, atol=1e-4)


def test_softmax_does_not_overflow() -> None:
    result = check("Softmax", np.array([1000.0, 1000.0], np.float32))
    np.testing.assert_allclose(result, [0.5, 0.5])


def test_softmax_stages() -> None:
    x = normal(2, 3)
    assert stages("Softmax", x) == ["out.max", "out.exp", "out.sum", "out.rcp", "out"]
    assert [a.name for a in reduction("Softmax", x).reduce_axis] == ["rk"]
    message = refusal("Softmax", np.ones(3, np.int64))
    assert message == "Softmax needs one floating dtype, got int64"


@pytest.mark.parametrize(("axis", "inner"), [(-1, (4,)), (1, (3, 4)), (0, (2, 3, 4))])
@pytest.mark.parametrize("biased", [False, True])
def test_layer_normalization(axis: int, inner: tuple[int, ...], biased: bool) -> None:
    x, scale, bias = normal(2, 3, 4) * 3 + 1, normal(*inner), normal(4)
    axes = tuple(range(3 - len(inner), 3))
    wide = x.astype(np.float64)
    mean, std = wide.mean(axes, keepdims=True), wide.std(axes, keepdims=True)
    expected = (wide - mean) / np.sqrt(std**2 + 1e-5) * scale + (bias if biased else 0)
    operands = (x, scale, bias) if biased else (x, scale)
    result = check("LayerNormalization", *operands, axis=axis)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization"])
def test_normalization_far_from_zero(op: str) -> None:
    x = normal(2, 3, 500) + np.float32(1e4)
    scale, bias = np.ones(500 if op == "LayerNormalization" else 3, np.float32), np.zeros(1, np.float32)
    bias = np.broadcast_to(bias, scale.shape).copy()
    inputs = [
        te.placeholder(a.shape, "float32", name=n) for n, a in (("x", x), ("scale", scale), ("bias", bias))
    ]
    (y,) = ops.get(op).compute(inputs, {}, "y")
    given = {"x": x, "scale": scale, "bias": bias}
    found = run_machine_code(te.create_schedule(y.op), [*inputs, y], given)["y"]
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)


def test_layer_normalization_stages() -> None:
    names = stages("LayerNormalization", normal(2, 3), normal(3))
    assert names == ["out.first", "out.sum", "out.mean", "out.sqsum", "out.rstd", "out.shift", "out"]
    message = refusal("LayerNormalization", normal(2, 3), normal(2))
    assert message == "LayerNormalization: scale of shape (2,) does not broadcast to (3,)"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_batch_and_instance_normalization(layout: str) -> None:
    x, scale, bias, mean = normal(2, 3, 4, 5), normal(3), normal(3), normal(3)
    var = np.abs(normal(3)) + 0.1

    def along(v: Any) -> Any:
        return v.reshape(3, 1, 1)

    wide = x.astype(np.float64)
    batch = (wide - along(mean)) / np.sqrt(along(var) + 1e-3) * along(scale) + along(bias)
    own_mean, own_var = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    instance = (wide - own_mean) / np.sqrt(own_var + 1e-3) * along(scale) + along(bias)
    if layout == "NHWC":
        x, batch, instance = (np.moveaxis(v, 1, -1).copy() for v in (x, batch, instance))
    how: dict[str, Any] = {"layout": layout, "epsilon": 1e-3}
    result = check("BatchNormalization", x, scale, bias, mean, var, **how)
    np.testing.assert_allclose(result, batch, rtol=1e-4, atol=1e-5)
    result = check("InstanceNormalization", x, scale, bias, **how)
    np.testing.assert_allclose(result, instance, rtol=1e-4, atol=1e-5)


def test_normalization_refuses_wrong_parameters() -> None:
    message = refusal("InstanceNormalization", normal(1, 3, 4, 4), normal(3), normal(4))
    assert message == "InstanceNormalization: input 2 has shape (4,), expected (3,)"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12, 2**40])
@pytest.mark.parametrize("beta", [0.5, 0.75, 0.9])
def test_lrn(size: int, beta: float) -> None:
    x = normal(1, 5, 2, 2)
    expected = np.zeros_like(x)
    for c in range(5):
        window = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        base = 2.0 + 0.3 / size * np.square(window).sum(axis=1)
        expected[:, c] = x[:, c] / base**beta
    how = {"size": size, "alpha": 0.3, "beta": beta, "bias": 2.0}
    np.testing.assert_allclose(check("LRN", x, **how), expected, rtol=1e-5)
    result = check("LRN", np.moveaxis(x, 1, -1).copy(), layout="NHWC", **how)
    np.testing.assert_allclose(result, np.moveaxis(expected, 1, -1), rtol=1e-5)


def test_lrn_stages() -> None:
    x = normal(1, 5, 2, 2)
    assert stages("LRN", x, size=3) == ["out.pad", "out.sqsum", "out"]
    assert refusal("LRN", x, size=0) == "LRN: size = 0 must be at least 1"


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg_reductions_take_the_first_of_equals(axis: int, keepdims: int) -> None:
    x = np.round(normal(3, 4, 5))
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    expected = np.argmax(x, axis=axis, keepdims=bool(keepdims))
    np.testing.assert_array_equal(check("ArgMax", x, **how), expected)
    np.testing.assert_array_equal(check("ArgMin", -x, **how), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions_give_the_first_nan(dtype: str, axis: int) -> None:
    rows = [
        [1, np.nan, np.inf, np.nan],
        [np.nan] * 4,
        [-np.inf] * 4,
        [0.0, -0.0, -1, 5],
        [np.inf, 1, np.inf, -np.inf],
    ]
    x = np.array(rows, dtype)
    x[0, 3] = -x[0, 3]  # a NaN with a sign
    for values in (x, -x, x.T.copy()):
        np.testing.assert_array_equal(check("ArgMax", values, axis=axis, keepdims=0), values.argmax(axis))
        np.testing.assert_array_equal(check("ArgMin", values, axis=axis, keepdims=0), values.argmin(axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_arg_reductions_of_the_least_and_largest_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([[0, limits.max, limits.min, limits.max, limits.min]], dtype)
    assert check("ArgMax", x, axis=1).item() == 1
    assert check("ArgMin", x, axis=1).item() == np.argmin(x)


def test_arg_reduction_stages_and_refusals() -> None:
    assert stages("ArgMax", normal(2, 3)) == ["out.arg", "out"]
    assert refusal("ArgMax", np.ones((0, 3))) == "ArgMax does not take float64[0, 3]"
