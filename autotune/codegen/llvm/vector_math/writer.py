"""A writer of LLVM IR over one vector shape: what the vector functions are built of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from autotune.codegen.llvm.vector_math.instructions import VectorInstructions

__all__ = ["VectorWriter"]


@dataclass(frozen=True)
class VectorWriter(VectorInstructions):
    """Instructions, and short compositions of them."""

    def unusual(self, x: str, y: str) -> str:
        """Where x is not positive and finite, or y not finite; x may be subnormal."""
        infinite = self.fmt.pattern(inf)
        # The patterns of such x, less one, are from 0 to below infinity's less one, taken as unsigned.
        below = self.integer("sub", self.bits(x), self.int_const(1))
        doubled = self.integer("shl", self.bits(y), self.int_const(1))
        return self.logical(
            "or", self._unsigned_from(below, infinite - 1), self._unsigned_from(doubled, 2 * infinite)
        )

    def _unsigned_from(self, a: str, least: int) -> str:
        return self._append(f"icmp uge {self.integers} {a}, {self.int_const(least)}")

    def clamp(self, a: str, low: float, high: float) -> str:
        """`a` limited to [low, high]; NaN stays NaN."""
        top = self.const(high)
        capped = self.select(self.compare("ogt", a, top), top, a)
        bottom = self.const(low)
        return self.select(self.compare("olt", a, bottom), bottom, capped)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with `coefficients` (lowest power first) at `x`.

        In pairs of neighbouring powers, then Horner's rule over the pairs in x**2: half the chain of
        dependent operations of Horner's rule alone, which is what limits a core that has other
        vectors to work on only as far as its window reaches (Estrin 1960, one level of it).
        """
        if len(coefficients) < 4:
            return self._horner(x, [self.const(c) for c in coefficients])
        pairs = [
            self.fma(x, self.const(high), self.const(low))
            for low, high in zip(coefficients[::2], coefficients[1::2], strict=False)
        ]
        odd_one = [self.const(coefficients[-1])] if len(coefficients) % 2 else []
        return self._horner(self.mul(x, x), [*pairs, *odd_one])

    def _horner(self, x: str, terms: Sequence[str]) -> str:
        total = terms[-1]
        for term in reversed(terms[:-1]):
            total = self.fma(total, x, term)
        return total

    def reciprocal(self, a: str) -> str:
        """1/a within about an ulp, for a whose inverse is a normal number."""
        inverse = self.rough_reciprocal(a)
        if not self.native:
            return inverse
        residual = self.fma(self.neg(a), inverse, self.const(1.0))
        return self.fma(inverse, residual, inverse)  # Newton's step doubles the digits

    def rough_reciprocal(self, a: str) -> str:
        """1/a to 2 digits more than half of the format's, or better: enough where one correction follows."""
        if not self.native:
            return self.div(self.const(1.0), a)
        inverse = self._avx512("rcp14", a)
        if self.fmt.bits == 32:
            return inverse
        residual = self.fma(self.neg(a), inverse, self.const(1.0))
        return self.fma(inverse, residual, inverse)

    def round_with_bits(self, a: str, scale: float) -> tuple[str, str]:
        """(n, k): n = a*scale rounded to an integer, as a float and as an integer.

        Adding 1.5 * 2**mantissa leaves the integer in the low bits, so no conversion instruction
        is needed, and NaN gives some integer instead of an undefined value. For |a*scale| below
        2**(mantissa - 1).
        """
        magic = 1.5 * 2.0**self.fmt.mantissa
        shifted = self.fma(a, self.const(scale), self.const(magic))
        n = self.sub(shifted, self.const(magic))
        k = self.integer("sub", self.bits(shifted), self.int_const(self.fmt.pattern(magic)))
        return n, k

    def scale(self, a: str, n: str, k: str) -> str:
        """a * 2**k for an integer k, which `n` is as a float; the result may be subnormal.

        As two products: the biased exponents of the two powers of two are the halves of k + 2*bias.
        """
        if self.native:
            return self._avx512("scalef", a, n)
        total = self.integer("add", k, self.int_const(2 * self.fmt.bias))
        first = self.integer("lshr", total, self.int_const(1))
        second = self.integer("sub", total, first)
        shift = self.int_const(self.fmt.mantissa)
        for biased in (first, second):
            a = self.mul(a, self.from_bits(self.integer("shl", biased, shift)))
        return a

    def split_exponent(self, x: str) -> tuple[str, str]:
        """(m, e) with x = m * 2**e and sqrt(1/2) <= m < sqrt(2), for a positive normal x.

        e comes as a float. Reads the bits relative to sqrt(1/2), as FreeBSD's msun does.
        """
        if self.native:
            return self._native_split(x)
        mantissa_bits = self.fmt.mantissa
        root = self.fmt.pattern(0.5**0.5)
        offset = self.fmt.bias + 1  # keeps the exponent's integer positive
        relative = self.integer("sub", self.bits(x), self.int_const(root))
        raised = self.integer("add", relative, self.int_const(offset << mantissa_bits))
        biased = self.integer("lshr", raised, self.int_const(mantissa_bits))
        ruler = 2.0**mantissa_bits  # its low bits count ones: no integer-to-float conversion
        as_float = self.from_bits(self.integer("add", biased, self.int_const(self.fmt.pattern(ruler))))
        exponent = self.sub(as_float, self.const(ruler + offset))
        fraction = self.integer("and", relative, self.int_const((1 << mantissa_bits) - 1))
        return self.from_bits(self.integer("add", fraction, self.int_const(root))), exponent

    def _native_split(self, x: str) -> tuple[str, str]:
        """The same by `vgetmant` and `vgetexp`, which know subnormal numbers and infinities too.

        Zero gives (1, -inf), +inf gives (1, inf), negative numbers and NaN give NaN.
        """
        negative_is_nan, positive = 8, 4
        m = self._avx512("getmant", x, control=negative_is_nan | positive)
        e = self._avx512("getexp", x)
        upper = self.compare("oge", m, self.const(2.0**0.5))
        halved = self.select(upper, self.mul(m, self.const(0.5)), m)
        return halved, self.select(upper, self.add(e, self.const(1.0)), e)

    def split_around_one(self, x: str) -> tuple[str, str]:
        """(m, e) with x = m * 2**e and 3/4 <= m < 3/2, for a positive number of a `native` writer."""
        negative_is_nan, positive, around_one = 8, 4, 3
        m = self._avx512("getmant", x, control=negative_is_nan | positive | around_one)
        e = self._avx512("getexp", x)
        lower = self.compare("olt", m, self.const(1.0))
        return m, self.select(lower, self.add(e, self.const(1.0)), e)

    def reciprocal_root(self, x: str) -> str:
        """1/sqrt(x) within 1.4 ulp."""
        if not self.native:
            return self.div(self.const(1.0), self.sqrt(x))
        y = self._avx512("rsqrt14", x)
        better = y
        for _ in range(1 if self.fmt.bits == 32 else 2):
            product = self.mul(x, better)
            residual = self.fma(self.neg(product), better, self.const(1.0))
            better = self.fma(self.mul(better, self.const(0.5)), residual, better)
        # Zero and infinity are right at once, and have no residual.
        return self.select(self.compare("uno", better, better), y, better)
