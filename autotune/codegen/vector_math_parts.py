"""What several vector functions are made of: sums and products of two parts, and the exponential's kernel."""

from __future__ import annotations

from typing import Final

from autotune.codegen.vector_math_fits import EXP
from autotune.codegen.vector_math_ir import VectorWriter

__all__ = [
    "EXP_RANGE",
    "LN2",
    "LN2_PARTS",
    "LOG2_E",
    "exp_kernel",
    "fast_two_sum",
    "reduce_by_ln2",
    "two_product",
]

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
# ln 2 as a leading part whose products with an exponent are exact, and the rest of it.
LN2_PARTS: Final = {
    "float32": (float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")),
    "float64": (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
# Beyond these exp is 0 or infinite.
EXP_RANGE: Final = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}


def two_product(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """a * b exactly, as the product and what rounding left of it."""
    high = w.mul(a, b)
    return high, w.fma(a, b, w.neg(high))


def fast_two_sum(w: VectorWriter, a: str, b: str) -> tuple[str, str]:
    """a + b exactly, for |a| >= |b| (Dekker 1971)."""
    high = w.add(a, b)
    return high, w.add(w.sub(a, high), b)


def exp_kernel(w: VectorWriter, r: str) -> str:
    """exp(r) - 1 for |r| <= ln2/2."""
    tail = w.polynomial(r, EXP[w.fmt.dtype])
    return w.fma(w.mul(r, r), tail, r)


def reduce_by_ln2(w: VectorWriter, x: str) -> tuple[str, str, str]:
    """(n, k, r) with x = n*ln2 + r, |r| <= ln2/2; n and k are the same integer."""
    high, low = LN2_PARTS[w.fmt.dtype]
    n, k = w.round_with_bits(x, LOG2_E)
    r = w.fma(n, w.const(-low), w.fma(n, w.const(-high), x))
    return n, k, r
