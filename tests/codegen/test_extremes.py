"""Maximum and minimum of floating-point values: a NaN on either side stays one, in lanes and alone.

``max_number`` passes over NaN instead, whatever the order in which a schedule combines the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.interpreter import run_program
from autotune.lower import lower_schedule

pytestmark = pytest.mark.registers

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


def _numbered_rows(dtype: str) -> np.ndarray:
    """Rows of 37 with a NaN at each place in turn, then NaN alone, infinities with NaN, and no NaN."""
    rows = np.random.default_rng(0).standard_normal((41, 37)).astype(dtype)
    rows[np.arange(37), np.arange(37)] = np.nan
    rows[37], rows[38, ::2], rows[38, 1::2], rows[39, 3:5] = np.nan, np.nan, -np.inf, (np.nan, np.inf)
    return rows


def _plain(stage: Any, k: te.IterVar, schedule: Any) -> None:
    return None


def _lanes(stage: Any, k: te.IterVar, schedule: Any) -> None:
    _, lanes = stage.split(k, factor=16)
    stage.vectorize(lanes)


def _vectors(stage: Any, k: te.IterVar, schedule: Any) -> None:
    _, lanes = stage.split(k, factor=16)
    partial = schedule.rfactor(stage.op.output(0), lanes)
    schedule[partial].vectorize(schedule[partial].op.axis[-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("reduce", [_plain, _lanes, _vectors])
def test_max_number_passes_over_nan(reduce: Callable[..., None], dtype: str) -> None:
    rows = _numbered_rows(dtype)
    x = te.placeholder(rows.shape, dtype, name="x")
    k = te.reduce_axis((0, rows.shape[1]), name="k")
    top = te.compute((len(rows),), lambda i: te.max_number(x[i, k], axis=k), name="top")
    schedule = te.create_schedule(top.op)
    reduce(schedule[top], k, schedule)
    wanted = np.fmax.reduce(rows.astype(np.float64), axis=1, initial=-np.inf)
    np.testing.assert_array_equal(te.evaluate([top], {x: rows})[0].astype(np.float64), wanted)
    out = np.empty(len(rows), rows.dtype)
    run_program(lower_schedule(schedule, [x, top]), {"x": rows, "top": out})
    np.testing.assert_array_equal(out.astype(np.float64), wanted)
    out[:] = 0
    autotune.build(schedule, [x, top])(rows, out)
    np.testing.assert_array_equal(out.astype(np.float64), wanted)
