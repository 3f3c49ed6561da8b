"""The lanes of a vector to one value: what a vectorized reduction loop adds to its accumulator."""

from __future__ import annotations

from autotune.codegen.llvm.buffers import BufferEmitter
from autotune.codegen.llvm.types import Value, scalar_type, suffix, type_of
from autotune.lower.ir import Load, Store
from autotune.te.dtypes import is_float, is_unsigned
from autotune.te.expr import Binary
from autotune.te.operations import MAX, MAX_NUMBER, MIN, PROD, SUM

_HORIZONTAL = {"+": "add", "*": "mul", "max": "max", "max_number": "max", "min": "min"}
_REDUCERS = {"+": SUM, "*": PROD, "max": MAX, "max_number": MAX_NUMBER, "min": MIN}


class FoldEmitter(BufferEmitter):
    """Folds lanes by the operation of the store that they belong to."""

    def fold_lanes(self, node: Store) -> Value | None:
        """``acc = acc op x`` with x in lanes: fold x across lanes; None for another form."""
        value = node.value
        if not isinstance(value, Binary) or value.op not in _HORIZONTAL:
            return None
        if not isinstance(value.a, Load) or value.a.buffer is not node.buffer:
            return None
        old, new = self.expr(value.a), self.expr(value.b)
        if old.lanes != 1:
            return None
        if old.dtype == "bfloat16":
            old, new = self.cast(old, "float32"), self.cast(new, "float32")
        if new.lanes == 1:
            new = self.splat(new, self.lanes)
        active = self.active_lanes()
        if active is not None:
            neutral = self.splat(self._neutral(value.op, new.dtype), new.lanes)
            text = (
                f"select {type_of(active)} {active.text}, "
                f"{type_of(new)} {new.text}, {type_of(new)} {neutral.text}"
            )
            new = Value(self.op(text), new.dtype, new.lanes)
        total = self._across(value.op, new)
        if is_float(old.dtype):
            return self.cast(self.float_op(value.op, old, total), value.dtype)
        return self.int_op(value.op, old, total)

    def _neutral(self, op: str, dtype: str) -> Value:
        (value,) = _REDUCERS[op].identity((dtype,))
        return self.expr(value)

    def _extreme_lane(self, op: str, value: Value) -> Value:
        """The largest or smallest lane, or a NaN, by halves; LLVM's reduction also orders zeros of both signs."""
        if op == "max_number":  # its left operand is never NaN
            value = self.float_op(op, self._neutral(op, value.dtype), value)
        while value.lanes > 2:
            half, kind = value.lanes // 2, type_of(value)
            parts = []
            for start in (0, half):
                order = ", ".join(f"i32 {start + n}" for n in range(half))
                text = f"shufflevector {kind} {value.text}, {kind} poison, <{half} x i32> <{order}>"
                parts.append(Value(self.op(text), value.dtype, half))
            value = self.float_op(op, *parts)
        lanes = [f"extractelement {type_of(value)} {value.text}, i64 {n}" for n in range(value.lanes)]
        return self.float_op(op, *[Value(self.op(text), value.dtype) for text in lanes])

    def _across(self, op: str, value: Value) -> Value:
        kind, scalar = type_of(value), scalar_type(value.dtype)
        name = _HORIZONTAL[op]
        if is_float(value.dtype) and name in ("max", "min"):
            return self._extreme_lane(op, value)
        if is_float(value.dtype):
            name = "f" + name
        elif name in ("max", "min"):
            name = ("u" if is_unsigned(value.dtype) else "s") + name
        symbol = f"@llvm.vector.reduce.{name}.{suffix(value.dtype, value.lanes)}"
        if name in ("fadd", "fmul"):
            start = "-0.0" if name == "fadd" else "1.0"
            self.module.declare(f"declare {scalar} {symbol}({scalar}, {kind})")
            text = f"call reassoc {scalar} {symbol}({scalar} {start}, {kind} {value.text})"
        else:
            self.module.declare(f"declare {scalar} {symbol}({kind})")
            text = f"call {scalar} {symbol}({kind} {value.text})"
        return Value(self.op(text), value.dtype)


__all__ = ["FoldEmitter"]
