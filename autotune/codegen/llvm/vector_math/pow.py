"""pow on explicit vectors: the logarithm to more digits than the type has, times y, then a power of two.

The logarithm is an unevaluated sum of two (Dekker 1971), by a table where that fits into registers; elsewhere float32
takes it in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cache
from math import inf, nan
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import (
    clamp,
    polynomial,
    reciprocal,
    round_with_bits,
    scale,
    split_around_one,
    split_exponent,
    unusual,
)
from autotune.codegen.llvm.vector_math.fits import ATANH_TAIL, EXP2_NARROW, LOG1P_TAIL, LOG2_WIDE
from autotune.codegen.llvm.vector_math.instructions import FLOATS, VectorWriter
from autotune.codegen.llvm.vector_math.parts import (
    LN2,
    LN2_PARTS,
    exp_kernel,
    exp_range,
    fast_two_sum,
    reduce_by_ln2,
    two_product,
)

__all__ = ["power"]


_PIECE_BITS: Final = {"float32": 5, "float64": 4}
"""[3/4, 3/2) is cut into pieces, which these first bits of the fraction number: from 1 to 3/2, then from 3/4 to 1."""


@dataclass(frozen=True)
class _Pieces:
    """For each piece about 1/m, and minus its log2 in two parts: sums of the first and an exponent are exact."""

    inverses: tuple[float, ...]
    logs: tuple[float, ...]
    logs_low: tuple[float, ...]
    log2_e: tuple[float, float]


@cache
def _pieces(dtype: str) -> _Pieces:
    bits = _PIECE_BITS[dtype]
    unit = {"float32": 2.0**-15, "float64": 2.0**-40}[dtype]
    inverses = tuple(_inverse(index, bits) for index in range(1 << bits))
    with localcontext(prec=40):
        one = 1 / Decimal(2).ln()
        high = FLOATS[dtype].rounded(float(one))
        exact = [-Decimal(inverse).ln() * one for inverse in inverses]
        logs = [round(float(log) / unit) * unit for log in exact]
        low = [float(log - Decimal(head)) for log, head in zip(exact, logs, strict=True)]
        return _Pieces(inverses, tuple(logs), tuple(low), (high, float(one - Decimal(high))))


def _inverse(index: int, bits: int) -> float:
    """Return the about 1/m in a piece: so short that m/c - 1 has no more bits than m, and 1 where log m
    comes near 0."""
    pieces = 1 << bits
    scale = 1.0 if index < pieces // 2 else 0.5
    begin, end = scale * (1 + index / pieces), scale * (1 + (index + 1) / pieces)
    if 1.0 in (begin, end):
        return 1.0
    unit = 0.5 / (scale * pieces)
    middle = 2 / (begin + end)
    near = [(middle // unit + n) * unit for n in (0, 1)]
    return min(near, key=lambda inverse: max(abs(begin * inverse - 1), abs(end * inverse - 1)))


def _log2_by_table(w: VectorWriter, size: str) -> tuple[str, str]:
    """Return log2(size) as a sum of two, some ten bits more than the type has: log2(c) + log1p(r)/ln 2,
    r = size/c - 1."""
    table = _pieces(w.fmt.dtype)
    m, e = split_around_one(w, size)
    piece = w.integer("lshr", w.bits(m), w.int_const(w.fmt.mantissa - _PIECE_BITS[w.fmt.dtype]))
    r = w.fma(m, w.lookup(piece, table.inverses), w.const(-1.0))
    minus_half = w.mul(r, w.const(-0.5))
    u = w.fma(minus_half, r, r)  # log1p(r) = u + u_low
    u_low = w.fma(minus_half, r, w.sub(r, u))
    u_low = w.fma(w.mul(w.mul(r, r), r), polynomial(w, r, LOG1P_TAIL[w.fmt.dtype]), u_low)
    factor, factor_low = (w.const(part) for part in table.log2_e)
    scaled, scaled_low = two_product(w, u, factor)
    scaled_low = w.fma(u_low, factor, w.fma(u, factor_low, scaled_low))
    high, low = fast_two_sum(w, w.add(e, w.lookup(piece, table.logs)), scaled)
    return high, w.add(low, w.add(scaled_low, w.lookup(piece, table.logs_low)))


def _pow_magnitude_by_table(w: VectorWriter, size: str, y: str) -> str:
    """Return |x|**y = 2**(y*log2|x|), for finite x != 0 and finite y."""
    high, low = _log2_by_table(w, size)
    product, product_low = two_product(w, high, y)
    product_low = w.fma(low, y, product_low)
    z = clamp(w, product, -5.0 * (w.fmt.bias + 1), w.fmt.bias + 3.0)
    n, k = round_with_bits(w, z, 1.0)
    r = w.sub(z, n)
    r = w.select(w.compare("oeq", z, product), w.add(r, product_low), r)
    if w.fmt.dtype == "float32":
        return scale(w, polynomial(w, r, EXP2_NARROW), n, k)
    return scale(w, w.add(exp_kernel(w, w.mul(r, w.const(LN2))), w.const(1.0)), n, k)


def _scaled_log2(w: VectorWriter, size: str, y: str) -> tuple[str, str]:
    """Return (n, r) with y*log2(size) = n + r, |r| <= 1/2, n an integer; in float64 up to that split."""
    d = w.wide()
    if w.native and not d.native:  # float64 takes two registers: one after the other
        half = replace(w, lanes=w.lanes // 2)
        (n_low, r_low), (n_high, r_high) = (
            _scaled_log2(half, a, b) for a, b in zip(w.halves(size), w.halves(y), strict=True)
        )
        return w.joined(n_low, n_high), w.joined(r_low, r_high)
    m, e = split_exponent(d, d.extend_from(w, size))
    f = d.sub(m, d.const(1.0))
    log2 = d.fma(f, polynomial(d, f, LOG2_WIDE), e)
    z = clamp(d, d.mul(d.extend_from(w, y), log2), -160.0, 130.0)
    n, _ = round_with_bits(d, z, 1.0)
    return w.truncate(n), w.truncate(d.sub(z, n))


def _pow_magnitude_wide(w: VectorWriter, size: str, y: str) -> str:
    """Return |x|**y of float32, the logarithm in float64, for finite x != 0 and finite y."""
    n, r = _scaled_log2(w, size, y)
    _, k = round_with_bits(w, n, 1.0)
    return scale(w, polynomial(w, r, EXP2_NARROW), n, k)


def _log_double(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return log(x) as an unevaluated sum of two float64, about 2**-62 relative, for positive normal x.

    log(m) = 2s + s**3 * (2/3 + s**2*T(s**2)), s = (m-1)/(m+1), with s, s**3 and 2/3 as sums of two.
    """
    high, low = LN2_PARTS["float64"]
    m, e = split_exponent(w, x)
    numerator = w.sub(m, w.const(1.0))
    denominator = w.add(m, w.const(1.0))
    rest = w.sub(m, w.sub(denominator, w.const(1.0)))
    inverse = reciprocal(w, denominator)
    s = w.mul(numerator, inverse)
    remainder = w.fma(w.neg(s), denominator, numerator)
    s_low = w.mul(w.fma(w.neg(s), rest, remainder), inverse)

    square, square_low = two_product(w, s, s)
    square_low = w.fma(w.add(s, s), s_low, square_low)
    cube, cube_low = two_product(w, square, s)
    cube_low = w.fma(square, s_low, w.fma(square_low, s, cube_low))

    third = 2.0 / 3.0
    third_low = float.fromhex("0x1.5555555555555p-55")  # 2/3 - float64(2/3)
    tail = w.fma(polynomial(w, square, ATANH_TAIL), square, w.const(third_low))
    factor, factor_low = fast_two_sum(w, w.const(third), tail)
    term, term_low = two_product(w, cube, factor)
    term_low = w.fma(cube, factor_low, w.fma(cube_low, factor, term_low))

    main, main_low = fast_two_sum(w, w.mul(e, w.const(high)), w.add(s, s))
    total, total_low = fast_two_sum(w, main, term)
    smalls = w.add(w.add(s_low, s_low), w.fma(e, w.const(low), term_low))
    return fast_two_sum(w, total, w.add(w.add(total_low, main_low), smalls))


