"""Conversion of floating point to integers: within the limits, NaN to 0, the same in every execution."""

from __future__ import annotations

import re

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 by it
import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.target import Target
from tests.codegen.executions import all_everywhere

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
CLIPPED = ("int8", "uint8", "int32", "uint32")
VALUES = [
    300.7,
    -300.7,
    1e10,
    -1e10,
    1e20,
    -1e20,
    np.nan,
    np.inf,
    -np.inf,
    70000.5,
    -1.5,
    255.9,
    127.9,
    -128.9,
    -0.5,
]
VALUES += [
    0.0,
    -0.0,
    200.0,
    2.0**31,
    2.0**31 - 128,
    -(2.0**31),
    2.0**32,
    2.0**63,
    -(2.0**63),
    2.0**64,
    65535.5,
    3e-45,
]


def expected(value: float, dtype: str) -> int:
    limits = np.iinfo(dtype)
    if np.isnan(value):
        return 0
    return int(limits.max) if value > limits.max else int(limits.min) if value < limits.min else int(value)


@pytest.mark.parametrize("source", FLOATS)
def test_every_value_has_one_result(source: str) -> None:
    with np.errstate(all="ignore"):
        values = np.array(VALUES).astype(source)
    casts = [lambda x, dtype=dtype: te.cast(x, dtype) for dtype in INTEGERS]
    for dtype, found in zip(INTEGERS, all_everywhere([values], casts), strict=True):
        assert found.tolist() == [expected(float(v), dtype) for v in values], dtype


@pytest.mark.parametrize(
    "bounds", [(0, 255), (-128, 127), (-3.5, 100), (500, 1000), (300, -300), (-np.inf, 5)]
)
def test_clipped_values(bounds: tuple[float, float]) -> None:
    low, high = (te.const(b, "float32") for b in bounds)
    values = np.array(VALUES, "float32")
    least, most = map(np.float32, bounds)
    inner, outer = (
        [(lambda x, dtype=dtype: te.cast(te.maximum(te.minimum(x, high), low), dtype)) for dtype in CLIPPED],
        [(lambda x, dtype=dtype: te.cast(te.minimum(high, te.maximum(low, x)), dtype)) for dtype in CLIPPED],
    )
    clipped = [np.maximum(np.minimum(values, most), least)] * len(inner)
    clipped += [np.minimum(np.maximum(values, least), most)] * len(outer)
    found = all_everywhere([values], [*inner, *outer])
    for dtype, got, wanted in zip(CLIPPED * 2, found, clipped, strict=True):
        assert got.tolist() == [expected(float(v), dtype) for v in wanted], dtype


def test_a_clipped_value_is_clamped_once() -> None:
    a = te.placeholder((64,), name="A")
    clipped = te.compute(
        (64,), lambda i: te.cast(te.minimum(te.maximum(a[i], 0.0), 255.0), "uint8"), name="C"
    )
    plain = te.compute((64,), lambda i: te.cast(a[i], "uint8"), name="C")
    for c in (clipped, plain):
        s = te.create_schedule(c)
        s[c].vectorize(c.op.axis[0])
        ir = compile_schedule(s, [a, c], Target.parse("x86-64-v4"), name="k").ir
        assert len(re.findall(r"= select", ir)) == 2  # no more than the clip itself takes


@pytest.mark.parametrize("bounds", [(0, 255), (-128, 127), (-3.5, 100), (3, 200), (-np.inf, np.inf)])
def test_rounded_values(bounds: tuple[float, float]) -> None:
    """Halves become even, whether values are rounded before they are clipped to whole numbers or after."""
    low, high = (te.const(b, "float32") for b in bounds)
    values = np.array(
        [*VALUES, 0.5, 1.5, 2.5, -2.5, 254.5, 255.5, 126.5, 127.5, 0.49999997, 2.0**23 + 1], "float32"
    )
    casts = [
        (lambda x, dtype=dtype: te.cast(te.maximum(te.minimum(te.round(x), high), low), dtype))
        for dtype in CLIPPED
    ]
    clipped = np.maximum(np.minimum(np.round(values), np.float32(bounds[1])), np.float32(bounds[0]))
    for dtype, got in zip(CLIPPED, all_everywhere([values], casts), strict=True):
        assert got.tolist() == [expected(float(v), dtype) for v in clipped], dtype


def test_a_rounded_value_is_converted_by_one_instruction() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute(
        (64,), lambda i: te.cast(te.minimum(te.maximum(te.round(a[i]), 0.0), 255.0), "uint8"), name="C"
    )
    s = te.create_schedule(c)
    s[c].vectorize(c.op.axis[0])
    ir = compile_schedule(s, [a, c], Target.parse("x86-64-v4"), name="k").ir
    assert "llvm.lrint" in ir
    assert "roundeven" not in ir
