"""Maximum and minimum of floating-point values: a NaN on either side stays one, in lanes and alone."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune import te

_VALUES = [0.0, -1.5, 3.0, np.inf, -np.inf, np.nan, 2.0, -0.25]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_nan_in_either_operand_stays_one(name: str, vectorize: bool, dtype: str) -> None:
    count = len(_VALUES) ** 2
    a, b = (te.placeholder((count,), dtype, name=n) for n in "ab")
    c = te.compute((count,), lambda i: getattr(te, name)(a[i], b[i]), name="c")
    schedule = te.create_schedule(c.op)
    if vectorize:
        _, lanes = schedule[c].split(c.op.axis[0], factor=16)
        schedule[c].vectorize(lanes)
    kernel = autotune.build(schedule, [a, b, c])
    kind = np.dtype(dtype)
    left = np.repeat(np.array(_VALUES, kind), len(_VALUES))
    right = np.tile(np.array(_VALUES, kind), len(_VALUES))
    out = np.empty(count, kind)
    kernel(left, right, out)
    expected = getattr(np, name)(left.astype(np.float64), right.astype(np.float64))
    np.testing.assert_array_equal(out.astype(np.float64), expected)


def test_the_largest_of_a_row_is_a_nan_where_it_has_one() -> None:
    x = te.placeholder((4, 64), name="x")
    k = te.reduce_axis((0, 64), name="k")
    top = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="top")
    schedule = te.create_schedule(top.op)
    _, lanes = schedule[top].split(k, factor=16)
    schedule[top].vectorize(lanes)
    rows = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    rows[1, 5], rows[2, 63], rows[3, 0] = np.nan, np.nan, np.inf
    out = np.empty(4, np.float32)
    autotune.build(schedule, [x, top])(rows, out)
    np.testing.assert_array_equal(out, rows.max(axis=1))
