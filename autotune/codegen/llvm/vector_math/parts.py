"""Building blocks of several vector functions: sums and products of two parts, and the exponential's kernel."""

from __future__ import annotations

from typing import Final

from autotune.codegen.llvm.vector_math.compositions import polynomial, round_with_bits
from autotune.codegen.llvm.vector_math.fits import EXP
from autotune.codegen.llvm.vector_math.instructions import VectorWriter

__all__ = [
    "LN2",
    "LN2_PARTS",
    "LOG2_E",
    "exp_kernel",
    "exp_range",
    "fast_two_sum",
    "reduce_below",
    "reduce_by_ln2",
    "two_product",
    "two_sum",
]

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
# ln 2 as a leading part whose products with an exponent are exact, and the rest of it.
LN2_PARTS: Final = {
    "float32": (float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")),
    "float64": (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
_EXP_HIGH: Final = {"float32": 89.0, "float64": 710.0}  # beyond these exp is infinite


def two_product(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """Return a * b exactly, as the product and what rounding left of it."""
    high = w.mul(a, b)
    return high, w.fma(a, b, w.neg(high))


def fast_two_sum(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """Return a + b exactly, for |a| >= |b| (Dekker 1971)."""
    high = w.add(a, b)
    return high, w.add(w.sub(a, high), b)


def two_sum(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """Return a + b exactly, in any order (Knuth 1969)."""
    high = w.add(a, b)
    part = w.sub(high, a)
    return high, w.add(w.sub(a, w.sub(high, part)), w.sub(b, part))


def exp_range(w: VectorWriter) -> tuple[float, float]:
    """Return the limits to which arguments are clamped: beyond these exp is 0 or infinite.

    The lower one is far below the first subnormal number, so that a masked score, minus infinity, becomes 0 at
    full speed: a product that underflows costs some 150 cycles in microcode, `vscalef` by 2**-n does not from
    n = 4*(bias + 1) on (read on a Cascade Lake, where exp(-inf) took twelve times as long as exp(-1)), and the
    two factors of `scale` are exact zeros at n = 2*bias.
    """
    n = 5 * (w.fmt.bias + 1) if w.native else 2 * w.fmt.bias
    return -n * LN2, _EXP_HIGH[w.fmt.dtype]


def exp_kernel(w: VectorWriter, r: str) -> str:
    """Return exp(r) - 1 for |r| <= ln2/2."""
    tail = polynomial(w, r, EXP[w.fmt.dtype])
    return w.fma(w.mul(r, r), tail, r)


def reduce_by_ln2(w: VectorWriter, x: str) -> tuple[str, str, str]:
    """Return (n, k, r) with x = n*ln2 + r, |r| <= ln2/2; n and k are the same integer."""
    n, k = round_with_bits(w, x, LOG2_E)
    return n, k, _without_ln2(w, x, n)


def reduce_below(w: VectorWriter, x: str) -> tuple[str, str]:
    """Return (2**n, r) for x = n*ln2 + r, |r| <= ln2/2 and -bias <= n <= 0; the power is 0 for n = -bias.

    What is added to round n leaves the biased exponent in the low bits, which one shift brings to its place.
    """
    magic = w.const(1.5 * 2.0**w.fmt.mantissa + w.fmt.bias)
    shifted = w.fma(x, w.const(LOG2_E), magic)
    power = w.from_bits(w.integer("shl", w.bits(shifted), w.int_const(w.fmt.mantissa)))
    return power, _without_ln2(w, x, w.sub(shifted, magic))


def _without_ln2(w: VectorWriter, x: str, n: str) -> str:
    """Return x - n*ln2."""
    high, low = LN2_PARTS[w.fmt.dtype]
    return w.fma(n, w.const(-low), w.fma(n, w.const(-high), x))
