"""Types of eight bits and fewer that numbers are only stored in, a byte each: ``te.cast`` is all that takes them.

Names and the arrays' bytes are those of ml_dtypes. A number is rounded to the nearest one of the type, ties to even;
what lies beyond the largest becomes an infinity, or NaN where there is none, or the largest where there is no NaN; NaN
is then 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NarrowFloat:
    """A format of a sign, ``exponent`` bits with a bias and ``mantissa`` bits.

    ``beyond``: all ones in the exponent are infinity and NaN ("ieee"), all ones in all bits are NaN ("nan"), the sign
    alone is NaN ("sign": no negative zero), or every pattern is a number ("none").
    """

    exponent: int
    mantissa: int
    bias: int
    beyond: Literal["ieee", "nan", "sign", "none"]

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def largest(self) -> int:
        """The bits of the largest number."""
        taken = {"ieee": 1 << self.mantissa, "nan": 1, "sign": 0, "none": 0}[self.beyond]
        return self.sign - 1 - taken

    @property
    def overflow(self) -> int:
        """The bits of what is beyond the largest number, less the sign."""
        return {"ieee": self.largest + 1, "nan": self.sign - 1, "sign": self.sign, "none": self.largest}[
            self.beyond
        ]

    @property
    def nan(self) -> int:
        """The bits of NaN as conversions give it; of a format without one those of zero."""
        if self.beyond == "ieee":
            return self.largest + 1 + (1 << (self.mantissa - 1))
        return {"nan": self.sign - 1, "sign": self.sign, "none": 0}[self.beyond]


NARROW_FLOATS = {
    "float8_e4m3fn": NarrowFloat(4, 3, 7, "nan"),
    "float8_e4m3fnuz": NarrowFloat(4, 3, 8, "sign"),
    "float8_e5m2": NarrowFloat(5, 2, 15, "ieee"),
    "float8_e5m2fnuz": NarrowFloat(5, 2, 16, "sign"),
    "float6_e2m3fn": NarrowFloat(2, 3, 1, "none"),
    "float6_e3m2fn": NarrowFloat(3, 2, 3, "none"),
    "float4_e2m1fn": NarrowFloat(2, 1, 1, "none"),
}
"""Formats of floating-point numbers."""

NARROW_INTEGERS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
"""Bits of integers; conversion of an integer wraps."""

NARROW = (*NARROW_FLOATS, *NARROW_INTEGERS)

__all__ = ["NARROW", "NARROW_FLOATS", "NARROW_INTEGERS", "NarrowFloat"]
