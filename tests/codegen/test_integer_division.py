"""Integer division by zero and at the limits of the types: defined, the same in every execution, and without a trap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.target import Target
from tests.codegen.executions import all_everywhere, pairs
from tests.schedule.machine import run_machine_code

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def edges(dtype: str) -> Any:
    """Limits of a type, small numbers of both signs, and some others."""
    limits = np.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max - 1, limits.max, *range(max(-3, limits.min), 8)]
    others = np.random.default_rng(0).integers(limits.min, limits.max, 10, dtype, endpoint=True)
    return np.concatenate([np.array(near, dtype), others])


def toward_zero(a: int, b: int) -> int:
    """The quotient of C, 0 by zero."""
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_rounding_down_is_numpys(dtype: str) -> None:
    a, b = pairs(edges(dtype))
    with np.errstate(all="ignore"):
        quotient, rest = all_everywhere([a, b], [lambda x, y: x // y, lambda x, y: x % y])
        np.testing.assert_array_equal(quotient, np.floor_divide(a, b))
        np.testing.assert_array_equal(rest, np.mod(a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_rounding_toward_zero(dtype: str) -> None:
    a, b = pairs(edges(dtype))
    exact = [toward_zero(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    limits = np.iinfo(dtype)
    wrapped = [(q - limits.min) % (1 << limits.bits) + limits.min for q in exact]
    with np.errstate(all="ignore"):
        quotient, *rests = all_everywhere([a, b], [te.truncdiv, te.truncmod, te.fmod])
        np.testing.assert_array_equal(quotient, np.array(wrapped, dtype))
        for rest in rests:
            np.testing.assert_array_equal(rest, np.fmod(a, b))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_known_divisors(dtype: str) -> None:
    values = edges(dtype)
    with np.errstate(all="ignore"):
        divisors = [np.array(divisor).astype(dtype) for divisor in (-3, -1, 0, 1, 2, 7)]
        quotients = [lambda x, by=by: x // te.const(int(by), dtype) + x for by in divisors]
        rests = [lambda x, by=by: x % te.const(int(by), dtype) + x for by in divisors]
        found = all_everywhere([values], [*quotients, *rests])
        wanted = [values // by + values for by in divisors] + [values % by + values for by in divisors]
        for by, got, expected in zip(divisors * 2, found, wanted, strict=True):
            np.testing.assert_array_equal(got, expected, str(by))


def test_constants_are_folded_to_the_same_numbers() -> None:
    numbers = [te.const(v, "int8") for v in (-128, -7, 0, 7, 127)]
    for a in numbers:
        for b in numbers:
            x, y = (np.array([v.value], "int8") for v in (a, b))
            with np.errstate(all="ignore"):
                assert (a // b).value == (x // y)[0]
                assert (a % b).value == (x % y)[0]
                assert (a + b).value == (x + y)[0]
                assert (a * b).value == (x * y)[0]


def test_a_side_that_is_not_taken_may_divide_by_zero() -> None:
    rng = np.random.default_rng(0)
    a, b = (te.placeholder((5, 13), "int32", name=name) for name in "AB")
    c = te.compute((5, 13), lambda i, j: te.if_then_else(j != 0, i // j, -1), name="C")
    d = te.compute((5, 13), lambda i, j: te.if_then_else(b[i, j] != 0, a[i, j] // b[i, j], -1), name="D")
    given = {"A": rng.integers(-99, 99, (5, 13), "int32"), "B": rng.integers(-2, 3, (5, 13), "int32")}
    for tensor, inputs in ((c, []), (d, [a, b])):
        named = {p.name: given[p.name] for p in inputs}
        (expected,) = te.evaluate([tensor], {p: given[p.name] for p in inputs})
        for lanes in (0, 1, 4):
            s = te.create_schedule(tensor)
            if lanes == 1:
                s[tensor].vectorize(tensor.op.axis[1])
            elif lanes:
                s[tensor].vectorize(s[tensor].split(tensor.op.axis[1], factor=lanes, tail="guard")[1])
            found = run_machine_code(s, [*inputs, tensor], named)[tensor.name]
            np.testing.assert_array_equal(found, expected)


def instructions(divisor: te.Expr | None, dtype: str = "int32") -> str:
    a, b = (te.placeholder((64,), dtype, name=name) for name in "AB")
    c = te.compute((64,), lambda i: a[i] // (b[i] if divisor is None else divisor), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(c.op.axis[0])
    args = [a, b, c] if divisor is None else [a, c]
    return compile_schedule(s, args, Target.parse("x86-64-v4"), name="k").ir


def test_lanes_have_no_integer_division_and_known_divisors_no_guard() -> None:
    assert "sdiv" not in instructions(None)
    assert "fdiv <16 x double>" in instructions(None)
    assert "fdiv <32 x float>" in instructions(None, "int16")
    known = instructions(te.const(7, "int32"))
    assert "sdiv" in known
    assert "select" not in known


def test_indices_wrap_as_their_type_does() -> None:
    a = te.placeholder((300,), "int32", name="A")
    index = te.placeholder((4,), "uint8", name="I")
    c = te.compute((4,), lambda i: a[index[i] + te.const(200, "uint8")], name="C")
    d = te.compute((300,), lambda i: a[te.cast(i, "uint8")], name="D")
    values, chosen = np.arange(300, dtype="int32"), np.array([0, 55, 56, 255], "uint8")
    s = te.create_schedule([c, d])
    found = run_machine_code(s, [a, index, c, d], {"A": values, "I": chosen})
    assert found["C"].tolist() == [200, 255, 0, 199]
    np.testing.assert_array_equal(found["D"], values % 256)
