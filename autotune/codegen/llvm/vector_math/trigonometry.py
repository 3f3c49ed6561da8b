"""sin, cos and tan on explicit vectors, for arguments of every size.

The argument less the nearest multiple of pi/2 is in three parts of pi/2 up to a border (Cody and Waite 1980). Larger
ones, which are rare, take those bits of 2/pi that matter at their exponent (Payne and Hanek 1983), in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import factorial, inf, nan
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import polynomial, round_with_bits
from autotune.codegen.llvm.vector_math.instructions import VectorWriter
from autotune.codegen.llvm.vector_math.parts import fast_two_sum, two_product, two_sum

__all__ = ["cosine", "sine", "tangent"]

_BORDER: Final = {"float32": 2.0**16, "float64": 2.0**25}
"""Up to here three parts of pi/2 leave an error far below the smallest remainder."""

_CHUNK: Final = 48
"""Bits of a piece of 2/pi: a number of float64 times a piece is a sum of two exactly."""
_PIECES: Final = 25
_READ: Final = 5
_LEAST: Final = 54
"""From this exponent on, the first bits of 2/pi contribute multiples of four quarter turns."""

# Taylor's series up to pi/4, which has one term more than a fit would take.
_SINE: Final = {"float32": 4, "float64": 8}
_COSINE: Final = {"float32": 4, "float64": 8}

Kernel = Callable[[VectorWriter, str, str], str]
"""The function from a remainder and the number of quarter turns that were taken off, an integer."""


@cache
def _half_pi(bits: int) -> int:
    """Return pi/2 times two to the power of ``bits``, by Machin's formula."""
    unit = 1 << (bits + 32)

    def arctangent(inverse: int) -> int:
        total = term = unit // inverse
        n = 1
        while term:
            term //= -inverse * inverse
            n += 2
            total += term // n
        return total

    return (8 * arctangent(5) - 2 * arctangent(239)) >> 32


@cache
def _two_over_pi() -> tuple[float, ...]:
    """Return 2/pi in pieces, each a whole number below 2**48."""
    bits = _CHUNK * _PIECES
    digits = (1 << (2 * bits)) // _half_pi(bits)
    return tuple(float((digits >> (bits - _CHUNK * (n + 1))) & ((1 << _CHUNK) - 1)) for n in range(_PIECES))


def _parts_of_half_pi(w: VectorWriter, count: int) -> list[float]:
    rest, parts = _half_pi(300), []
    for _ in range(count):
        part = w.fmt.rounded(rest / (1 << 300))
        parts.append(part)
        rest -= int(part * 2.0**200) << 100
    return parts


def sine(w: VectorWriter, x: str) -> str:
    """Return sin(x); NaN of infinities."""
    return _odd(w, x, _anywhere(w, x, _sine))


def cosine(w: VectorWriter, x: str) -> str:
    """Return cos(x); NaN of infinities."""
    return _anywhere(w, x, lambda w, r, turns: _sine(w, r, w.integer("add", turns, w.int_const(1))))


def tangent(w: VectorWriter, x: str) -> str:
    """Return tan(x); NaN of infinities."""
    return _odd(w, x, _anywhere(w, x, _tangent))


def _odd(w: VectorWriter, x: str, value: str) -> str:
    """Correct the sign of zero, which the parts of pi/2 lose."""
    return w.select(w.compare("oeq", x, w.const(0.0)), x, value)


def _anywhere(w: VectorWriter, x: str, kernel: Kernel) -> str:
    near = kernel(w, *_remainder(w, x))
    far = w.compare("uge", w.fabs(x), w.const(_BORDER[w.fmt.dtype]))
    return w.corrected_where(far, near, lambda usual: w.select(far, _far(w, x, kernel), usual))


def _far(w: VectorWriter, x: str, kernel: Kernel) -> str:
    wide = w.wide()
    argument = wide.extend_from(w, x) if w.fmt.dtype == "float32" else x
    result = kernel(wide, *_far_remainder(wide, argument))
    if w.fmt.dtype == "float32":
        result = w.truncate(result)
    return w.select(w.compare("olt", w.fabs(x), w.const(inf)), result, w.const(nan))


