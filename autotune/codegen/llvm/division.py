"""Integer division that rounds down, defined for every operand.

A quotient by zero is 0 and so is the remainder, as in NumPy; the smallest number divided by -1 wraps to itself, with
remainder 0. The processor's division traps on both, so a divisor that is not known divides by 1 there instead. In
lanes, where there is no instruction for integers, numbers of up to 32 bits are divided in floating point: a quotient
of integers that is not whole is further from the next whole number than half a digit of a type of twice their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.codegen.llvm.types import Value, number
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import is_unsigned

if TYPE_CHECKING:
    from autotune.codegen.llvm.writer import Writer

_FLOAT_OF = {1: "float32", 2: "float32", 4: "float64"}
"""Type that holds quotients of integers, by their bytes."""


def floor_division(w: Writer, op: str, a: Value, b: Value) -> Value:
    """Return ``a // b`` or ``a % b``; the remainder has the divisor's sign."""
    known = b.number is not None and b.number not in (0, -1)
    (a, b), _ = w.alike(a, b)
    if is_unsigned(a.dtype):
        return _unsigned(w, op, a, b, known)
    if not known:
        return _signed(w, op, a, b)
    rest = w.binary("srem", a, b)
    fix = _not_down(w, b, rest)
    return _rest(w, b, rest, fix) if op == "%" else _quotient(w, w.binary("sdiv", a, b), fix)


def _unsigned(w: Writer, op: str, a: Value, b: Value, known: bool) -> Value:
    if known:
        return w.binary("udiv" if op == "//" else "urem", a, b)
    zero = _compare(w, "eq", b, 0)
    divisor = w.select(zero, _number(w, 1, b), b)
    quotient, rest = _parts(w, a, divisor)
    return rest if op == "%" else w.select(zero, _number(w, 0, b), quotient)


def _signed(w: Writer, op: str, a: Value, b: Value) -> Value:
    """Divide signed numbers: by -1 and 0 the quotient is ``a * b`` without a remainder; one test tells
    both from the rest."""
    special = _compare(w, "ult", w.binary("add", b, _number(w, 1, b)), 2)
    divisor = w.select(special, _number(w, 1, b), b)
    quotient, rest = _parts(w, a, divisor)
    fix = _not_down(w, b, rest)
    if op == "%":
        return _rest(w, b, rest, fix)
    return _quotient(w, w.select(special, w.binary("mul", a, b), quotient), fix)


def _rest(w: Writer, b: Value, rest: Value, fix: Value) -> Value:
    """Return the remainder of rounding down, from that of rounding toward zero."""
    return w.select(fix, w.binary("add", rest, b), rest)


def _quotient(w: Writer, quotient: Value, fix: Value) -> Value:
    """Return the quotient rounded down, from that toward zero."""
    return w.binary("add", quotient, w.converted("sext", fix, quotient.dtype))


def _not_down(w: Writer, b: Value, rest: Value) -> Value:
    """Return where rounding toward zero was not rounding down: there is a remainder, of the other sign
    than the divisor."""
    differ = _compare(w, "slt", w.binary("xor", rest, b), 0)
    return w.binary("and", differ, _compare(w, "ne", rest, 0))


def _parts(w: Writer, a: Value, divisor: Value) -> tuple[Value, Value]:
    """Return the quotient toward zero and remainder, by a divisor that is neither 0 nor -1."""
    sign = "u" if is_unsigned(a.dtype) else "s"
    wide = _FLOAT_OF.get(ITEM_BYTES[a.dtype])
    if a.lanes == 1 or wide is None:
        return w.binary(f"{sign}div", a, divisor), w.binary(f"{sign}rem", a, divisor)
    x, y = (w.converted(f"{sign}itofp", value, wide) for value in (a, divisor))
    quotient = w.converted(f"fpto{sign}i", w.binary("fdiv", x, y), a.dtype)
    return quotient, w.binary("sub", a, w.binary("mul", quotient, divisor))


def _number(w: Writer, value: int, like: Value) -> Value:
    return w.splat(number(value, like.dtype), like.lanes)


def _compare(w: Writer, code: str, a: Value, value: int) -> Value:
    return w.compared(f"icmp {code}", a, _number(w, value, a))


__all__ = ["floor_division"]
