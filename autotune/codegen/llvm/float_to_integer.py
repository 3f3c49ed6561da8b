"""Floating point to integers, the same in a scalar and in lanes, on every machine.

Numbers truncate toward zero and stay within the type's limits; NaN becomes 0. The processor's conversion gives
something of its own outside of its range, and so does LLVM's ``fptosi``; LLVM's saturating one works element by
element. Here values are clamped before they are converted, which a value that is clipped already pays nothing for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autotune.codegen.llvm.types import Value, constant
from autotune.te.dtypes import HALVES, float_limits, integer_limits, is_float, is_unsigned
from autotune.te.expr import Binary, Const, Expr

if TYPE_CHECKING:
    from autotune.codegen.llvm.arithmetic import ArithmeticEmitter
    from autotune.codegen.llvm.writer import Writer

Bounds = tuple[float, float]
"""Least and largest value."""

UNBOUNDED: Bounds = (-math.inf, math.inf)


def unclipped(node: Expr) -> tuple[Expr, Bounds]:
    """Return the operand of a chain of minima and maxima with constants, and the bounds; the node itself for others."""
    low, high = UNBOUNDED
    while isinstance(node, Binary) and node.op in ("min", "max") and is_float(node.dtype):
        value, bound = (node.b, node.a) if isinstance(node.a, Const) else (node.a, node.b)
        if not isinstance(bound, Const) or math.isnan(bound.value):
            break
        # An outer bound decides where it contradicts an inner one.
        limit = min(max(float(bound.value), low), high)
        low, high = (max(low, limit), high) if node.op == "max" else (low, min(high, limit))
        node = value
    return node, (low, high)


def float_to_integer(a: ArithmeticEmitter, value: Value, dtype: str, clip: Bounds = UNBOUNDED) -> Value:
    """Return ``value``, clipped to ``clip``, as an integer of type ``dtype``."""
    w = a.code
    if value.dtype in HALVES:
        value = a.cast(value, "float32")
    low, high = integer_limits(dtype)
    beyond = _ceiling(high, value.dtype) if clip[1] >= high else None
    top = max(min(clip[1], _largest(high, value.dtype)), float(low))
    bottom = min(max(clip[0], float(low)), top)
    lower = _bounded(w, "ogt", value, bottom)  # NaN becomes the bound
    whole = _truncated(a, _bounded(w, "olt", lower, top), dtype)
    if beyond is not None:
        whole = w.select(_compare(w, "oge", value, beyond), _number(w, high, whole), whole)
    if int(bottom) == 0:
        return whole
    return w.select(_compare(w, "ord", value, 0.0), whole, _number(w, 0, whole))


def _largest(high: int, dtype: str) -> float:
    """Return the largest number of a floating-point type that is at most ``high``."""
    digits = float_limits(dtype).nmant + 1
    spare = max(high.bit_length() - digits, 0)
    return float((high >> spare) << spare)


def _ceiling(high: int, dtype: str) -> float | None:
    """Return the number above ``high`` where that is none of the type itself: what is at least as large
    becomes ``high``."""
    return None if _largest(high, dtype) == high else float(high + 1)


def _bounded(w: Writer, inside: str, value: Value, bound: float) -> Value:
    """Return ``value`` where it compares with ``bound`` as ``inside`` says, else ``bound``."""
    return w.select(_compare(w, inside, value, bound), value, _number(w, bound, value))


def _truncated(a: ArithmeticEmitter, value: Value, dtype: str) -> Value:
    """Return the conversion of numbers within the limits; small integers by way of 32 bits, which have
    an instruction."""
    low, high = integer_limits(dtype)
    by_way = "int32" if integer_limits("int32")[0] <= low and high < integer_limits("int32")[1] else dtype
    code = "fptoui" if is_unsigned(by_way) else "fptosi"
    return a.cast(a.code.converted(code, value, by_way), dtype)


def _number(w: Writer, value: float, like: Value) -> Value:
    return w.splat(Value(constant(value, like.dtype), like.dtype), like.lanes)


def _compare(w: Writer, code: str, value: Value, bound: float) -> Value:
    return w.compared(f"fcmp {code}", value, _number(w, bound, value))


__all__ = ["UNBOUNDED", "Bounds", "float_to_integer", "unclipped"]
