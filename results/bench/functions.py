"""Our vector functions one by one: error in units in the last place, and speed beside NumPy's.

The reference is the function in a wider type: float64 for float32, the 80-bit long double for float64.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView, over
from autotune.bench.interleaved import interleaved
from autotune.bench.tables import geometric_mean, number
from autotune.codegen.llvm.vector_math import BINARY_FUNCTIONS, FUNCTIONS, has_avx512, math_function
from autotune.runtime.cpu.device import address_of
from autotune.target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm

Floats = NDArray[np.floating[Any]]
Function = Callable[[Floats, Floats, Floats], Any]
"""Runs over flat arrays (x, y, out); y is the second argument, where there is one."""
DTYPES = ("float32", "float64")
CHUNK = 1_000_000
_TIMED_ELEMENTS = 32_768
"""Elements of a timed call: input and output stay in the second-level cache."""
UNROLLED = 2
"""Vectors of a step of the timed loop."""
_NONPOSITIVE = ("exp_nonpositive",)
"""Functions that are defined up to zero."""
_REACH = {"exp": 0.97, "exp_nonpositive": 0.97, "sigmoid": 100.0, "tanh": 10.0}
_EDGES: tuple[float, ...] = (
    88.0,
    88.72283,
    88.8,
    -87.3,
    -87.5,
    -103.2,
    -103.98,
    -104.5,
    709.7,
    709.9,
    -708.4,
    -745.1,
    -745.2,
)
_EDGES += (0.5, 1.0, 2.0, 3.0, 0.9999999, 1.0000001, 2.0**0.5, 0.5**0.5, 9.01, 18.5)


@dataclass(frozen=True)
class Accuracy:
    """Largest error in ulp over ``count`` random values, and of ``specials`` special ones how many differ.

    ``numpy_ulp`` is the largest error of NumPy's form over the same random values.
    """

    name: str
    dtype: str
    ulp: float
    numpy_ulp: float
    count: int
    specials: int
    wrong_specials: int


@dataclass(frozen=True)
class Speed:
    """Nanoseconds an element on one thread, ours and the usual NumPy expression's; minima."""

    name: str
    dtype: str
    lanes: int
    ours_ns: float
    numpy_ns: float
    expression: str


def loop_module(name: str, lanes: int, dtype: str, avx512: bool | None = None) -> str:
    """LLVM IR of ``void run(ptr x, ptr y, ptr out, i64 n)``, y being the second argument, where there is one.

    n is a positive multiple of ``UNROLLED * lanes``: kernels too work on several vectors a step.
    ``avx512`` says whether AVX-512 may be used; None asks the host.
    """
    if avx512 is None:
        avx512 = has_avx512(Target.detect())
    function = math_function(name, lanes, dtype, avx512)
    element = {"float32": "float", "float64": "double"}[dtype]
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    align = np.dtype(dtype).itemsize
    operands = ("x", "y") if name in BINARY_FUNCTIONS else ("x",)
    steps: list[str] = []
    for n in range(UNROLLED):
        steps.append(f"  %i{n} = add i64 %i, {n * lanes}")
        for array in operands:
            steps.append(f"  %p{array}{n} = getelementptr {element}, ptr %{array}, i64 %i{n}")
            steps.append(f"  %{array}{n} = load {vector}, ptr %p{array}{n}, align {align}")
    for n in range(UNROLLED):
        arguments = ", ".join(f"{vector} %{array}{n}" for array in operands)
        steps.append(f"  %r{n} = call {vector} @{function.symbol}({arguments})")
    for n in range(UNROLLED):
        steps.append(f"  %po{n} = getelementptr {element}, ptr %out, i64 %i{n}")
        steps.append(f"  store {vector} %r{n}, ptr %po{n}, align {align}")
    body = "\n".join(steps)
    loop = f"""
define void @run(ptr noalias %x, ptr noalias %y, ptr noalias %out, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%next, %body]
{body}
  %next = add i64 %i, {UNROLLED * lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %done
done:
  ret void
}}"""
    return "\n".join([*function.needs, function.ir, loop])


@cache
def _engine(name: str, lanes: int, dtype: str, avx512: bool | None) -> llvm.ExecutionEngine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = Target.detect()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=host.cpu, features=host.llvm_features, opt=2
    )
    module = llvm.parse_assembly(loop_module(name, lanes, dtype, avx512))
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def compiled(name: str, lanes: int, dtype: str, avx512: bool | None = None) -> Function:
    """The function over flat arrays (x, y, out) whose size is a multiple of ``UNROLLED * lanes``."""
    address = _engine(name, lanes, dtype, avx512).get_function_address("run")
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    call = prototype(address)

    def run(x: Floats, y: Floats, out: Floats) -> None:
        call(address_of(x), address_of(y), address_of(out), out.size)

    return run


