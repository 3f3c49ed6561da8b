"""Integer division that rounds down, defined for every operand.

A quotient by zero is 0 and so is the remainder, as in NumPy; the smallest number divided by -1 wraps to itself, with
remainder 0. The processor's division traps on both, so a divisor that is not known divides by 1 there instead. In
lanes, where there is no instruction for integers, numbers of up to 32 bits are divided in floating point: a quotient
of integers that is not whole is further from the next whole number than half a digit of a type of twice their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.codegen.llvm.types import Value, number, scalar_type, type_of, vector
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import is_unsigned

if TYPE_CHECKING:
    from autotune.codegen.llvm.writer import Writer

_FLOAT_OF = {1: "float32", 2: "float32", 4: "float64"}
"""Type that holds quotients of integers, by their bytes."""


def floor_division(w: Writer, op: str, a: Value, b: Value) -> Value:
    """``a // b`` or ``a % b``; the remainder has the divisor's sign."""
    known = b.number is not None and b.number not in (0, -1)
    (a, b), _ = w.alike(a, b)
    if is_unsigned(a.dtype):
        return _unsigned(w, op, a, b, known)
    if not known:
        return _signed(w, op, a, b)
    rest = _op(w, "srem", a, b)
    fix = _not_down(w, b, rest)
    return _rest(w, b, rest, fix) if op == "%" else _quotient(w, _op(w, "sdiv", a, b), fix)


def _unsigned(w: Writer, op: str, a: Value, b: Value, known: bool) -> Value:
    if known:
        return _op(w, "udiv" if op == "//" else "urem", a, b)
    zero = _compare(w, "eq", b, 0)
    divisor = _select(w, zero, _number(w, 1, b), b)
    quotient, rest = _parts(w, a, divisor)
    return rest if op == "%" else _select(w, zero, _number(w, 0, b), quotient)


def _signed(w: Writer, op: str, a: Value, b: Value) -> Value:
    """By -1 and 0 the quotient is ``a * b``, and there is no remainder: one test tells both from the rest."""
    special = _compare(w, "ult", _op(w, "add", b, _number(w, 1, b)), 2)
    divisor = _select(w, special, _number(w, 1, b), b)
    quotient, rest = _parts(w, a, divisor)
    fix = _not_down(w, b, rest)
    if op == "%":
        return _rest(w, b, rest, fix)
    return _quotient(w, _select(w, special, _op(w, "mul", a, b), quotient), fix)


def _rest(w: Writer, b: Value, rest: Value, fix: Value) -> Value:
    """The remainder of rounding down, from that of rounding toward zero."""
    return _select(w, fix, _op(w, "add", rest, b), rest)


def _quotient(w: Writer, quotient: Value, fix: Value) -> Value:
    """The quotient rounded down, from that toward zero."""
    one_less = w.op(f"sext {type_of(fix)} {fix.text} to {type_of(quotient)}")
    return _op(w, "add", quotient, Value(one_less, quotient.dtype, quotient.lanes))


def _not_down(w: Writer, b: Value, rest: Value) -> Value:
    """Where rounding toward zero was not rounding down: there is a remainder, of the other sign than the divisor."""
    differ = _compare(w, "slt", _op(w, "xor", rest, b), 0)
    return _op(w, "and", differ, _compare(w, "ne", rest, 0))


def _parts(w: Writer, a: Value, divisor: Value) -> tuple[Value, Value]:
    """Quotient toward zero and remainder, by a divisor that is neither 0 nor -1."""
    sign = "u" if is_unsigned(a.dtype) else "s"
    wide = _FLOAT_OF.get(ITEM_BYTES[a.dtype])
    if a.lanes == 1 or wide is None:
        return _op(w, f"{sign}div", a, divisor), _op(w, f"{sign}rem", a, divisor)
    floats, kind = vector(scalar_type(wide), a.lanes), type_of(a)
    x, y = (w.op(f"{sign}itofp {kind} {v.text} to {floats}") for v in (a, divisor))
    real = w.op(f"fdiv {floats} {x}, {y}")
    quotient = Value(w.op(f"fpto{sign}i {floats} {real} to {kind}"), a.dtype, a.lanes)
    return quotient, _op(w, "sub", a, _op(w, "mul", quotient, divisor))


def _op(w: Writer, code: str, a: Value, b: Value) -> Value:
    return Value(w.op(f"{code} {type_of(a)} {a.text}, {b.text}"), a.dtype, a.lanes)


def _number(w: Writer, value: int, like: Value) -> Value:
    return w.splat(number(value, like.dtype), like.lanes)


def _compare(w: Writer, code: str, a: Value, value: int) -> Value:
    return Value(w.op(f"icmp {code} {type_of(a)} {a.text}, {_number(w, value, a).text}"), "bool", a.lanes)


def _select(w: Writer, flag: Value, a: Value, b: Value) -> Value:
    kind = type_of(a)
    return Value(
        w.op(f"select {type_of(flag)} {flag.text}, {kind} {a.text}, {kind} {b.text}"), a.dtype, a.lanes
    )


__all__ = ["floor_division"]
