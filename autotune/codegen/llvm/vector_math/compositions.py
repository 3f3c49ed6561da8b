"""Short compositions of instructions, which the vector functions are built of."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from autotune.codegen.llvm.vector_math.instructions import VectorWriter

__all__ = [
    "at_least",
    "clamp",
    "horner",
    "polynomial",
    "reciprocal",
    "reciprocal_root",
    "rough_reciprocal",
    "round_to_steps",
    "round_with_bits",
    "scale",
    "split_around_one",
    "split_exponent",
    "unusual",
]


def unusual(w: VectorWriter, x: str, y: str) -> str:
    """Return where x is not positive and finite, or y not finite; x may be subnormal."""
    infinite = w.fmt.pattern(inf)
    # The patterns of such x, less one, are from 0 to below infinity's less one, taken as unsigned.
    below = w.integer("sub", w.bits(x), w.int_const(1))
    doubled = w.integer("shl", w.bits(y), w.int_const(1))
    return w.logical("or", _unsigned_from(w, below, infinite - 1), _unsigned_from(w, doubled, 2 * infinite))


def _unsigned_from(w: VectorWriter, a: str, least: int) -> str:
    return w.append(f"icmp uge {w.integers} {a}, {w.int_const(least)}")


def clamp(w: VectorWriter, a: str, low: float, high: float) -> str:
    """Return `a` limited to [low, high]; NaN stays NaN. Each comparison and its choice are one instruction on x86."""
    top = w.const(high)
    return at_least(w, w.select(w.compare("ogt", a, top), top, a), low)


def at_least(w: VectorWriter, a: str, low: float) -> str:
    """Return `a` where it is not below `low`; NaN stays NaN."""
    bottom = w.const(low)
    return w.select(w.compare("olt", a, bottom), bottom, a)


def polynomial(w: VectorWriter, x: str, coefficients: Sequence[float]) -> str:
    """Return the polynomial with `coefficients` (lowest power first) at `x`.

    In pairs of neighbouring powers, then Horner's rule over the pairs in x**2: half the chain of
    dependent operations of Horner's rule alone, which is what limits a core that has other
    vectors to work on only as far as its window reaches (Estrin 1960, one level of it).
    """
    if len(coefficients) < 4:
        return horner(w, x, [w.const(c) for c in coefficients])
    pairs = [
        w.fma(x, w.const(high), w.const(low))
        for low, high in zip(coefficients[::2], coefficients[1::2], strict=False)
    ]
    odd_one = [w.const(coefficients[-1])] if len(coefficients) % 2 else []
    return horner(w, w.mul(x, x), [*pairs, *odd_one])


def horner(w: VectorWriter, x: str, terms: Sequence[str]) -> str:
    """Return the polynomial with coefficients that are values (lowest power first) at `x`, by Horner's rule."""
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = w.fma(total, x, term)
    return total


def reciprocal(w: VectorWriter, a: str) -> str:
    """Return 1/a within about an ulp, for a whose inverse is a normal number."""
    inverse = rough_reciprocal(w, a)
    if not w.native:
        return inverse
    residual = w.fma(w.neg(a), inverse, w.const(1.0))
    return w.fma(inverse, residual, inverse)  # Newton's step doubles the digits


def rough_reciprocal(w: VectorWriter, a: str) -> str:
    """Return 1/a to 2 digits more than half of the format's, or better: enough where one correction follows."""
    if not w.native:
        return w.div(w.const(1.0), a)
    inverse = w.native_instruction("rcp14", a)
    if w.fmt.bits == 32:
        return inverse
    residual = w.fma(w.neg(a), inverse, w.const(1.0))
    return w.fma(inverse, residual, inverse)


def round_to_steps(w: VectorWriter, a: str, scale: float, steps: int) -> tuple[str, str]:
    """Return (n, j): n = a*scale rounded to a multiple of 1/steps, and n*steps in the low bits of the integer j.

    For a power of two of steps to one, and |n*steps| below 2**(mantissa - 1).
    """
    magic = w.const(1.5 * 2.0**w.fmt.mantissa / steps)
    shifted = w.fma(a, w.const(scale), magic)
    return w.sub(shifted, magic), w.bits(shifted)


