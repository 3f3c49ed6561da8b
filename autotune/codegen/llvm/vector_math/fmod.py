"""fmod on explicit vectors: the exact remainder of the division toward zero, for every pair of numbers.

What is left of ``r`` after taking ``q`` times ``d`` from it is a number of the type, if ``q`` is the quotient rounded
to the type, or toward zero to an integer (the remainder of a division is exact: Boldo and Daumas 2003). One such step
is enough for quotients of fewer bits than the type has digits. The others, which are rare, take one a step.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final

from autotune.codegen.llvm.vector_math.instructions import VectorWriter

__all__ = ["remainder"]

_LADDER: Final = 2.0**750
"""Between any two numbers of float64 lie less than three such factors: no quotient on the way overflows."""


def remainder(w: VectorWriter, x: str, y: str) -> str:
    """Return the remainder with x's sign; x where y is infinite, NaN where y is 0 or x infinite."""
    size, divisor = w.fabs(x), w.fabs(y)
    quotient = w.div(size, divisor)
    rest = w.fma(w.neg(w.floor(quotient)), divisor, size)
    near = w.select(w.compare("oeq", divisor, w.const(inf)), size, _not_negative(w, rest, divisor))
    far = w.compare("uge", quotient, w.const(2.0 ** (w.fmt.mantissa - 1)))
    result = w.corrected_where(far, near, lambda usual: w.select(far, _far(w, size, divisor), usual))
    return w.copysign(result, x)


def _not_negative(w: VectorWriter, rest: str, divisor: str) -> str:
    """Return a quotient that was rounded up to an integer is one too large."""
    return w.select(w.compare("olt", rest, w.const(0.0)), w.add(rest, divisor), rest)


def _far(w: VectorWriter, size: str, divisor: str) -> str:
    """Return the remainder of numbers that are far apart, or that have none; float32 by way of float64."""
    if w.fmt.dtype == "float32":
        wide = w.wide()
        rest = w.truncate(_stepwise(wide, wide.extend_from(w, size), wide.extend_from(w, divisor)))
    else:
        middle = w.mul(divisor, w.const(_LADDER))
        rest = _stepwise(w, size, w.mul(middle, w.const(_LADDER)))
        rest = _stepwise(w, _stepwise(w, rest, middle), divisor)
    defined = w.logical("and", w.compare("olt", size, w.const(inf)), w.compare("ogt", divisor, w.const(0.0)))
    return w.select(defined, rest, w.const(nan))


def _stepwise(w: VectorWriter, size: str, divisor: str) -> str:
    def left(rest: str) -> str:
        return w.compare("oge", w.fabs(rest), divisor)

    def step(rest: str) -> str:
        quotient = w.trunc(w.div(rest, divisor))
        return w.select(left(rest), w.fma(w.neg(quotient), divisor, rest), rest)

    return _not_negative(w, w.repeated_while(left, size, step), divisor)