def _pow_magnitude_double(w: VectorWriter, size: str, y: str) -> str:
    """Return |x|**y of float64 for finite x != 0 and finite y: exp of the two-part product y*log|x|."""
    high, low = _log_of_size(w, size)
    product, product_low = two_product(w, high, y)
    product_low = w.fma(low, y, product_low)
    in_range = w.compare("olt", w.fabs(product), w.const(1000.0))
    product_low = w.select(in_range, product_low, w.const(0.0))
    z = clamp(w, product, *exp_range(w))
    n, k, r = reduce_by_ln2(w, z)
    return scale(w, w.add(exp_kernel(w, w.add(r, product_low)), w.const(1.0)), n, k)


def _log_of_size(w: VectorWriter, size: str) -> tuple[str, str]:
    """Return `_log_double` of subnormal numbers too, which only the native split knows by itself."""
    if w.native:
        return _log_double(w, size)
    subnormal = w.compare("olt", size, w.const(2.0**-1022))
    lifted = w.select(subnormal, w.mul(size, w.const(2.0**54)), size)
    high, low = _log_double(w, lifted)
    shift = w.select(subnormal, w.const(54 * LN2_PARTS["float64"][0]), w.const(0.0))
    shift_low = w.select(subnormal, w.const(54 * LN2_PARTS["float64"][1]), w.const(0.0))
    high, carried = fast_two_sum(w, w.sub(high, shift), w.const(0.0))
    return high, w.add(carried, w.sub(low, shift_low))