def _remainder(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return (r, k) with x = k*pi/2 + r and |r| not above pi/4."""
    first, second, third = _parts_of_half_pi(w, 3)
    n, k = round_with_bits(w, x, 1 / first)
    r = w.fma(n, w.const(-first), x)
    return w.fma(n, w.const(-third), w.fma(n, w.const(-second), r)), k


def _far_remainder(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return the same for finite numbers of any size; k modulo 4."""
    shift = w.int_const(w.fmt.mantissa)
    exponent = w.integer("lshr", w.bits(w.fabs(x)), shift)
    above = w.saturating_sub(exponent, w.int_const(w.fmt.bias + _LEAST))
    # above // 48, right up to 1023
    piece = w.integer("lshr", w.integer("mul", above, w.int_const(1366)), w.int_const(16))
    lowered = w.integer("shl", w.integer("mul", piece, w.int_const(_CHUNK)), shift)
    scaled = w.from_bits(w.integer("sub", w.bits(x), lowered))
    sums = [w.const(0.0)] * 3
    for n in range(_READ):
        digits = w.gather(w.integer("add", piece, w.int_const(n)), "two_over_pi", _two_over_pi())
        weighted = w.mul(digits, w.const(2.0 ** (-_CHUNK * (n + 1))))
        for term in two_product(w, scaled, weighted):
            sums = _added(w, sums, _modulo_four(w, term))
    turns = w.rint(sums[0])
    high, low = two_sum(w, w.sub(sums[0], turns), sums[1])
    high, low = fast_two_sum(w, high, w.add(low, sums[2]))
    first, second = _parts_of_half_pi(w, 2)
    product, rest = two_product(w, high, w.const(first))
    rest = w.fma(high, w.const(second), w.fma(low, w.const(first), rest))
    _, k = round_with_bits(w, turns, 1.0)
    return w.add(product, rest), k


def _modulo_four(w: VectorWriter, a: str) -> str:
    return w.fma(w.rint(w.mul(a, w.const(0.25))), w.const(-4.0), a)


def _added(w: VectorWriter, sums: list[str], term: str) -> list[str]:
    """Return a sum of three parts and a further term, exact but for what is below the last part."""
    first, term = two_sum(w, sums[0], term)
    second, term = two_sum(w, sums[1], term)
    return [first, second, w.add(sums[2], term)]


def _sine(w: VectorWriter, r: str, turns: str) -> str:
    """Return sin(r + turns * pi/2)."""
    value = w.select(w.has_bit(turns, 0), _cosine_kernel(w, r), _sine_kernel(w, r))
    sign = w.integer("shl", w.integer("and", turns, w.int_const(2)), w.int_const(w.fmt.bits - 2))
    return w.from_bits(w.integer("xor", w.bits(value), sign))


def _tangent(w: VectorWriter, r: str, turns: str) -> str:
    """Return tan(r + turns * pi/2)."""
    sine, cosine = _sine_kernel(w, r), _cosine_kernel(w, r)
    odd = w.has_bit(turns, 0)
    return w.div(w.select(odd, w.neg(cosine), sine), w.select(odd, sine, cosine))


def _sine_kernel(w: VectorWriter, r: str) -> str:
    terms = [(-1.0) ** (n + 1) / factorial(2 * n + 3) for n in range(_SINE[w.fmt.dtype])]
    square = w.mul(r, r)
    return w.fma(w.mul(r, square), polynomial(w, square, terms), r)


def _cosine_kernel(w: VectorWriter, r: str) -> str:
    terms = [(-1.0) ** n / factorial(2 * n + 4) for n in range(_COSINE[w.fmt.dtype])]
    square = w.mul(r, r)
    half = w.mul(square, w.const(0.5))
    head = w.sub(w.const(1.0), half)
    lost = w.sub(w.sub(w.const(1.0), head), half)
    return w.add(head, w.fma(w.mul(square, square), polynomial(w, square, terms), lost))
