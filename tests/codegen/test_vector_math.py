"""The vector functions against NumPy and SciPy in a wider type: every format, several lane counts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.special

from autotune.codegen.llvm.vector_math import BINARY_FUNCTIONS, FUNCTIONS, has_avx512, math_function
from autotune.codegen.llvm.vector_math.fits import ERF_STEP
from autotune.target import Target
from results.bench.functions import in_domain
from tests.codegen.vector_math_harness import assembly, run, ulp_error

pytestmark = pytest.mark.registers

DTYPES = ("float32", "float64")
# Bounds in ulp of the exact value. SciPy's erf is float64 itself: its error counts in ours.
BOUNDS = {
    ("exp", "float32"): 1.05, ("exp", "float64"): 1.05,
    ("exp_nonpositive", "float32"): 1.05, ("exp_nonpositive", "float64"): 1.05,
    ("log", "float32"): 1.10, ("log", "float64"): 1.0,
    ("tanh", "float32"): 1.5, ("tanh", "float64"): 2.0,
    ("erf", "float32"): 1.2, ("erf", "float64"): 3.5,
    ("sigmoid", "float32"): 2.0, ("sigmoid", "float64"): 2.0,
    ("rsqrt", "float32"): 1.5, ("rsqrt", "float64"): 1.5,
    ("pow", "float32"): 1.25, ("pow", "float64"): 1.3,
    ("fmod", "float32"): 0.0, ("fmod", "float64"): 0.0,
    ("log1p", "float32"): 2.0, ("log1p", "float64"): 2.0,
    ("log2", "float32"): 2.0, ("log2", "float64"): 2.0,
    ("log10", "float32"): 2.0, ("log10", "float64"): 2.0,
    ("sin", "float32"): 2.0, ("sin", "float64"): 2.0,
    ("cos", "float32"): 2.0, ("cos", "float64"): 2.0,
    ("tan", "float32"): 3.5, ("tan", "float64"): 3.5,
    ("atan", "float32"): 2.5, ("atan", "float64"): 2.5,
    ("sinh", "float32"): 2.5, ("sinh", "float64"): 2.5,
    ("cosh", "float32"): 2.5, ("cosh", "float64"): 2.5,
}  # fmt: skip

CHOICES = (False, True) if has_avx512(Target.detect()) else (False,)
"""Return whether the instructions of AVX-512 are used."""

needs_wider_type = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="float64 needs a wider type to compare with"
)


def _wide(x: Any) -> Any:
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


def reference(name: str, x: Any, y: Any = None) -> Any:
    """The function in the wider type."""
    with np.errstate(all="ignore"):
        wide = _wide(x)
        if name == "exp_nonpositive":
            return np.exp(wide)
        if name == "erf":
            return scipy.special.erf(x.astype(np.float64)).astype(wide.dtype)
        if name == "sigmoid":
            small = np.exp(-np.abs(wide))
            return np.where(wide < 0, small, 1) / (1 + small)
        if name == "rsqrt":
            return 1 / np.sqrt(wide)
        if name in BINARY_FUNCTIONS:
            return {"pow": np.power, "fmod": np.fmod}[name](wide, _wide(y))
        return getattr(np, name)(wide)


def special_values(dtype: str) -> Any:
    info = np.finfo(dtype)
    edges = [88.0, 88.72283, 88.8, -87.3, -87.5, -103.2, -103.98, -104.5, 709.7, 709.9, -708.4]
    edges += [-745.1, -745.2, 0.5, 1.0, 2.0, 3.0, 0.9999999, 1.0000001, 2.0**0.5, 0.5**0.5, 9.01, 18.5]
    edges += [float(info.tiny), float(info.smallest_subnormal), float(info.max), float(info.eps)]
    with np.errstate(over="ignore"):
        both = np.array([0.0, np.inf, *edges]).astype(dtype)
    return np.concatenate([both, -both, np.array([np.nan], dtype)])


def random_values(name: str, dtype: str, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Every exponent (random bits), the working interval, and around one; for two arguments also the second."""
    code = {"float32": np.uint32, "float64": np.uint64}[dtype]
    width = 32 if dtype == "float32" else 64
    anything = rng.integers(0, 2**width, count // 4, dtype=code).view(dtype)
    reach = {"exp": 0.97 * np.log(float(np.finfo(dtype).max)), "sigmoid": 100.0, "tanh": 10.0}
    reach["exp_nonpositive"] = reach["exp"]
    interval = rng.uniform(-1, 1, count // 4).astype(dtype) * np.dtype(dtype).type(reach.get(name, 6.0))
    if name not in BINARY_FUNCTIONS:
        near_one = rng.uniform(0.4, 2.5, count // 4).astype(dtype)
        near_zero = rng.normal(0, 0.3, count // 4).astype(dtype)
        values = np.concatenate([anything, interval, near_one, near_zero])
        return in_domain(name, values), None
    quarter = count // 4
    positive = np.exp(rng.normal(0, 1, quarter))
    near_one = 1 + rng.normal(0, 1e-3, quarter)
    x = [np.abs(anything), positive.astype(dtype), anything, near_one.astype(dtype)]
    y = [rng.normal(0, 1, quarter), rng.normal(0, 30, quarter), rng.integers(-9, 10, quarter)]
    return np.concatenate(x), np.concatenate([*y, rng.normal(0, 1e4, quarter)]).astype(dtype)


def worst_error(name: str, dtype: str, lanes: int, count: int, avx512: bool | None = None) -> float:
    x, y = random_values(name, dtype, count, np.random.default_rng(len(name) * lanes))
    return ulp_error(run(name, lanes, x, y, avx512), reference(name, x, y))


@needs_wider_type
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("avx512", CHOICES)
def test_error_of_random_values_is_bounded(name: str, dtype: str, avx512: bool) -> None:
    assert worst_error(name, dtype, 8, 100_000, avx512) <= BOUNDS[name, dtype]


@pytest.mark.slow
@needs_wider_type
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_of_ten_million_values_is_bounded(name: str, dtype: str) -> None:
    assert worst_error(name, dtype, 16, 10_000_000) <= BOUNDS[name, dtype]


@needs_wider_type
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
def test_lane_counts_agree(name: str, dtype: str, lanes: int) -> None:
    x, y = random_values(name, dtype, 4000, np.random.default_rng(1))
    np.testing.assert_array_equal(run(name, lanes, x, y, avx512=False), run(name, 8, x, y, avx512=False))


@needs_wider_type
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_registers_of_every_width_use_the_instructions_of_avx512(name: str, dtype: str, lanes: int) -> None:
    assert worst_error(name, dtype, lanes, 20_000) <= BOUNDS[name, dtype]


@needs_wider_type
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("avx512", CHOICES)
@pytest.mark.parametrize("lanes", [8, 16])
def test_special_values(name: str, dtype: str, avx512: bool, lanes: int) -> None:
    x, y = in_domain(name, special_values(dtype)), None
    if name in BINARY_FUNCTIONS:
        x, y = (grid.ravel() for grid in np.meshgrid(x, x))
    got, exact = run(name, lanes, x, y, avx512), reference(name, x, y)
    assert ulp_error(got, exact) <= BOUNDS[name, dtype]
    with np.errstate(all="ignore"):
        zero = exact.astype(dtype) == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rsqrt_is_the_quotient_of_one_and_the_root(dtype: str) -> None:
    x = np.abs(random_values("rsqrt", dtype, 10_000, np.random.default_rng(2))[0])
    with np.errstate(all="ignore"):
        expected = np.dtype(dtype).type(1) / np.sqrt(x)
    np.testing.assert_array_equal(run("rsqrt", 8, x, avx512=False), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_no_function_is_called(name: str, dtype: str, lanes: int) -> None:
    text = assembly(name, lanes, dtype)
    assert "run:" in text
    assert not re.findall(r"^\s+(?:call|callq|jmp|jmpq|bl|b)\s+[a-zA-Z_].*", text, re.MULTILINE)


@pytest.mark.parametrize(("name", "pieces"), [("erf", ERF_STEP / 2.0), ("exp", np.log(2.0) / 32.0)])
def test_values_between_two_pieces(name: str, pieces: float) -> None:
    """A number half-way between two entries of a table belongs to one of them in every step."""
    between = (np.arange(-64, 65) * pieces).astype(np.float32)
    x = (between.view(np.int32)[:, None] + np.arange(-16, 17, dtype=np.int32)).ravel().view(np.float32)
    for lanes in (8, 16):
        assert ulp_error(run(name, lanes, x), reference(name, x)) <= BOUNDS[name, "float32"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_of_an_argument_need_no_masks(dtype: str) -> None:
    assert not re.findall(r"\bv?(?:cmp|blend)\w*p[sd]", assembly("exp", 8, dtype))


def test_definition_names_what_it_needs_once() -> None:
    function = math_function("tanh", 16, "float32")
    assert function.symbol == "at_tanh_v16f32"
    assert function.ir.startswith("define internal <16 x float> @at_tanh_v16f32(<16 x float> %x)")
    called = set(re.findall(r"@llvm\.[\w.]+", function.ir))
    declared = [re.findall(r"@llvm\.[\w.]+", line)[0] for line in function.needs]
    assert sorted(called) == declared


def test_lanes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="lanes must be at least 1, got 0"):
        math_function("exp", 0, "float32")
