"""Logarithms on explicit vectors: natural, of 1 + x, and to the bases 2 and 10."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from math import inf, nan
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import polynomial, rough_reciprocal, split_exponent
from autotune.codegen.llvm.vector_math.fits import LOG_TAIL
from autotune.codegen.llvm.vector_math.instructions import VectorWriter
from autotune.codegen.llvm.vector_math.parts import LN2, LN2_PARTS, two_sum

__all__ = ["log", "log1p", "log2", "log10"]

Core = Callable[[VectorWriter, str], str]
"""A logarithm of positive normal numbers; of every number where the exponent is split natively."""


def log(w: VectorWriter, x: str) -> str:
    """Return the natural logarithm."""
    return _everywhere(w, x, _log_core, LN2)


def log1p(w: VectorWriter, x: str) -> str:
    """Return log(1 + x), with what rounding 1 + x left of it."""
    u, lost = two_sum(w, w.const(1.0), x)
    correction = w.select(w.compare("one", lost, w.const(0.0)), w.div(lost, u), w.const(0.0))
    return w.select(w.compare("oeq", u, w.const(1.0)), x, w.add(log(w, u), correction))


def log2(w: VectorWriter, x: str) -> str:
    """Return the logarithm to the base 2, exact for powers of two."""
    return _everywhere(w, x, lambda w, x: _to_base(w, x, 2), 1.0)


def log10(w: VectorWriter, x: str) -> str:
    """Return the logarithm to the base 10."""
    return _everywhere(w, x, lambda w, x: _to_base(w, x, 10), float(Decimal(2).log10()))


def _everywhere(w: VectorWriter, x: str, core: Core, of_two: float) -> str:
    """Return the logarithm of every number, given that of 2."""
    if w.native:
        return core(w, x)
    smallest_normal = 2.0 ** (1 - w.fmt.bias)
    lift = float(w.fmt.mantissa + 1)
    subnormal = w.compare("olt", x, w.const(smallest_normal))
    lifted = w.select(subnormal, w.mul(x, w.const(2.0**lift)), x)
    result = core(w, lifted)
    shifted = w.sub(result, w.const(lift * of_two))
    result = w.select(subnormal, shifted, result)
    result = w.select(w.compare("olt", x, w.const(inf)), result, x)  # +inf and NaN
    result = w.select(w.compare("olt", x, w.const(0.0)), w.const(nan), result)
    return w.select(w.compare("oeq", x, w.const(0.0)), w.const(-inf), result)


def _log_core(w: VectorWriter, x: str) -> str:
    """Return log(x) for positive normal x; for every x where the exponent is split natively."""
    high, low = LN2_PARTS[w.fmt.dtype]
    m, e = split_exponent(w, x)
    f = w.sub(m, w.const(1.0))
    if w.fmt.dtype == "float32":
        half_square = w.mul(w.mul(f, f), w.const(0.5))
        tail = polynomial(w, f, LOG_TAIL["float32"])
        cube = w.mul(w.mul(f, f), f)
        small = w.sub(w.fma(e, w.const(low), w.mul(cube, tail)), half_square)
        return w.fma(e, w.const(high), w.add(f, small))
    # log(1+f) = 2s + s*R(s**2) = f - s*(f - R(s**2)), s = f/(2+f): a form of msun's e_log.c.
    s = _quotient(w, f, w.add(f, w.const(2.0)))
    square = w.mul(s, s)
    rest = w.fma(w.neg(square), polynomial(w, square, LOG_TAIL["float64"]), f)
    correction = w.fma(e, w.const(-low), w.mul(s, rest))
    return w.fma(e, w.const(high), w.sub(f, correction))


def _quotient(w: VectorWriter, a: str, b: str) -> str:
    """Return a/b, for b whose inverse is a normal number."""
    if not w.native:
        return w.div(a, b)
    inverse = rough_reciprocal(w, b)
    quotient = w.mul(a, inverse)
    return w.fma(w.fma(w.neg(quotient), b, a), inverse, quotient)


_SPARE: Final = {"float32": 9, "float64": 12}
"""Bits of an exponent, with its sign."""


@cache
def _base(dtype: str, base: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return 1/ln(base) and ln(2)/ln(base) in two parts each; the latter's first one times an exponent is exact."""
    digits = {"float32": 24, "float64": 53}[dtype]
    with localcontext(prec=50):
        scale = 1 / Decimal(base).ln()
        return _parts(scale, digits), _parts(scale * Decimal(2).ln(), digits - _SPARE[dtype])


def _parts(number: Decimal, digits: int) -> tuple[float, float]:
    """Return a number below 2 as a first part of so many bits, and the rest."""
    unit = Decimal(2) ** (1 - digits)
    head = (number / unit).to_integral_value() * unit
    return float(head), float(number - head)


def _to_base(w: VectorWriter, x: str, base: int) -> str:
    (scale, scale_low), (unit, unit_low) = _base(w.fmt.dtype, base)
    m, e = split_exponent(w, x)
    f = w.sub(m, w.const(1.0))
    rest = _log1p_rest(w, f)
    low = w.fma(rest, w.const(scale), w.fma(f, w.const(scale_low), w.mul(e, w.const(unit_low))))
    result = w.fma(e, w.const(unit), w.fma(f, w.const(scale), low))
    if not w.native:
        return result
    # The exponent of 0 and of infinity, whose products with parts are no number; m is NaN for negative x.
    return w.select(w.compare("oeq", w.fabs(e), w.const(inf)), w.mul(e, m), result)


def _log1p_rest(w: VectorWriter, f: str) -> str:
    """Return log(1 + f) - f for 1 + f from sqrt(1/2) to sqrt(2)."""
    if w.fmt.dtype == "float32":
        square = w.mul(f, f)
        tail = polynomial(w, f, LOG_TAIL["float32"])
        return w.fma(w.mul(square, f), tail, w.mul(square, w.const(-0.5)))
    s = _quotient(w, f, w.add(f, w.const(2.0)))
    square = w.mul(s, s)
    return w.neg(w.mul(s, w.fma(w.neg(square), polynomial(w, square, LOG_TAIL["float64"]), f)))
