"""LLVM IR of transcendental functions on explicit vectors, without a call to any library.

`math_function("exp", 16, "float32")` gives the text of

    define internal <16 x float> @at_exp_v16f32(<16 x float> %x) alwaysinline

for a module to include once. Every function handles infinities, NaN, signed zeros and subnormal
numbers as C99 and NumPy do. The methods are the usual ones (Cody and Waite 1980; Muller, Elementary
Functions, 2016): reduce the range exactly, evaluate a minimax polynomial with fused multiply-adds,
put the exponent back as integer arithmetic. The target needs FMA and SSE4.1 or their equals:
without them LLVM would turn `llvm.fma` into a library call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import (
    at_least,
    clamp,
    horner,
    polynomial,
    reciprocal,
    reciprocal_root,
    rough_reciprocal,
    round_to_steps,
    round_with_bits,
    scale,
)
from autotune.codegen.llvm.vector_math.fits import (
    ERF_LARGE,
    ERF_PIECES,
    ERF_SMALL,
    ERF_STEP,
    EXP,
    EXP2_NARROW,
    EXP_NARROW,
    TANH_BORDER,
    TANH_PIECES,
    TANH_SMALL,
)
from autotune.codegen.llvm.vector_math.fmod import remainder
from autotune.codegen.llvm.vector_math.hyperbolic import cosh, sinh
from autotune.codegen.llvm.vector_math.instructions import FLOATS, VectorWriter
from autotune.codegen.llvm.vector_math.inverse import arctangent
from autotune.codegen.llvm.vector_math.log import log, log1p, log2, log10
from autotune.codegen.llvm.vector_math.parts import (
    LN2,
    LN2_PARTS,
    LOG2_E,
    exp_kernel,
    exp_range,
    fast_two_sum,
    reduce_below,
    reduce_by_ln2,
)
from autotune.codegen.llvm.vector_math.pow import power
from autotune.codegen.llvm.vector_math.trigonometry import cosine, sine, tangent
from autotune.target import Target

__all__ = ["BINARY_FUNCTIONS", "FUNCTIONS", "MathFunction", "has_avx512", "math_function"]


@dataclass(frozen=True)
class MathFunction:
    """One function's definition.

    `symbol` is its name without the "@"; `ir` the whole `define`; `needs` the lines (declarations and
    constant tables) that the module must hold once each.
    """

    symbol: str
    ir: str
    needs: tuple[str, ...]


_OCTAVE: Final = tuple(2.0 ** (j / 16) for j in range(16))


def _exp_of_clamped(w: VectorWriter, x: str) -> str:
    by_table = w.fmt.dtype == "float32" and w.has_tables(len(_OCTAVE))
    return _exp_by_table(w, x) if by_table else _exp_by_polynomial(w, x)


def _exp_by_polynomial(w: VectorWriter, x: str) -> str:
    n, k, r = reduce_by_ln2(w, x)
    return scale(w, w.add(exp_kernel(w, r), w.const(1.0)), n, k)


def _exp_by_table(w: VectorWriter, x: str) -> str:
    """Return 2**n * exp(r) of float32 for a multiple n of 1/16: a power of two, an entry of the table, a
    short polynomial.

    No entry is further than 0.46 ulp from the exact root, so that the result is within 1 ulp (Tang 1989).
    """
    n, j = round_to_steps(w, x, LOG2_E, len(_OCTAVE))
    # The products of n and ln 2 in 24 bits leave a difference from x that float32 holds exactly.
    high = w.fmt.rounded(LN2)
    r = w.fma(n, w.const(high - LN2), w.fma(n, w.const(-high), x))
    excess = w.fma(w.mul(r, r), polynomial(w, r, EXP_NARROW), r)
    root = w.lookup(j, _OCTAVE)
    return w.native_instruction("scalef", w.fma(root, excess, root), n)  # which rounds n down


def _exp_nonpositive(w: VectorWriter, x: str) -> str:
    """Return exp(x) for x <= 0; at the lower limit the power of two is 0."""
    if w.native:
        return _exp_of_clamped(w, at_least(w, x, exp_range(w)[0]))
    return _exp_below(w, at_least(w, x, -w.fmt.bias * LN2))


def _exp_below(w: VectorWriter, x: str) -> str:
    """Return exp(x) for x from the logarithm of the smallest normal number to 0, by one power of two instead of two."""
    power, r = reduce_below(w, x)
    return w.fma(exp_kernel(w, r), power, power)


def _exp(w: VectorWriter, x: str) -> str:
    return _exp_of_clamped(w, clamp(w, x, *exp_range(w)))


def _inverse(w: VectorWriter, high: str, low: str) -> str:
    """Return 1/(high + low) with one Newton step, so that the result is nearly correctly rounded."""
    one = w.const(1.0)
    quotient = rough_reciprocal(w, high)
    residual = w.fma(w.neg(quotient), low, w.fma(w.neg(quotient), high, one))
    return w.fma(quotient, residual, quotient)


def _sigmoid(w: VectorWriter, x: str) -> str:
    """Return 1/(1+z) or z/(1+z) with z = exp(-|x|), so that neither side overflows or cancels.

    An error of z just above a power of two counts twice in z/(1+z) below it, which is too much for the table's.
    """
    low, _ = exp_range(w)
    z = _exp_by_polynomial(w, at_least(w, w.neg(w.fabs(x)), low))
    inverse = _inverse(w, *fast_two_sum(w, w.const(1.0), z))
    return w.select(w.compare("olt", x, w.const(0.0)), w.mul(z, inverse), inverse)


def _tanh(w: VectorWriter, x: str) -> str:
    if w.fmt.dtype == "float64":
        return _tanh_wide(w, x)
    return _tanh_pieces(w, x) if w.has_tables(len(TANH_PIECES)) else _tanh_narrow(w, x)


def _tanh_pieces(w: VectorWriter, x: str) -> str:
    """Return tanh of float32 by the polynomial of the half octave that |x| is in."""
    size = w.fabs(x)
    most, least = w.const(9.02), w.const(0.046875)
    clamped = w.select(w.compare("ogt", size, most), most, size)
    place = w.select(w.compare("ogt", clamped, least), clamped, least)
    piece = w.integer("lshr", w.bits(place), w.int_const(w.fmt.mantissa - 1))
    center, *coefficients = (w.lookup(piece, column) for column in zip(*TANH_PIECES, strict=True))
    t = w.sub(clamped, center)
    return w.copysign(horner(w, t, coefficients), x)


def _tanh_narrow(w: VectorWriter, x: str) -> str:
    """Return tanh of float32: x + x**3*P(x**2) below the border, 1 - 1/(2**(y-1) + 1/2) with y = 2|x|/ln2 above.

    Above the border the error of the power of two enters weighted by at most 0.37, so y and the
    power need no second part.
    """
    size = w.fabs(x)
    most = w.const(10.0)
    clamped = w.select(w.compare("ogt", size, most), most, size)
    # The low bits of the ruler are the biased exponent of 2**(n-1).
    ruler = w.const(1.5 * 2.0**w.fmt.mantissa + w.fmt.bias - 1)
    factor = w.const(2.0 * LOG2_E)
    shifted = w.fma(clamped, factor, ruler)
    n = w.sub(shifted, ruler)
    power = w.from_bits(w.integer("shl", w.bits(shifted), w.int_const(w.fmt.mantissa)))
    fraction = w.fma(clamped, factor, w.neg(n))
    inverse = reciprocal(w, w.fma(power, polynomial(w, fraction, EXP2_NARROW), w.const(0.5)))
    large = w.sub(w.const(1.0), inverse)

    square = w.mul(x, x)
    small = w.fma(w.mul(size, square), polynomial(w, square, TANH_SMALL), size)
    magnitude = w.select(w.compare("olt", size, w.const(TANH_BORDER)), small, large)
    return w.copysign(magnitude, x)


def _tanh_wide(w: VectorWriter, x: str) -> str:
    """Return u/(u+2) with u = expm1(2*|x|) = 2**n * (exp(r)-1) + (2**n - 1); 1 past 20."""
    size = clamp(w, w.fabs(x), 0.0, 20.0)
    doubled = w.add(size, size)
    n, k = round_with_bits(w, doubled, LOG2_E)
    high, low = LN2_PARTS[w.fmt.dtype]
    leading, trailing = w.fma(n, w.const(-high), doubled), w.mul(n, w.const(-low))
    r = w.add(leading, trailing)
    r_low = w.add(w.sub(leading, r), trailing)
    biased = w.integer("add", k, w.int_const(w.fmt.bias))
    power = w.from_bits(w.integer("shl", biased, w.int_const(w.fmt.mantissa)))
    head = w.fma(power, r, w.sub(power, w.const(1.0)))
    rest = w.fma(w.mul(r, r), polynomial(w, r, EXP[w.fmt.dtype]), r_low)
    u = w.fma(power, rest, head)

    divisor = w.add(u, w.const(2.0))
    divisor_low = w.sub(u, w.sub(divisor, w.const(2.0)))
    inverse = rough_reciprocal(w, divisor)
    quotient = w.mul(u, inverse)
    negated = w.neg(quotient)
    residual = w.fma(negated, divisor_low, w.fma(negated, divisor, u))
    return w.copysign(w.fma(residual, inverse, quotient), x)


def _erf(w: VectorWriter, x: str) -> str:
    by_pieces = w.fmt.dtype == "float32" and w.has_tables(len(ERF_PIECES))
    return _erf_pieces(w, x) if by_pieces else _erf_parts(w, x)


def _erf_pieces(w: VectorWriter, x: str) -> str:
    """Return erf of float32 by the polynomial of the multiple of the step that is next to |x|; it is 1 from 4 on."""
    size, most = w.fabs(x), w.const(4.0)
    clamped = w.select(w.compare("ogt", size, most), most, size)
    n, piece = round_to_steps(w, clamped, 1.0 / ERF_STEP, 1)
    t = w.fma(n, w.const(-ERF_STEP), clamped)
    start, *coefficients = (w.lookup(piece, column) for column in zip(*ERF_PIECES, strict=True))
    # Around zero the result is rounded once, as t and a share of it.
    first = w.select(w.compare("oeq", n, w.const(0.0)), t, start)
    return w.copysign(w.fma(horner(w, t, coefficients), t, first), x)


def _erf_parts(w: VectorWriter, x: str) -> str:
    """Return x + x*P(x**2) inside [-1, 1], 1 - exp(-Q(|x|)) outside."""
    bound = {"float32": 4.0, "float64": 6.0}[w.fmt.dtype]
    size = w.fabs(x)
    small = w.fma(x, polynomial(w, w.mul(x, x), ERF_SMALL[w.fmt.dtype]), x)
    most = w.const(bound)
    capped = w.select(w.compare("ogt", size, most), most, size)
    log_erfc = w.neg(polynomial(w, capped, ERF_LARGE[w.fmt.dtype]))
    erfc = _exp_of_clamped(w, log_erfc) if w.native else _exp_below(w, log_erfc)
    large = w.copysign(w.sub(w.const(1.0), erfc), x)
    return w.select(w.compare("ole", size, w.const(1.0)), small, large)


def _rsqrt(w: VectorWriter, x: str) -> str:
    return reciprocal_root(w, x)


_UNARY: Final[Mapping[str, Callable[[VectorWriter, str], str]]] = {
    "exp": _exp,
    "exp_nonpositive": _exp_nonpositive,
    "log": log,
    "log1p": log1p,
    "log2": log2,
    "log10": log10,
    "sin": sine,
    "cos": cosine,
    "tan": tangent,
    "atan": arctangent,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
}


def has_avx512(target: Target) -> bool:
    """Return whether a target has the AVX-512 instructions that the functions may use."""
    return {"avx512f", "avx512vl"} <= set(target.features)


_BINARY: Final[Mapping[str, Callable[[VectorWriter, str, str], str]]] = {"pow": power, "fmod": remainder}

BINARY_FUNCTIONS: Final = tuple(_BINARY)
"""Those that take two arguments."""

FUNCTIONS: Final = (*_UNARY, *_BINARY)
"""The names that `math_function` knows; those that are not among `BINARY_FUNCTIONS` take one argument."""


@cache
def math_function(name: str, lanes: int, dtype: str, avx512: bool = False) -> MathFunction:
    """Return the definition of one function on vectors of `lanes` elements; 1 means a scalar.

    `dtype` is "float32" or "float64"; `avx512` says that the target has AVX-512F and VL. Raises
    KeyError for another dtype or a name that is not in `FUNCTIONS`, ValueError for `lanes` below one.

    >>> f = math_function("rsqrt", 1, "float32")
    >>> print(f.ir)
    define internal float @at_rsqrt_f32(float %x) alwaysinline nounwind {
      %t0 = call float @llvm.sqrt.f32(float %x)
      %t1 = fdiv float 0x3FF0000000000000, %t0
      ret float %t1
    }
    >>> f.needs
    ('declare float @llvm.sqrt.f32(float)',)
    """
    if lanes < 1:
        raise ValueError(f"lanes must be at least 1, got {lanes}")
    writer = VectorWriter(FLOATS[dtype], lanes, avx512=avx512)
    binary = _BINARY.get(name)
    result = _UNARY[name](writer, "%x") if binary is None else binary(writer, "%x", "%y")
    parameters = ("%x",) if binary is None else ("%x", "%y")
    shape = "" if lanes == 1 else f"v{lanes}"
    symbol = f"at_{name}_{shape}{writer.fmt.suffix}"
    arguments = ", ".join(f"{writer.floats} {parameter}" for parameter in parameters)
    head = f"define internal {writer.floats} @{symbol}({arguments}) alwaysinline nounwind {{"
    start = ["entry:"] if writer.body.block != "entry" else []
    lines = [head, *start, *writer.body.lines, f"  ret {writer.floats} {result}", "}"]
    return MathFunction(symbol, "\n".join(lines), tuple(sorted(writer.body.needs)))
