"""NaN, infinities, signed zeros, subnormal and huge numbers in compiled operators: what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autotune
from autotune.graph.build import GraphBuilder

pytestmark = pytest.mark.registers

Array = np.ndarray
SPECIAL = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        3e38,
        -3e38,
        1e-30,
        1.0,
        -1.0,
        2.5,
        -3.5,
        88.0,
        -104.0,
        0.5,
    ],
    np.float32,
)

UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
    "Equal": np.equal,
    "Less": np.less,
}
FOLDS: dict[str, Callable[..., Array]] = {
    "ArgMax": np.argmax,
    "ArgMin": np.argmin,
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
}


def run(op: str, *arrays: Array, **attrs: object) -> Array:
    b = GraphBuilder()
    inputs = [b.input(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
    graph = b.graph(b.node(op, *inputs, name="y", **attrs))  # type: ignore[arg-type]
    with autotune.compile(graph, threads=1) as module:
        found: Array = module.run({f"x{i}": a for i, a in enumerate(arrays)})["y"]
    return found


@pytest.mark.parametrize("op", UNARY)
def test_elementwise(op: str) -> None:
    x = np.concatenate([SPECIAL, SPECIAL[::-1]])  # in whole vectors and in what is left of one
    with np.errstate(all="ignore"):
        expected = UNARY[op](x)
    np.testing.assert_allclose(run(op, x), expected, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("op", BINARY)
def test_pairs(op: str) -> None:
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = BINARY[op](a, b)
    np.testing.assert_allclose(run(op, a, b), expected, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", FOLDS)
def test_folds(op: str, axis: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 40)).astype(np.float32)
    for row, value in enumerate((np.nan, np.inf, -np.inf, -0.0)):
        x[row], x[10 + row, 5 * row] = value, value
    x[20, [3, 7]] = np.inf, np.nan
    x[21, [3, 7]] = np.inf, -np.inf
    attrs = {"axis": axis} if op.startswith("Arg") else {"axes": (axis,)}
    for values in (x, x.T.copy()):
        with np.errstate(all="ignore"):
            expected = FOLDS[op](values, axis=axis)
        np.testing.assert_allclose(run(op, values, keepdims=0, **attrs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pools_and_normalisations_keep_what_is_not_finite_to_its_window(value: float) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32)
    x[0, 0, 4, 4] = value
    touched = np.zeros((8, 8), bool)
    touched[3:6, 3:6] = True
    for op in ("MaxPool", "AveragePool"):
        found = run(op, x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        wanted = touched if op == "AveragePool" or value != -np.inf else np.zeros((8, 8), bool)
        np.testing.assert_array_equal(~np.isfinite(found[0, 0]), wanted)
        assert np.isfinite(found[0, 1]).all()
    ones = np.ones(2, np.float32)
    found = run("InstanceNormalization", x, ones, ones)
    assert np.isnan(found[0, 0, 4, 4])
    assert np.isfinite(found[0, 1]).all()


def test_beta_of_zero_does_not_read_c() -> None:
    a, c = np.eye(3, dtype=np.float32), np.full((3, 3), np.nan, np.float32)
    np.testing.assert_array_equal(run("Gemm", a, a, c, beta=0.0), a)
