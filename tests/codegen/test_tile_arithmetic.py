"""The meaning of products of tile registers: Intel's pseudocode, a number at a time, and the borders of rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from autotune.codegen.interpreter.tiles import fused, product
from autotune.te.dot_products import TILE_PRODUCTS, DotProduct


def operand(rng: Any, shape: Any, dtype: str) -> Any:
    """Bytes of all values; numbers of which some sums are near the least normal one, and no product is infinite."""
    if "int" in dtype:
        return rng.integers(0, 256, shape, np.uint8).view(dtype)
    # Exponents from subnormal numbers to large ones, dense enough that sums meet neighbours and cancel.
    scale = np.ldexp(1.0, rng.choice([0, 0, 0, -3, 5, -9, -14, -20], shape))
    tiny = np.ldexp(1.0, rng.choice([0, 0, 0, -60, -126, -130], shape)) if dtype == "bfloat16" else 1.0
    return (rng.standard_normal(shape) * scale * tiny).astype(dtype)


def nearest(exact: Fraction) -> np.float32:
    """The nearest float32, ties to even, by the definition; a subnormal one is 0."""
    if not exact:
        return np.float32(0)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - 23)
    rounded = round(size / unit) * unit  # Python rounds half to even
    sign = -1 if exact < 0 else 1
    if rounded < Fraction(2) ** -126:
        return np.float32(sign * 0.0)
    return np.float32(sign * float(rounded)) if rounded < Fraction(2) ** 128 else np.float32(sign * np.inf)


def normal(value: Any) -> Fraction:
    number = np.float32(value)
    return Fraction(0) if abs(number) < np.float32(2.0**-126) else Fraction(float(number))


def by_the_manual(dot: DotProduct, c: Any, a: Any, b: Any) -> np.float32:
    """An element of a tile: Intel's pseudocode, a number at a time."""
    temporary = [np.float32(0), np.float32(0)]
    for left, right in zip(a, b, strict=True):
        for place in range(2):
            exact = normal(left[place]) * normal(right[place]) + normal(temporary[place])
            temporary[place] = nearest(exact)
    both = nearest(normal(temporary[0]) + normal(temporary[1]))
    return nearest(normal(c) + normal(both))


@pytest.mark.parametrize("name", ["tdpbf16ps", "tdpfp16ps"])
def test_sums_of_floats_are_those_of_the_manual(name: str) -> None:
    dot, rng = TILE_PRODUCTS[name], np.random.default_rng(1)
    a, b = operand(rng, (16, 16, 2), dot.left), operand(rng, (16, 16, 2), dot.right)
    c = rng.standard_normal((16, 16)).astype("float32")
    c[::2] *= np.float32(2.0**-126)
    found = product(dot, c, a, b, dot.depth)
    for i in range(16):
        for j in range(0, 16, 3):
            expected = by_the_manual(dot, c[i, j], a[i], b[:, j])
            assert found[i, j] == expected, (i, j)


def test_a_product_and_a_sum_are_rounded_once() -> None:
    rng = np.random.default_rng(2)
    a, b = (operand(rng, 4000, "bfloat16").astype("float32") for _ in range(2))
    c = (rng.standard_normal(4000) * np.abs(a.astype("float64") * b)).astype("float32")
    c[::3] *= np.float32(2.0**-20)
    c[1::3] = -nearest_of(a, b)[1::3]  # what is left of the product is far smaller
    found = fused(a, b, c)
    expected = [nearest(normal(x) * normal(y) + normal(z)) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(found, expected)


def nearest_of(a: Any, b: Any) -> Any:
    return (a.astype("float64") * b).astype("float32")


ONE = 1 + 2.0**-7


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (ONE, ONE, 2.0**-24, 1 + 2.0**-6 + 2.0**-14),  # a tie, which goes to even
        (ONE, ONE, 2.0**-24 + 2.0**-47, 1 + 2.0**-6 + 2.0**-14 + 2.0**-23),  # above it
        (2.0**-127, 2.0**127, 0.0, 0.0),  # a subnormal factor
        (2.0**-63, 2.0**-64, 0.0, 0.0),  # a subnormal product
        (-(2.0**-63), 2.0**-64, 0.0, -0.0),
        (2.0**-63, 2.0**-63, -(2.0**-149), 2.0**-126),  # a subnormal sum before it
        (2.0**100, 2.0**100, 0.0, np.inf),
        (1.0, 1.0, -1.0, 0.0),
        (np.inf, 0.0, 1.0, np.nan),
    ],
)
def test_rounding_at_the_borders(a: float, b: float, c: float, expected: float) -> None:
    found = fused(*(np.array([x], "float32") for x in (a, b, c)))
    np.testing.assert_array_equal(found, np.float32(expected))
    assert np.isnan(expected) or np.signbit(found[0]) == np.signbit(expected)


@pytest.mark.parametrize("name", [n for n, dot in TILE_PRODUCTS.items() if dot.exact])
def test_bytes_are_exact_and_wrap(name: str) -> None:
    dot, rng = TILE_PRODUCTS[name], np.random.default_rng(3)
    a, b = operand(rng, (16, 32, 4), dot.left), operand(rng, (32, 16, 4), dot.right)
    c = rng.choice([2**31 - 1, -(2**31), 0], (16, 16)).astype("int32")
    found = product(dot, c, a, b, dot.depth)
    for i, j in np.ndindex(16, 16):
        pairs = zip(a[i].flat, b[:, j].flat, strict=True)
        expected = int(c[i, j]) + sum(int(x) * int(y) for x, y in pairs)
        assert found[i, j] == (expected + 2**31) % 2**32 - 2**31, (i, j)
