"""sinh and cosh on explicit vectors."""

from __future__ import annotations

from math import factorial
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import clamp, polynomial, scale
from autotune.codegen.llvm.vector_math.instructions import VectorWriter
from autotune.codegen.llvm.vector_math.parts import exp_kernel, reduce_by_ln2

__all__ = ["cosh", "sinh"]

_INFINITE: Final = {"float32": 90.0, "float64": 711.0}
"""From here on both are infinite."""
_TERMS: Final = {"float32": 5, "float64": 9}
"""Of sinh's Taylor series up to 1: one more than a fit would take."""


def sinh(w: VectorWriter, x: str) -> str:
    """Return a polynomial up to 1, (exp(x) - exp(-x)) / 2 from there."""
    terms = [1.0 / factorial(2 * n + 3) for n in range(_TERMS[w.fmt.dtype])]
    size, square = w.fabs(x), w.mul(x, x)
    small = w.fma(w.mul(size, square), polynomial(w, square, terms), size)
    half = _half_exp(w, size)
    large = w.sub(half, w.div(w.const(0.25), half))
    return w.copysign(w.select(w.compare("olt", size, w.const(1.0)), small, large), x)


def cosh(w: VectorWriter, x: str) -> str:
    """Return (exp(x) + exp(-x)) / 2."""
    half = _half_exp(w, w.fabs(x))
    return w.add(half, w.div(w.const(0.25), half))


def _half_exp(w: VectorWriter, size: str) -> str:
    """Return exp(size)/2, which is finite where sinh and cosh are."""
    n, k, r = reduce_by_ln2(w, clamp(w, size, 0.0, _INFINITE[w.fmt.dtype]))
    power = w.sub(n, w.const(1.0)), w.integer("sub", k, w.int_const(1))
    return scale(w, w.add(exp_kernel(w, r), w.const(1.0)), *power)
