"""Folds the lanes of a vector to one value, which a vectorized reduction loop adds to its accumulator."""

from __future__ import annotations

from autotune.codegen.llvm.expressions import Expressions
from autotune.codegen.llvm.types import Value, scalar_type, suffix, type_of
from autotune.lower.ir import Load, Store
from autotune.te.dtypes import is_float, is_unsigned
from autotune.te.expr import Binary
from autotune.te.reductions import MAX, MAX_NUMBER, MIN, PROD, SUM

_HORIZONTAL = {"+": "add", "*": "mul", "max": "max", "max_number": "max", "min": "min"}
_REDUCERS = {"+": SUM, "*": PROD, "max": MAX, "max_number": MAX_NUMBER, "min": MIN}


def fold_lanes(expressions: Expressions, node: Store) -> Value | None:
    """Return ``acc = acc op x`` with x in lanes: fold x across lanes; None for another form."""
    value, arithmetic, code = node.value, expressions.arithmetic, expressions.code
    if not isinstance(value, Binary) or value.op not in _HORIZONTAL:
        return None
    if not isinstance(value.a, Load) or value.a.buffer is not node.buffer:
        return None
    old, new = expressions.value(value.a), expressions.value(value.b)
    if old.lanes != 1:
        return None
    if old.dtype == "bfloat16":
        old, new = arithmetic.cast(old, "float32"), arithmetic.cast(new, "float32")
    if new.lanes == 1:
        new = code.splat(new, code.lanes)
    active = arithmetic.active_lanes()
    if active is not None:
        new = code.select(active, new, code.splat(_neutral(expressions, value.op, new.dtype), new.lanes))
    total = _across(expressions, value.op, new)
    if is_float(old.dtype):
        return arithmetic.cast(arithmetic.float_op(value.op, old, total), value.dtype)
    return arithmetic.int_op(value.op, old, total)


def _neutral(expressions: Expressions, op: str, dtype: str) -> Value:
    (value,) = _REDUCERS[op].identity((dtype,))
    return expressions.value(value)


def _across(expressions: Expressions, op: str, value: Value) -> Value:
    code, kind, scalar = expressions.code, type_of(value), scalar_type(value.dtype)
    name = _HORIZONTAL[op]
    if is_float(value.dtype) and name in ("max", "min"):
        return _extreme_lane(expressions, op, value)
    if is_float(value.dtype):
        name = "f" + name
    elif name in ("max", "min"):
        name = ("u" if is_unsigned(value.dtype) else "s") + name
    symbol = f"@llvm.vector.reduce.{name}.{suffix(value.dtype, value.lanes)}"
    if name in ("fadd", "fmul"):
        start = "-0.0" if name == "fadd" else "1.0"
        code.module.declare(f"declare {scalar} {symbol}({scalar}, {kind})")
        text = f"call reassoc {scalar} {symbol}({scalar} {start}, {kind} {value.text})"
    else:
        code.module.declare(f"declare {scalar} {symbol}({kind})")
        text = f"call {scalar} {symbol}({kind} {value.text})"
    return Value(code.op(text), value.dtype)


def _extreme_lane(expressions: Expressions, op: str, value: Value) -> Value:
    """Return the largest or smallest lane, or a NaN, by halves; LLVM's reduction also orders zeros of both signs."""
    code, float_op = expressions.code, expressions.arithmetic.float_op
    if op == "max_number":  # its left operand is never NaN
        value = float_op(op, _neutral(expressions, op, value.dtype), value)
    while value.lanes > 2:
        half, kind = value.lanes // 2, type_of(value)
        parts = []
        for start in (0, half):
            order = ", ".join(f"i32 {start + n}" for n in range(half))
            text = f"shufflevector {kind} {value.text}, {kind} poison, <{half} x i32> <{order}>"
            parts.append(Value(code.op(text), value.dtype, half))
        value = float_op(op, *parts)
    lanes = [f"extractelement {type_of(value)} {value.text}, i64 {n}" for n in range(value.lanes)]
    return float_op(op, *[Value(code.op(text), value.dtype) for text in lanes])


__all__ = ["fold_lanes"]