def _with_extremes(w: VectorWriter, x: str, y: str, result: str) -> str:
    """Return `result`, but 0 or inf where |x| is 0 or inf or y is infinite, and NaN where an argument is."""
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


def power(w: VectorWriter, x: str, y: str) -> str:
    """Return x**y with the special cases of C99 annex F.9.4.4; they are looked at only where a lane is one."""
    magnitude = {"float32": _pow_magnitude_wide, "float64": _pow_magnitude_double}[w.fmt.dtype]
    if w.has_tables(1 << _PIECE_BITS[w.fmt.dtype]):
        magnitude = _pow_magnitude_by_table
    result = magnitude(w, w.fabs(x), y)
    return w.corrected_where(unusual(w, x, y), result, lambda value: _special(w, x, y, value))


def _special(w: VectorWriter, x: str, y: str, magnitude: str) -> str:
    """Return x**y for all x and y, from |x|**y where that is an ordinary number."""
    one = w.const(1.0)
    result = _with_extremes(w, x, y, magnitude)
    unit = w.logical("or", w.compare("oeq", w.fabs(x), one), w.compare("oeq", y, w.const(0.0)))
    result = w.select(unit, one, result)

    # A negative x: odd integers y keep the sign, fractions and NaN have no real value.
    half = w.mul(y, w.const(0.5))
    whole = w.floor(y)
    is_integer = w.compare("oeq", whole, y)
    is_odd = w.logical("and", is_integer, w.compare("une", w.floor(half), half))
    result = w.select(is_odd, w.copysign(result, x), result)
    finite_negative = w.logical("and", w.compare("olt", x, w.const(0.0)), w.compare("ogt", x, w.const(-inf)))
    fraction = w.logical("and", finite_negative, w.compare("une", whole, y))
    return w.select(fraction, w.const(nan), result)