def evaluate(name: str, lanes: int, x: Floats, y: Floats, avx512: bool | None = None) -> Floats:
    """The function of every element of flat arrays of any size."""
    step = UNROLLED * lanes
    padded = max(1, -(-x.size // step)) * step
    operands = [np.zeros(padded, x.dtype) for _ in range(2)]
    operands[0][: x.size], operands[1][: x.size] = x, y
    out = np.empty(padded, x.dtype)
    compiled(name, lanes, str(x.dtype), avx512)(operands[0], operands[1], out)
    return out[: x.size]


def exact(name: str, x: Floats, y: Floats) -> Floats:
    """The function in the wider type. SciPy's erf is float64 itself: its error counts in ours."""
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        v = x.astype(wide)
        if name == "erf":
            import scipy.special

            return np.asarray(scipy.special.erf(x.astype(np.float64)).astype(wide))
        if name == "sigmoid":
            small = np.exp(-np.abs(v))
            return np.asarray(np.where(np.signbit(v), small, 1) / (1 + small))
        if name == "rsqrt":
            return np.asarray(1 / np.sqrt(v))
        if name in BINARY_FUNCTIONS:
            return np.asarray(_ufunc(name)(v, y.astype(wide)))
        return np.asarray(_ufunc(name)(v))


def _ufunc(name: str) -> Any:
    named = {"pow": np.power, "exp_nonpositive": np.exp}
    return named.get(name) or getattr(np, name)


def ulp_errors(got: Floats, wide: Floats) -> tuple[float, int]:
    """Largest error in ulp, and how many values are infinite, NaN or of the wrong sign where they must not."""
    with np.errstate(all="ignore"):
        rounded = wide.astype(got.dtype)
        finite = np.isfinite(rounded)
        alike = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        wrong = np.where(finite, ~np.isfinite(got), ~alike)
        zero = (wide == 0) & (got == 0)
        wrong |= zero & (np.signbit(got) != np.signbit(rounded))
        usable = finite & np.isfinite(got)
        distance = np.abs(got[usable].astype(wide.dtype) - wide[usable]) / np.spacing(np.abs(rounded[usable]))
    return float(distance.max(initial=0.0)), int(np.count_nonzero(wrong))


def random_values(name: str, dtype: str, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Random bits (every exponent), the working interval, around one and around zero; a second where there is one."""
    quarter = max(1, count // 4)
    code, width = {"float32": (np.uint32, 32), "float64": (np.uint64, 64)}[dtype]
    anything = rng.integers(0, 2**width, quarter, dtype=code).view(dtype)
    if name not in BINARY_FUNCTIONS:
        reach = _REACH.get(name, 6.0) * (
            np.log(float(np.finfo(dtype).max)) if name.startswith("exp") else 1.0
        )
        parts = [
            rng.uniform(-reach, reach, quarter),
            rng.uniform(0.4, 2.5, quarter),
            rng.normal(0, 0.3, quarter),
        ]
        x = np.concatenate([anything, *(part.astype(dtype) for part in parts)])
        return in_domain(name, x), np.zeros_like(x)
    bases = [np.exp(rng.normal(0, 1, quarter)), 1 + rng.normal(0, 1e-3, quarter)]
    exponents = [rng.normal(0, 1, quarter), rng.integers(-9, 10, quarter), rng.normal(0, 30, quarter)]
    exponents.append(rng.normal(0, 1e4, quarter))
    x = np.concatenate([np.abs(anything), anything, *(base.astype(dtype) for base in bases)])
    return x, np.concatenate(exponents).astype(dtype)


def special_values(name: str, dtype: str) -> tuple[Floats, Floats]:
    """Zeros, infinities, NaN, the smallest and largest numbers, and where ranges end; for two arguments every pair."""
    info = np.finfo(dtype)
    ends = np.array([info.tiny, info.smallest_subnormal, info.max, info.eps], dtype)
    with np.errstate(over="ignore"):
        both = np.concatenate([np.array([0.0, np.inf, *_EDGES]).astype(dtype), ends])
    x = np.concatenate([both, -both, np.array([np.nan], dtype)])
    if name not in BINARY_FUNCTIONS:
        return in_domain(name, x), np.zeros_like(x)
    first, second = np.meshgrid(x, x)
    return first.ravel(), second.ravel()


def in_domain(name: str, x: Floats) -> Floats:
    """Return values that a function takes; of those up to zero with a result that is normal, or surely 0."""
    if name not in _NONPOSITIVE:
        return x
    info, below = np.finfo(x.dtype), -np.abs(x)
    least, smallest = (math.log(value) for value in (info.tiny, info.smallest_subnormal))
    between = (below < least) & (below > 1.01 * smallest)
    return np.where(between, least / 2, below).astype(x.dtype)


def accuracy(name: str, dtype: str, count: int, lanes: int, seed: int = 0) -> Accuracy:
    """The error over random and special values."""
    rng = np.random.default_rng(seed)
    worst, theirs, wrong, done = 0.0, 0.0, 0, 0
    usual = numpy_form(name)[1]
    while done < count:
        x, y = random_values(name, dtype, min(CHUNK, count - done), rng)
        wide, out = exact(name, x, y), np.empty_like(x)
        found, bad = ulp_errors(evaluate(name, lanes, x, y), wide)
        with np.errstate(all="ignore"):
            usual(x, y, out)
        theirs = max(theirs, ulp_errors(out, wide)[0])
        worst, wrong, done = max(worst, found), wrong + bad, done + x.size
    x, y = special_values(name, dtype)
    found, bad = ulp_errors(evaluate(name, lanes, x, y), exact(name, x, y))
    return Accuracy(name, dtype, max(worst, found), theirs, done, x.size, wrong + bad)


def numpy_form(name: str) -> tuple[str, Function]:
    """The usual way to write the function with NumPy (SciPy for erf), and how to run it into ``out``."""
    if name == "erf":
        import scipy.special

        return "scipy.special.erf(x)", lambda x, y, out: scipy.special.erf(x, out=out)
    one = np.float32(1)
    forms: dict[str, tuple[str, Function]] = {
        "sigmoid": ("1 / (1 + exp(-x))", lambda x, y, out: np.divide(one, one + np.exp(-x), out=out)),
        "rsqrt": ("1 / sqrt(x)", lambda x, y, out: np.divide(one, np.sqrt(x), out=out)),
        "exp_nonpositive": ("exp(x)", lambda x, y, out: np.exp(x, out=out)),
        "pow": ("power(x, y)", lambda x, y, out: np.power(x, y, out=out)),
        "fmod": ("fmod(x, y)", lambda x, y, out: np.fmod(x, y, out=out)),
    }
    return forms.get(name) or (f"{name}(x)", lambda x, y, out: getattr(np, name)(x, out=out))


def speed(name: str, dtype: str, lanes: int, rounds: int) -> Speed:
    """Time both interleaved over values of one sign of the working interval; the fastest round of each."""
    rng = np.random.default_rng(0)
    x = in_domain(name, rng.uniform(0.1, 5.0, _TIMED_ELEMENTS).astype(dtype))
    y = rng.uniform(-2.0, 2.0, _TIMED_ELEMENTS).astype(dtype)
    out = np.empty_like(x)
    expression, theirs = numpy_form(name)
    run = compiled(name, lanes, dtype)
    best = {"ours": float("inf"), "numpy": float("inf")}

    def turn(function: Function) -> float:
        function(x, y, out)
        begin = time.perf_counter_ns()
        function(x, y, out)
        return (time.perf_counter_ns() - begin) / x.size

    turns = {"ours": lambda: turn(run), "numpy": lambda: turn(theirs)}
    for _, who, ns in interleaved(turns, rounds):
        best[who] = min(best[who], ns)
    return Speed(name, dtype, lanes, best["ours"], best["numpy"], expression)


def measure(say: Say, names: Sequence[str], count: int, rounds: int) -> Iterator[Sequence[Record]]:
    """Yield a record for each function and type."""
    options.check_known(names, FUNCTIONS, "function")
    target = Target.detect()
    for name in names or FUNCTIONS:
        for dtype in DTYPES:
            say(f"{name}, {dtype}")
            error = accuracy(name, dtype, count, target.lanes(dtype))
            yield [{**asdict(error), **asdict(speed(name, dtype, target.lanes(dtype), rounds))}]


ABOUT = (
    "The vector functions that generated code uses for transcendentals, against the exact values in a wider "
    "type, and beside NumPy on one thread over arrays in the second-level cache."
)

EXPERIMENT = Experiment(
    title="Vector functions",
    about=ABOUT,
    summary="Measure error in ulp and speed of exp, log, tanh, erf, sigmoid, rsqrt, pow.",
    example="exp tanh --count 10000000 -o results/math.md",
    options=(
        options.words(),
        options.number("--count", 10_000_000, "Random values of each function and type.", least=4),
        options.number("--rounds", 200, "Timed calls."),
    ),
    measure=measure,
    views=(
        TableView(
            "Vector functions",
            ("name", "dtype"),
            (
                Column("function", lambda rows: f"{rows.get('name')}, {rows.get('dtype')}"),
                Column("max. ulp", "ulp", number(2)),
                Column("NumPy max. ulp", "numpy_ulp", lambda ulp: f"{ulp:.3g}"),
                Column(
                    "wrong specials", lambda rows: f"{rows.get('wrong_specials')} of {rows.get('specials')}"
                ),
                Column("ns/element", "ours_ns", number(3)),
                Column("NumPy ns/element", "numpy_ns", number(3)),
                Column("faster", over("numpy_ns", "ours_ns"), number(1, "×"), geometric_mean),
                Column("NumPy form", "expression"),
            ),
            last="geometric mean",
            notes=lambda rows: [
                f"{rows.get('count')} random values each: random bits, the working interval, around one and zero"
            ],
        ),
    ),
)

__all__ = [
    "DTYPES",
    "EXPERIMENT",
    "FUNCTIONS",
    "Accuracy",
    "Speed",
    "accuracy",
    "compiled",
    "evaluate",
    "exact",
    "in_domain",
    "loop_module",
    "random_values",
    "special_values",
    "speed",
    "ulp_errors",
]
