"""Types of eight bits and fewer: NumPy, interpreter and machine code round alike, and as ml_dtypes does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.lower import lower_schedule
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import STORAGE_DTYPES
from autotune.te.narrow import NARROW, NARROW_FLOATS, NARROW_INTEGERS
from tests.codegen.executions import same, takes_numba
from tests.schedule.machine import numba_target, run_machine_code


def cast_everywhere(x: Any, *to: str) -> list[Any]:
    """Numbers in some types, which all executions must agree on."""
    a = te.placeholder(x.shape, x.dtype.name, name="A")
    made = [te.compute(x.shape, lambda i, dtype=dtype: te.cast(a[i], dtype), name=dtype) for dtype in to]
    args, expected = [a, *made], te.evaluate(made, {a: x})
    found = {dtype: np.zeros(x.shape, dtype) for dtype in to}
    plain = lower_schedule(te.create_schedule(made), args)
    interpreter.run_program(plain, {"A": x, **found})
    who = {"interpreter": found}
    for lanes in (False, True):
        s = te.create_schedule(made)
        for c in made if lanes else ():
            s[c].vectorize(s[c].split(c.op.axis[0], 8)[1])
        who[f"lanes: {lanes}"] = run_machine_code(s, args, {"A": x})
    if takes_numba(plain):
        who["numba"] = run_machine_code(s, args, {"A": x}, target=numba_target())
    for name, values in who.items():
        for dtype, wanted in zip(to, expected, strict=True):
            same(values[dtype], wanted, f"{name}, {dtype}")
    return list(expected)


def every_number(dtype: str) -> Any:
    form = NARROW_FLOATS.get(dtype)
    bits = form.exponent + form.mantissa + 1 if form else NARROW_INTEGERS[dtype]
    return np.arange(1 << bits, dtype=np.uint8).view(dtype)


def test_every_stored_type_has_a_size() -> None:
    assert set(ITEM_BYTES) == set(STORAGE_DTYPES)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_number_is_widened(dtype: str) -> None:
    x = every_number(dtype)
    widened, *_ = cast_everywhere(x, "float32", "int32", "float16")
    np.testing.assert_array_equal(widened, x.astype(np.float32))


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_floats_are_rounded_to_even_once(dtype: str) -> None:
    numbers = np.sort(every_number(dtype).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    ties = (numbers[1:] + numbers[:-1]) / 2
    beside = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([numbers, ties, *beside, [np.nan, np.inf, -np.inf, 1e9, -1e9, 1e-30, -1e-30, 1e-40]])
    (found,) = cast_everywhere(x.astype(np.float32), dtype)
    if NARROW_FLOATS[dtype].beyond == "none":  # ml_dtypes gives NaN either zero
        found, x = found[~np.isnan(x)], x[~np.isnan(x)]
    same(found, x.astype(np.float32).astype(dtype), "ml_dtypes")


@pytest.mark.parametrize("dtype", NARROW_INTEGERS)
def test_integers_wrap_and_floats_stay_within_the_limits(dtype: str) -> None:
    x = np.arange(-20, 20, dtype=np.int32)
    np.testing.assert_array_equal(cast_everywhere(x, dtype)[0], x.astype(dtype))
    low, high = (-(1 << NARROW_INTEGERS[dtype]) // 2, (1 << NARROW_INTEGERS[dtype]) // 2 - 1)
    low, high = (0, (1 << NARROW_INTEGERS[dtype]) - 1) if dtype.startswith("u") else (low, high)
    y = np.array([-1e9, -1.5, 0.9, 1.9, 1e9, np.nan], np.float32)
    expected = [low, max(low, -1), 0, 1, high, 0]
    assert cast_everywhere(y, dtype)[0].astype(int).tolist() == expected


def test_nothing_else_takes_them() -> None:
    a = te.placeholder((4,), "int4", name="A")
    with pytest.raises(
        TypeError, match=r"int4 is for storage only: te\.cast it to a type that is computed with"
    ):
        a[0] + a[1]
    with pytest.raises(TypeError, match="int4 is for storage only"):
        te.compute((4,), lambda i: a[i] < a[0])
    with pytest.raises(TypeError, match="no constant has type int4: te"):
        te.const(1, "int4")
