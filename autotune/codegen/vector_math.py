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
from dataclasses import dataclass, replace
from functools import cache
from math import inf, nan
from typing import Final

from autotune.codegen.vector_math_fits import (
    ATANH_TAIL,
    ERF_LARGE,
    ERF_SMALL,
    EXP,
    EXP2_NARROW,
    LOG2_WIDE,
    LOG_TAIL,
    TANH_BORDER,
    TANH_SMALL,
)
from autotune.codegen.vector_math_ir import FLOATS, VectorWriter
from autotune.target import Target

__all__ = ["FUNCTIONS", "MathFunction", "has_avx512", "math_function"]

_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
# ln 2 as a leading part whose products with an exponent are exact, and the rest of it.
_LN2_PARTS: Final = {
    "float32": (float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")),
    "float64": (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
# Beyond these exp is 0 or infinite.
_EXP_RANGE: Final = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}


@dataclass(frozen=True)
class MathFunction:
    """One function's definition.

    `symbol` is its name without the "@"; `ir` the whole `define`; `needs` the `declare` lines that
    the module must hold once each.
    """

    symbol: str
    ir: str
    needs: tuple[str, ...]


def _two_product(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    high = w.mul(a, b)
    return high, w.fma(a, b, w.neg(high))


def _fast_two_sum(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """a + b exactly, for |a| >= |b| (Dekker 1971)."""
    high = w.add(a, b)
    return high, w.add(w.sub(a, high), b)


def _exp_kernel(w: VectorWriter, r: str) -> str:
    """exp(r) - 1 for |r| <= ln2/2."""
    tail = w.polynomial(r, EXP[w.fmt.dtype])
    return w.fma(w.mul(r, r), tail, r)


def _reduce_by_ln2(w: VectorWriter, x: str) -> tuple[str, str, str]:
    """(n, k, r) with x = n*ln2 + r, |r| <= ln2/2; n and k are the same integer."""
    high, low = _LN2_PARTS[w.fmt.dtype]
    n, k = w.round_with_bits(x, _LOG2_E)
    r = w.fma(n, w.const(-low), w.fma(n, w.const(-high), x))
    return n, k, r


def _exp_of_clamped(w: VectorWriter, x: str) -> str:
    n, k, r = _reduce_by_ln2(w, x)
    return w.scale(w.add(_exp_kernel(w, r), w.const(1.0)), n, k)


def _exp(w: VectorWriter, x: str) -> str:
    return _exp_of_clamped(w, w.clamp(x, *_EXP_RANGE[w.fmt.dtype]))


def _inverse(w: VectorWriter, high: str, low: str) -> str:
    """1/(high + low) with one Newton step, so that the result is nearly correctly rounded."""
    one = w.const(1.0)
    quotient = w.reciprocal(high)
    residual = w.fma(w.neg(quotient), low, w.fma(w.neg(quotient), high, one))
    return w.fma(quotient, residual, quotient)


def _sigmoid(w: VectorWriter, x: str) -> str:
    """1/(1+z) or z/(1+z) with z = exp(-|x|), so that neither side overflows or cancels."""
    low, _ = _EXP_RANGE[w.fmt.dtype]
    z = _exp_of_clamped(w, w.clamp(w.neg(w.fabs(x)), low, 0.0))
    inverse = _inverse(w, *_fast_two_sum(w, w.const(1.0), z))
    return w.select(w.compare("olt", x, w.const(0.0)), w.mul(z, inverse), inverse)


def _tanh(w: VectorWriter, x: str) -> str:
    return _tanh_narrow(w, x) if w.fmt.dtype == "float32" else _tanh_wide(w, x)


def _tanh_narrow(w: VectorWriter, x: str) -> str:
    """tanh of float32: x + x**3*P(x**2) below the border, 1 - 1/(2**(y-1) + 1/2) with y = 2|x|/ln2 above.

    Above the border the error of the power of two enters weighted by at most 0.37, so y and the
    power need no second part.
    """
    size = w.fabs(x)
    most = w.const(10.0)
    clamped = w.select(w.compare("ogt", size, most), most, size)
    # The low bits of the ruler are the biased exponent of 2**(n-1).
    ruler = w.const(1.5 * 2.0**w.fmt.mantissa + w.fmt.bias - 1)
    factor = w.const(2.0 * _LOG2_E)
    shifted = w.fma(clamped, factor, ruler)
    n = w.sub(shifted, ruler)
    power = w.from_bits(w.integer("shl", w.bits(shifted), w.int_const(w.fmt.mantissa)))
    fraction = w.fma(clamped, factor, w.neg(n))
    inverse = w.reciprocal(w.fma(power, w.polynomial(fraction, EXP2_NARROW), w.const(0.5)))
    large = w.sub(w.const(1.0), inverse)

    square = w.mul(x, x)
    small = w.fma(w.mul(size, square), w.polynomial(square, TANH_SMALL), size)
    magnitude = w.select(w.compare("olt", size, w.const(TANH_BORDER)), small, large)
    return w.copysign(magnitude, x)


def _tanh_wide(w: VectorWriter, x: str) -> str:
    """u/(u+2) with u = expm1(2*|x|) = 2**n * (exp(r)-1) + (2**n - 1); 1 past 20."""
    size = w.clamp(w.fabs(x), 0.0, 20.0)
    doubled = w.add(size, size)
    n, k = w.round_with_bits(doubled, _LOG2_E)
    high, low = _LN2_PARTS[w.fmt.dtype]
    leading, trailing = w.fma(n, w.const(-high), doubled), w.mul(n, w.const(-low))
    r = w.add(leading, trailing)
    r_low = w.add(w.sub(leading, r), trailing)
    biased = w.integer("add", k, w.int_const(w.fmt.bias))
    power = w.from_bits(w.integer("shl", biased, w.int_const(w.fmt.mantissa)))
    head = w.fma(power, r, w.sub(power, w.const(1.0)))
    rest = w.fma(w.mul(r, r), w.polynomial(r, EXP[w.fmt.dtype]), r_low)
    u = w.fma(power, rest, head)

    divisor = w.add(u, w.const(2.0))
    divisor_low = w.sub(u, w.sub(divisor, w.const(2.0)))
    inverse = w.reciprocal(divisor)
    quotient = w.mul(u, inverse)
    negated = w.neg(quotient)
    residual = w.fma(negated, divisor_low, w.fma(negated, divisor, u))
    return w.copysign(w.fma(residual, inverse, quotient), x)


def _log_core(w: VectorWriter, x: str) -> str:
    """log(x) for positive normal x; for every x where the exponent is split natively."""
    high, low = _LN2_PARTS[w.fmt.dtype]
    m, e = w.split_exponent(x)
    f = w.sub(m, w.const(1.0))
    half_square = w.mul(w.mul(f, f), w.const(0.5))
    if w.fmt.dtype == "float32":
        tail = w.polynomial(f, LOG_TAIL["float32"])
        cube = w.mul(w.mul(f, f), f)
        small = w.sub(w.fma(e, w.const(low), w.mul(cube, tail)), half_square)
        return w.fma(e, w.const(high), w.add(f, small))
    # log(1+f) = f - f**2/2 + s*(f**2/2 + R(s**2)), s = f/(2+f): the form of msun's e_log.c.
    s = _quotient(w, f, w.add(f, w.const(2.0)))
    square = w.mul(s, s)
    tail = w.mul(square, w.polynomial(square, LOG_TAIL["float64"]))
    correction = w.fma(e, w.const(low), w.mul(s, w.add(half_square, tail)))
    return w.fma(e, w.const(high), w.sub(f, w.sub(half_square, correction)))


def _quotient(w: VectorWriter, a: str, b: str) -> str:
    """a/b, for b whose inverse is a normal number."""
    if not w.native:
        return w.div(a, b)
    inverse = w.reciprocal(b)
    quotient = w.mul(a, inverse)
    return w.fma(w.fma(w.neg(quotient), b, a), inverse, quotient)


def _log(w: VectorWriter, x: str) -> str:
    if w.native:
        return _log_core(w, x)
    smallest_normal = 2.0 ** (1 - w.fmt.bias)
    lift = float(w.fmt.mantissa + 1)
    subnormal = w.compare("olt", x, w.const(smallest_normal))
    lifted = w.select(subnormal, w.mul(x, w.const(2.0**lift)), x)
    result = _log_core(w, lifted)
    shifted = w.sub(result, w.const(lift * _LN2))
    result = w.select(subnormal, shifted, result)
    result = w.select(w.compare("olt", x, w.const(inf)), result, x)  # +inf and NaN
    result = w.select(w.compare("olt", x, w.const(0.0)), w.const(nan), result)
    return w.select(w.compare("oeq", x, w.const(0.0)), w.const(-inf), result)


def _erf(w: VectorWriter, x: str) -> str:
    """x + x*P(x**2) inside [-1, 1], 1 - exp(-Q(|x|)) outside."""
    bound = {"float32": 4.0, "float64": 6.0}[w.fmt.dtype]
    size = w.fabs(x)
    small = w.fma(x, w.polynomial(w.mul(x, x), ERF_SMALL[w.fmt.dtype]), x)
    log_erfc = w.neg(w.polynomial(w.clamp(size, 0.0, bound), ERF_LARGE[w.fmt.dtype]))
    large = w.copysign(w.sub(w.const(1.0), _exp_of_clamped(w, log_erfc)), x)
    return w.select(w.compare("ole", size, w.const(1.0)), small, large)


def _rsqrt(w: VectorWriter, x: str) -> str:
    return w.reciprocal_root(x)


def _scaled_log2(w: VectorWriter, size: str, y: str) -> tuple[str, str]:
    """(n, r) with y*log2(size) = n + r, |r| <= 1/2, n an integer; in float64 up to that split."""
    d = w.wide()
    if w.native and not d.native:  # float64 takes two registers: one after the other
        half = replace(w, lanes=w.lanes // 2)
        (n_low, r_low), (n_high, r_high) = (
            _scaled_log2(half, a, b) for a, b in zip(w.halves(size), w.halves(y), strict=True)
        )
        return w.joined(n_low, n_high), w.joined(r_low, r_high)
    m, e = d.split_exponent(d.extend_from(w, size))
    f = d.sub(m, d.const(1.0))
    log2 = d.fma(f, d.polynomial(f, LOG2_WIDE), e)
    z = d.clamp(d.mul(d.extend_from(w, y), log2), -160.0, 130.0)
    n, _ = d.round_with_bits(z, 1.0)
    return w.truncate(n), w.truncate(d.sub(z, n))


def _pow_magnitude_wide(w: VectorWriter, x: str, y: str) -> str:
    """|x|**y of float32, for finite x != 0; where the split is native for all but |x|**y = 1."""
    n, r = _scaled_log2(w, w.fabs(x), y)
    _, k = w.round_with_bits(n, 1.0)
    result = w.scale(w.polynomial(r, EXP2_NARROW), n, k)
    return result if w.wide().native or w.native else _with_extremes(w, x, y, result)


def _log_double(w: VectorWriter, x: str) -> tuple[str, str]:
    """log(x) as an unevaluated sum of two float64, about 2**-62 relative, for positive normal x.

    log(m) = 2s + s**3 * (2/3 + s**2*T(s**2)), s = (m-1)/(m+1), with s, s**3 and 2/3 as sums of two.
    """
    high, low = _LN2_PARTS["float64"]
    m, e = w.split_exponent(x)
    numerator = w.sub(m, w.const(1.0))
    denominator = w.add(m, w.const(1.0))
    rest = w.sub(m, w.sub(denominator, w.const(1.0)))
    inverse = w.reciprocal(denominator)
    s = w.mul(numerator, inverse)
    remainder = w.fma(w.neg(s), denominator, numerator)
    s_low = w.mul(w.fma(w.neg(s), rest, remainder), inverse)

    square, square_low = _two_product(w, s, s)
    square_low = w.fma(w.add(s, s), s_low, square_low)
    cube, cube_low = _two_product(w, square, s)
    cube_low = w.fma(square, s_low, w.fma(square_low, s, cube_low))

    third = 2.0 / 3.0
    third_low = float.fromhex("0x1.5555555555555p-55")  # 2/3 - float64(2/3)
    tail = w.fma(w.polynomial(square, ATANH_TAIL), square, w.const(third_low))
    factor, factor_low = _fast_two_sum(w, w.const(third), tail)
    term, term_low = _two_product(w, cube, factor)
    term_low = w.fma(cube, factor_low, w.fma(cube_low, factor, term_low))

    main, main_low = _fast_two_sum(w, w.mul(e, w.const(high)), w.add(s, s))
    total, total_low = _fast_two_sum(w, main, term)
    smalls = w.add(w.add(s_low, s_low), w.fma(e, w.const(low), term_low))
    return _fast_two_sum(w, total, w.add(w.add(total_low, main_low), smalls))


def _pow_magnitude_double(w: VectorWriter, x: str, y: str) -> str:
    """|x|**y of float64: exp of the two-part product y*log|x|."""
    high, low = _log_of_size(w, w.fabs(x))
    product, product_low = _two_product(w, high, y)
    product_low = w.fma(low, y, product_low)
    in_range = w.compare("olt", w.fabs(product), w.const(1000.0))
    product_low = w.select(in_range, product_low, w.const(0.0))
    z = w.clamp(product, *_EXP_RANGE["float64"])
    n, k, r = _reduce_by_ln2(w, z)
    result = w.scale(w.add(_exp_kernel(w, w.add(r, product_low)), w.const(1.0)), n, k)
    return _with_extremes(w, x, y, result)


def _log_of_size(w: VectorWriter, size: str) -> tuple[str, str]:
    """`_log_double` of subnormal numbers too, which only the native split knows by itself."""
    if w.native:
        return _log_double(w, size)
    subnormal = w.compare("olt", size, w.const(2.0**-1022))
    lifted = w.select(subnormal, w.mul(size, w.const(2.0**54)), size)
    high, low = _log_double(w, lifted)
    shift = w.select(subnormal, w.const(54 * _LN2_PARTS["float64"][0]), w.const(0.0))
    shift_low = w.select(subnormal, w.const(54 * _LN2_PARTS["float64"][1]), w.const(0.0))
    high, carried = _fast_two_sum(w, w.sub(high, shift), w.const(0.0))
    return high, w.add(carried, w.sub(low, shift_low))


def _with_extremes(w: VectorWriter, x: str, y: str, result: str) -> str:
    """`result`, but 0 or inf where |x| is 0 or inf or y is infinite, and NaN where an argument is."""
    zero, infinite = w.const(0.0), w.const(inf)
    size = w.fabs(x)
    grows = w.logical("xor", w.compare("olt", size, w.const(1.0)), w.compare("ogt", y, zero))
    is_extreme = w.logical(
        "or",
        w.logical("or", w.compare("oeq", size, zero), w.compare("oeq", size, infinite)),
        w.compare("oeq", w.fabs(y), infinite),
    )
    result = w.select(is_extreme, w.select(grows, infinite, zero), result)
    return w.select(w.compare("uno", x, y), w.const(nan), result)


def _pow(w: VectorWriter, x: str, y: str) -> str:
    """pow with the special cases of C99 annex F.9.4.4, |x|**y times a sign."""
    one = w.const(1.0)
    magnitude = {"float32": _pow_magnitude_wide, "float64": _pow_magnitude_double}[w.fmt.dtype]
    size = w.fabs(x)
    unit = w.logical("or", w.compare("oeq", size, one), w.compare("oeq", y, w.const(0.0)))
    result = w.select(unit, one, magnitude(w, x, y))

    # A negative x: odd integers y keep the sign, fractions and NaN have no real value.
    half = w.mul(y, w.const(0.5))
    whole = w.floor(y)
    is_integer = w.compare("oeq", whole, y)
    is_odd = w.logical("and", is_integer, w.compare("une", w.floor(half), half))
    result = w.select(is_odd, w.copysign(result, x), result)
    finite_negative = w.logical("and", w.compare("olt", x, w.const(0.0)), w.compare("ogt", x, w.const(-inf)))
    fraction = w.logical("and", finite_negative, w.compare("une", whole, y))
    return w.select(fraction, w.const(nan), result)


_UNARY: Final[Mapping[str, Callable[[VectorWriter, str], str]]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
}


def has_avx512(target: Target) -> bool:
    """Whether a target has the AVX-512 instructions that the functions may use."""
    return {"avx512f", "avx512vl"} <= set(target.features)


FUNCTIONS: Final = (*_UNARY, "pow")
"""The names that `math_function` knows; pow takes two arguments, the others one."""


@cache
def math_function(name: str, lanes: int, dtype: str, avx512: bool = False) -> MathFunction:
    """The definition of one function on vectors of `lanes` elements; 1 means a scalar.

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
    binary = name == "pow"
    result = _pow(writer, "%x", "%y") if binary else _UNARY[name](writer, "%x")
    parameters = ("%x", "%y") if binary else ("%x",)
    shape = "" if lanes == 1 else f"v{lanes}"
    symbol = f"at_{name}_{shape}{writer.fmt.suffix}"
    arguments = ", ".join(f"{writer.floats} {parameter}" for parameter in parameters)
    head = f"define internal {writer.floats} @{symbol}({arguments}) alwaysinline nounwind {{"
    lines = [head, *writer.body.lines, f"  ret {writer.floats} {result}", "}"]
    return MathFunction(symbol, "\n".join(lines), tuple(sorted(writer.body.needs)))
