"""Remainders of floating-point numbers: exact for every pair, in every execution."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune import te
from tests.codegen.executions import everywhere, pairs, same


def operands(dtype: str) -> tuple[Any, Any]:
    """Special values beside each other, and numbers of all sizes with large and small quotients."""
    info = ml_dtypes.finfo(dtype)
    big, least, normal = float(info.max), float(info.smallest_subnormal), float(info.tiny)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        2,
        3,
        5,
        -5,
        0.1,
        np.pi,
        big,
        -big,
        big / 3,
        least,
        7 * least,
        normal,
    ]
    a, b = pairs(np.array(special).astype(dtype))
    rng, count = np.random.default_rng(0), 2000

    def numbers() -> Any:
        exponents = rng.integers(info.minexp - info.nmant + 1, info.maxexp, count)
        return (rng.choice([-1, 1], count) * np.ldexp(rng.random(count) + 0.5, exponents)).astype(dtype)

    return np.concatenate([a, numbers(), numbers()]), np.concatenate(
        [b, numbers(), rng.integers(1, 9, count).astype(dtype)]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_fmod(dtype: str) -> None:
    a, b = operands(dtype)
    with np.errstate(all="ignore"):
        same(everywhere([a, b], te.fmod), np.fmod(a, b), "NumPy")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_modulo_has_the_divisors_sign(dtype: str) -> None:
    a, b = operands(dtype)
    with np.errstate(all="ignore"):
        same(everywhere([a, b], lambda x, y: x % y), np.mod(a, b), "NumPy")


def test_quotients_of_floats_are_not_rounded_silently() -> None:
    a = te.placeholder((4,), name="A")
    with pytest.raises(
        TypeError, match=r"'//' is integer arithmetic; got float32: take te.floor of the quotient"
    ):
        te.compute((4,), lambda i: a[i] // 2.0)
