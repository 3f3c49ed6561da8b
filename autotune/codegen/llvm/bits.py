"""Integers as bits: what ``te`` has of it, defined for every amount of a shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.codegen.llvm.types import Value, number, scalar_type
from autotune.codegen.llvm.writer import Writer
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import is_unsigned

if TYPE_CHECKING:
    from autotune.codegen.llvm.arithmetic import ArithmeticEmitter

_PLAIN = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
BIT_FUNCTIONS = (*_PLAIN, "left_shift", "right_shift")


def bit_function(arithmetic: ArithmeticEmitter, name: str, a: Value, b: Value) -> Value:
    """Return the meaning of one of ``BIT_FUNCTIONS``."""
    code = arithmetic.code
    (a, b), lanes = code.alike(a, b)
    if name in _PLAIN:
        return code.binary(_PLAIN[name], a, b)
    width = 8 * ITEM_BYTES[a.dtype]
    if name == "right_shift" and not is_unsigned(a.dtype):
        most = code.splat(number(width - 1, a.dtype), lanes)
        return code.binary("ashr", a, arithmetic.intrinsic("umin", a.dtype, lanes, b, most))
    inside = code.compared("icmp ult", b, code.splat(number(width, a.dtype), lanes))
    zero = code.splat(number(0, a.dtype), lanes)
    amount = code.select(inside, b, zero)
    return code.select(inside, code.binary("shl" if name == "left_shift" else "lshr", a, amount), zero)


def bitcast(code: Writer, value: Value, dtype: str) -> Value:
    """Return the same bits as a value of another type."""
    if scalar_type(value.dtype) == scalar_type(dtype):
        return Value(value.text, dtype, value.lanes)
    return code.converted("bitcast", value, dtype)


__all__ = ["BIT_FUNCTIONS", "bit_function", "bitcast"]