def round_with_bits(w: VectorWriter, a: str, scale: float) -> tuple[str, str]:
    """Return (n, k): n = a*scale rounded to an integer, as a float and as an integer.

    Adding 1.5 * 2**mantissa leaves the integer in the low bits, so no conversion instruction
    is needed, and NaN gives some integer instead of an undefined value. For |a*scale| below
    2**(mantissa - 1).
    """
    n, j = round_to_steps(w, a, scale, 1)
    return n, w.integer("sub", j, w.int_const(w.fmt.pattern(1.5 * 2.0**w.fmt.mantissa)))


def scale(w: VectorWriter, a: str, n: str, k: str) -> str:
    """Return a * 2**k for an integer k, which `n` is as a float; the result may be subnormal.

    As two products: the biased exponents of the two powers of two are the halves of k + 2*bias.
    """
    if w.native:
        return w.native_instruction("scalef", a, n)
    total = w.integer("add", k, w.int_const(2 * w.fmt.bias))
    first = w.integer("lshr", total, w.int_const(1))
    second = w.integer("sub", total, first)
    shift = w.int_const(w.fmt.mantissa)
    for biased in (first, second):
        a = w.mul(a, w.from_bits(w.integer("shl", biased, shift)))
    return a


def split_exponent(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return (m, e) with x = m * 2**e and sqrt(1/2) <= m < sqrt(2), for a positive normal x.

    e comes as a float. Reads the bits relative to sqrt(1/2), as FreeBSD's msun does.
    """
    if w.native:
        return _native_split(w, x)
    mantissa_bits = w.fmt.mantissa
    root = w.fmt.pattern(0.5**0.5)
    offset = w.fmt.bias + 1  # keeps the exponent's integer positive
    relative = w.integer("sub", w.bits(x), w.int_const(root))
    raised = w.integer("add", relative, w.int_const(offset << mantissa_bits))
    biased = w.integer("lshr", raised, w.int_const(mantissa_bits))
    ruler = 2.0**mantissa_bits  # its low bits count ones: no integer-to-float conversion
    as_float = w.from_bits(w.integer("add", biased, w.int_const(w.fmt.pattern(ruler))))
    exponent = w.sub(as_float, w.const(ruler + offset))
    fraction = w.integer("and", relative, w.int_const((1 << mantissa_bits) - 1))
    return w.from_bits(w.integer("add", fraction, w.int_const(root))), exponent


def _native_split(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return the same by `vgetmant` and `vgetexp`, which know subnormal numbers and infinities too.

    Zero gives (1, -inf), +inf gives (1, inf), negative numbers and NaN give NaN.
    """
    negative_is_nan, positive = 8, 4
    m = w.native_instruction("getmant", x, control=negative_is_nan | positive)
    e = w.native_instruction("getexp", x)
    upper = w.compare("oge", m, w.const(2.0**0.5))
    halved = w.select(upper, w.mul(m, w.const(0.5)), m)
    return halved, w.select(upper, w.add(e, w.const(1.0)), e)


def split_around_one(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return (m, e) with x = m * 2**e and 3/4 <= m < 3/2, for a positive number of a `native` writer."""
    negative_is_nan, positive, around_one = 8, 4, 3
    m = w.native_instruction("getmant", x, control=negative_is_nan | positive | around_one)
    e = w.native_instruction("getexp", x)
    lower = w.compare("olt", m, w.const(1.0))
    return m, w.select(lower, w.add(e, w.const(1.0)), e)


def reciprocal_root(w: VectorWriter, x: str) -> str:
    """Return 1/sqrt(x) within 1.4 ulp."""
    if not w.native:
        return w.div(w.const(1.0), w.sqrt(x))
    y = w.native_instruction("rsqrt14", x)
    better = y
    for _ in range(1 if w.fmt.bits == 32 else 2):
        product = w.mul(x, better)
        residual = w.fma(w.neg(product), better, w.const(1.0))
        better = w.fma(w.mul(better, w.const(0.5)), residual, better)
    # Zero and infinity are right at once, and have no residual.
    return w.select(w.compare("uno", better, better), y, better)
