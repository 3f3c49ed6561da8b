"""bfloat16: stored in 16 bits, computed in float32, the same bits from NumPy, interpreter and machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.interpreter import run_program
from autotune.codegen.llvm import assembly
from autotune.lower import lower_schedule
from autotune.target import Target
from autotune.te.evaluate import evaluate
from tests.schedule.machine import run_machine_code, runnable_target

pytestmark = pytest.mark.registers

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
EVERY = np.arange(2**16, dtype=np.uint16).view("bfloat16")
"""All values: both zeros, denormals, infinities, NaNs."""


def scheduled(dtypes: list[str], body: Callable[..., Any], n: int, lanes: int) -> tuple[Any, list[te.Tensor]]:
    """``C[i] = body(A[i], ...)`` in vectors, with a remainder where ``lanes`` does not divide ``n``."""
    inputs = [te.placeholder((n,), dtype, name=f"A{k}") for k, dtype in enumerate(dtypes)]
    c = te.compute((n,), lambda i: body(*[a[i] for a in inputs]), name="C")
    s = te.create_schedule(c)
    if lanes > 1:
        _, lane = s[c].split(s[c].op.axis[0], factor=lanes)
        s[c].vectorize(lane)
    return s, [*inputs, c]


def three_ways(s: Any, args: list[te.Tensor], arrays: list[Any], target: Target) -> list[Any]:
    """Results of NumPy, of the interpreter and of machine code."""
    given = {t.name: a for t, a in zip(args[:-1], arrays, strict=True)}
    out = args[-1]
    memory = {**given, out.name: np.zeros(out.shape, out.dtype)}
    run_program(lower_schedule(s, args), memory)
    machine = run_machine_code(s, args, given, target=target)[out.name]
    (reference,) = evaluate([out], dict(zip(args[:-1], arrays, strict=True)))
    return [reference, memory[out.name], machine]


def assert_same(results: list[Any], signs: bool = True) -> None:
    """Equal bits, but for the payloads of NaNs and, without ``signs``, the signs of zeros."""
    first = results[0].astype("float64")
    for other in results[1:]:
        assert other.dtype == results[0].dtype
        np.testing.assert_array_equal(other.astype("float64"), first)
        numbers = ~np.isnan(first) & (signs | (first != 0))
        assert np.array_equal(np.signbit(first[numbers]), np.signbit(other.astype("float64")[numbers]))


def halfway_floats() -> Any:
    """float32 values around ties between neighbouring bfloat16: below, on and above, for many exponents."""
    upper = np.arange(0, 2**16, 7, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (upper[:, None] | lower).reshape(-1).view(np.float32)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_rounding_of_float32(name: str, lanes: int) -> None:
    values = halfway_floats()[:: 1 if lanes > 1 else 5].copy()
    s, args = scheduled(["float32"], lambda x: te.cast(x, "bfloat16"), values.size, lanes)
    machine = run_machine_code(s, args, {"A0": values}, target=runnable_target(name))["C"]
    with np.errstate(invalid="ignore"):
        assert_same([values.astype("bfloat16"), machine])


def test_a_nan_stays_a_nan_and_becomes_quiet() -> None:
    values = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    for lanes in (1, 4):
        s, args = scheduled(["float32"], lambda x: te.cast(x, "bfloat16"), 4, lanes)
        bits = run_machine_code(s, args, {"A0": values})["C"].view(np.uint16)
        assert [hex(b) for b in bits] == ["0x7fc0", "0xffc0", "0x7fff", "0xffff"]


@pytest.mark.parametrize("name", TARGETS)
def test_all_values_become_the_same_float32(name: str) -> None:
    s, args = scheduled(["bfloat16"], lambda x: te.cast(x, "float32"), EVERY.size, 16)
    machine = run_machine_code(s, args, {"A0": EVERY}, target=runnable_target(name))["C"]
    np.testing.assert_array_equal(machine.view(np.uint32), EVERY.view(np.uint16).astype(np.uint32) << 16)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "chain": lambda x, y: x * y + x,
    "maximum": te.maximum,
    "minimum": te.minimum,
    "less": lambda x, y: x < y,
    "select": lambda x, y: te.if_then_else(x >= y, x, y + 1.0),
    "constant": lambda x, y: x * 0.1 + y,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PAIRS)
def test_arithmetic_on_special_and_random_values(name: str, target: str) -> None:
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, -9e-41, 3.38e38, 1.0078125])
    x, y = (a.reshape(-1) for a in np.meshgrid(special.astype("bfloat16"), special.astype("bfloat16")))
    x, y = np.concatenate([x, rng.choice(EVERY, 200)]), np.concatenate([y, rng.choice(EVERY, 200)])
    s, args = scheduled(["bfloat16", "bfloat16"], PAIRS[name], x.size, 8)
    # Which of two zeros is the larger is open.
    assert_same(three_ways(s, args, [x, y], runnable_target(target)), signs=not name.endswith("imum"))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_conversions(dtype: str) -> None:
    values = np.arange(0 if dtype in ("uint8", "bool") else -60, 60).astype(dtype)
    s, args = scheduled([dtype], lambda x: te.cast(x, "bfloat16") + 0.5, values.size, 8)
    assert_same(three_ways(s, args, [values], runnable_target("x86-64-v3")))
    halves = (np.arange(0 if dtype == "uint8" else -60, 60) * 0.5).astype("bfloat16")
    s, args = scheduled(["bfloat16"], lambda x: te.cast(x, dtype), halves.size, 8)
    assert_same(three_ways(s, args, [halves], runnable_target("x86-64-v3")))


@pytest.mark.parametrize(
    "function", [te.sqrt, te.floor, te.ceil, te.round, te.abs, te.exp, te.tanh, te.sigmoid]
)
def test_functions_are_those_of_float32_rounded(function: Callable[[Any], Any]) -> None:
    values = np.linspace(0, 20, 999).astype("bfloat16")
    s, args = scheduled(["bfloat16"], function, values.size, 8)
    reference, interpreted, machine = three_ways(s, args, [values], runnable_target("x86-64-v3"))
    for found in (interpreted, machine):  # within the last place: float32 may be on either side of a tie
        np.testing.assert_allclose(found.astype("float32"), reference.astype("float32"), rtol=2**-8)


@pytest.mark.parametrize("fold", [te.sum, te.max, te.min])
def test_lanes_fold_in_float32(fold: Callable[..., Any]) -> None:
    values = np.random.default_rng(0).integers(-3, 4, (5, 16)).astype("bfloat16")
    a = te.placeholder(values.shape, "bfloat16", name="A")
    r = te.reduce_axis((0, 16), name="r")
    c = te.compute((5,), lambda i: fold(a[i, r], axis=r), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(r)
    assert_same(three_ways(s, [a, c], [values], runnable_target("x86-64-v3")))


@pytest.mark.parametrize("name", TARGETS)
def test_no_library_and_no_scalar_code(name: str) -> None:
    target = Target.parse(name)
    s, args = scheduled(["bfloat16", "bfloat16"], lambda x, y: x * y + x, 64, target.lanes("float32"))
    text = assembly(compile_schedule(s, args, target).ir, target)
    assert "sf2" not in text  # __truncsfbf2 and its like
    assert "mulps" in text
    assert "mulss" not in text
