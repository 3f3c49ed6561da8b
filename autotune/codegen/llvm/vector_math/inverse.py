"""atan on explicit vectors.

Above tan(3 pi/8) it is pi/2 - atan(1/x), between that and tan(pi/8) it is pi/4 + atan((x - 1)/(x + 1)); what is left is
an odd polynomial, of float64 a quotient of two (the fits of Cephes, Moshier 1989).
"""

from __future__ import annotations

from math import pi, tan
from typing import Final

from autotune.codegen.llvm.vector_math.compositions import polynomial
from autotune.codegen.llvm.vector_math.instructions import VectorWriter

__all__ = ["arctangent"]

_NARROW: Final = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
_ABOVE: Final = (
    -6.485021904942025371773e1,
    -1.228866684490136173410e2,
    -7.500855792314704667340e1,
    -1.615753718733365076637e1,
    -8.750608600031904122785e-1,
)
_BELOW: Final = (
    1.945506571482613964425e2,
    4.853903996359136964868e2,
    4.328810604912902668951e2,
    1.650270098316988542046e2,
    2.485846490142306297962e1,
    1.0,
)


def arctangent(w: VectorWriter, x: str) -> str:
    """Return the inverse tangent, for x of any size."""
    size, one = w.fabs(x), w.const(1.0)
    large = w.compare("ogt", size, w.const(tan(3 * pi / 8)))
    middle = w.compare("ogt", size, w.const(tan(pi / 8)))
    # One division for all three: by x, by x + 1, or by 1.
    above = w.select(large, w.const(-1.0), w.select(middle, w.sub(size, one), size))
    below = w.select(large, size, w.select(middle, w.add(size, one), one))
    start = w.select(large, w.const(pi / 2), w.select(middle, w.const(pi / 4), w.const(0.0)))
    rest = w.select(large, _rest(w, pi / 2), w.select(middle, _rest(w, pi / 4), w.const(0.0)))
    t = w.div(above, below)
    square = w.mul(t, t)
    if w.fmt.dtype == "float32":
        series = polynomial(w, square, _NARROW)
    else:
        series = w.div(polynomial(w, square, _ABOVE), polynomial(w, square, _BELOW))
    small = w.add(w.fma(w.mul(series, square), t, rest), t)
    return w.copysign(w.add(start, small), x)


def _rest(w: VectorWriter, value: float) -> str:
    """Return the part of a multiple of pi that the format leaves out; of float64 it is known beyond Python's floats."""
    if w.fmt.dtype == "float32":
        return w.const(value - w.fmt.rounded(value))
    return w.const(6.123233995736766e-17 * (value / (pi / 2)))
