"""Functions of single values: close to NumPy in every execution and type, predicates exactly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune import te
from tests.codegen.executions import all_everywhere, everywhere, pairs
from tests.schedule.machine import run_machine_code

ELEMENTARY = ("sin", "cos", "tan", "sinh", "cosh", "log1p", "log2", "log10", "trunc")
DTYPES = ("float32", "float64", "float16", "bfloat16")


def values(name: str, dtype: str) -> Any:
    rng = np.random.default_rng(0)
    found = np.concatenate([rng.normal(0, 3, 37), [0.0, 1.0, 1e4 if name in ("sin", "cos", "tan") else 2.5]])
    return (np.abs(found) if name.startswith("log") else found).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions(name: str, dtype: str) -> None:
    x = values(name, dtype)
    a = te.placeholder(x.shape, dtype, name="A")
    c = te.compute(x.shape, lambda i: getattr(te, name)(a[i]), name="C")
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
    for lanes in (False, True):
        s = te.create_schedule(c)
        if lanes:
            s[c].vectorize(c.op.axis[0])
        found = run_machine_code(s, [a, c], {"A": x})["C"]
        tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=0)
    (evaluated,) = te.evaluate([c], {a: x})
    np.testing.assert_allclose(evaluated.astype(np.float64), exact, rtol=tolerance, atol=tolerance / 8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_of_what_is_not_positive(dtype: str) -> None:
    x = -np.abs(values("exp", dtype))
    x = np.concatenate([x, np.asarray([-np.inf, -1e4, -0.0, np.nan], dtype)])
    a = te.placeholder(x.shape, dtype, name="A")
    c = te.compute(x.shape, lambda i: te.exp_nonpositive(a[i]), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].split(c.op.axis[0], 8)[1])
    exact, tolerance = np.exp(x.astype(np.float64)), 2 * float(ml_dtypes.finfo(dtype).eps)
    for found in (run_machine_code(s, [a, c], {"A": x})["C"], te.evaluate([c], {a: x})[0]):
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=0)


INVERSE = ("asin", "acos", "atan", "asinh", "acosh", "atanh")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", INVERSE)
def test_inverse_functions(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, 1, 60), [0.0, -0.0, 1.0, -1.0, 1e-4]])
    if name in ("atan", "asinh", "acosh"):
        x = np.concatenate([x * 7, [3e38, 1e-30, np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        x = np.concatenate([x, [1.5, -1.5, np.nan]]).astype(dtype)
        exact = getattr(np, f"arc{name[1:]}")(x.astype(np.longdouble)).astype(np.float64)
    a = te.placeholder(x.shape, dtype, name="A")
    c = te.compute(x.shape, lambda i: getattr(te, name)(a[i]), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].split(c.op.axis[0], 8)[1])
    found = run_machine_code(s, [a, c], {"A": x})["C"].astype(np.float64)
    tolerance = 3 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        found, exact, rtol=tolerance, atol=float(ml_dtypes.finfo(dtype).smallest_normal)
    )
    np.testing.assert_array_equal(np.signbit(found[exact == 0]), np.signbit(exact[exact == 0]))


BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_bits(dtype: str) -> None:
    a, b = pairs(np.array([0, 1, 2, 5, 7, 8, 15, 31, 32, 63, 64, 100, -1, -8]).astype(dtype))
    for name, found in zip(BITS, all_everywhere([a, b], [getattr(te, name) for name in BITS]), strict=True):
        np.testing.assert_array_equal(found, getattr(np, name)(a, b), name)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_bits_that_are_not_set(dtype: str) -> None:
    x = np.array([0, 1, -1, 127]).astype(dtype)
    assert everywhere([x], te.bitwise_not).tolist() == np.invert(x).tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "int64", "uint64"])
def test_bits_that_are_set(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 3, 85, 100, limits.max, limits.min, limits.max // 3], dtype)
    assert everywhere([x], te.popcount).tolist() == [bin(int(v)).count("1") for v in x.view(f"u{x.itemsize}")]
    with pytest.raises(TypeError, match=r"te\.popcount takes integers, got float32"):
        te.popcount(1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_two_and_ten(dtype: str) -> None:
    x = np.array([0, 1, -3, 0.5, 2.25, 12, -20.75, 3]).astype(dtype)
    a = te.placeholder(x.shape, dtype, name="A")
    for function, base in ((te.exp2, 2.0), (te.exp10, 10.0)):
        c = te.compute(x.shape, lambda i, function=function: function(a[i]), name="C")
        assert c.dtype == dtype
        s = te.create_schedule(c)
        s[c].vectorize(c.op.axis[0])
        for found in (run_machine_code(s, [a, c], {"A": x})["C"], te.evaluate([c], {a: x})[0]):
            exact = np.power(base, x.astype(np.float64))
            np.testing.assert_allclose(found, exact, rtol=8 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("old", "new"), [("float32", "uint32"), ("int64", "float64"), ("int8", "uint8")])
def test_bits_as_another_type(old: str, new: str) -> None:
    x = np.array([0, 1, 2, 100]).astype(old)
    np.testing.assert_array_equal(everywhere([x], lambda v: te.bitcast(v, new)), x.view(new))
    with pytest.raises(TypeError, match=r"te\.bitcast takes types of one size"):
        te.bitcast(te.placeholder((1,), old)[0], "int16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_predicates(dtype: str) -> None:
    x = np.array([0, -1, np.inf, -np.inf, np.nan, 3e38 if dtype in ("float32", "float64") else 6e4]).astype(
        dtype
    )
    assert everywhere([x], te.isnan).tolist() == [False] * 4 + [True, False]
    assert everywhere([x], te.isinf).tolist() == [False, False, True, True, False, False]


def test_integers_are_neither_nan_nor_infinite() -> None:
    x = np.array([0, -1, 127], "int8")
    for predicate in (te.isnan, te.isinf):
        assert not everywhere([x], lambda v, predicate=predicate: te.any(predicate(v), v != v)).any()


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float", "float32"), (np.float64, "float64"), ("int", "int32")]
)
def test_types_have_other_names(dtype: Any, expected: str) -> None:
    a = te.placeholder((4,), "int8", name="A")
    assert te.compute((4,), lambda i: a[i].astype(dtype)).dtype == expected
    assert te.placeholder((4,), dtype).dtype == expected
    with pytest.raises(TypeError, match="unknown dtype 'float3'; known: bool, uint8, int8"):
        a[0].astype("float3")
