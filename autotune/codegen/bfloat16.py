"""Conversions of 16-bit floats that targets have no instruction for, by integer instructions.

They are the same on every target and need no library.
"""

from __future__ import annotations

from autotune.codegen.types import Value, type_of, vector
from autotune.codegen.writer import Writer


class Bfloat16(Writer):
    """Converts the bits of bfloat16, which are the upper half of a float32."""

    def from_bfloat16(self, value: Value) -> Value:
        """The float32 of a bfloat16: exact."""
        bits, floats = vector("i32", value.lanes), vector("float", value.lanes)
        wide = self.op(f"zext {type_of(value)} {value.text} to {bits}")
        upper = self.op(f"shl nuw {bits} {wide}, {self._word(16, value.lanes)}")
        return Value(self.op(f"bitcast {bits} {upper} to {floats}"), "float32", value.lanes)

    def to_bfloat16(self, value: Value) -> Value:
        """A float32 rounded to the nearest bfloat16, ties to even; a NaN stays one, made quiet.

        Adding 0x7fff, and one more where the last bit kept is set, carries into the bits kept exactly where the
        nearest is above; the carry out of the fraction counts the exponent up, to infinity beyond the largest.
        """
        lanes = value.lanes
        bits, narrow = vector("i32", lanes), vector("i16", lanes)
        word = self.op(f"bitcast {type_of(value)} {value.text} to {bits}")
        upper = self.op(f"lshr {bits} {word}, {self._word(16, lanes)}")
        odd = self.op(f"and {bits} {upper}, {self._word(1, lanes)}")
        bias = self.op(f"add {bits} {odd}, {self._word(0x7FFF, lanes)}")
        moved = self.op(f"add {bits} {word}, {bias}")
        nearest = self.op(f"lshr {bits} {moved}, {self._word(16, lanes)}")
        # The bit that makes a NaN quiet, set also where all bits of its payload were in the lower half.
        quiet = self.op(f"or {bits} {upper}, {self._word(0x40, lanes)}")
        unordered = self.op(f"fcmp uno {type_of(value)} {value.text}, {value.text}")
        flag = vector("i1", lanes)
        chosen = self.op(f"select {flag} {unordered}, {bits} {quiet}, {bits} {nearest}")
        return Value(self.op(f"trunc {bits} {chosen} to {narrow}"), "bfloat16", lanes)

    def to_odd(self, value: Value) -> Value:
        """A float64 as a float32 rounded to odd: what is not exact is cut off, and its last bit set.

        A further rounding to a type of at least two bits less is then the only one: the last bit says on which
        side of a tie the number was (Boldo and Melquiond, "When double rounding is odd").
        """
        lanes, flag = value.lanes, vector("i1", value.lanes)
        bits, wide, narrow = vector("i32", lanes), type_of(value), vector("float", lanes)
        near = Value(self.op(f"fptrunc {wide} {value.text} to {narrow}"), "float32", lanes)
        back = Value(self.op(f"fpext {narrow} {near.text} to {wide}"), "float64", lanes)
        sizes = [self._magnitude(v) for v in (back, value)]
        beyond = self.op(f"fcmp ogt {wide} {sizes[0]}, {sizes[1]}")
        word = self.op(f"bitcast {narrow} {near.text} to {bits}")
        step = self.op(f"sext {flag} {beyond} to {bits}")
        cut = self.op(f"add {bits} {word}, {step}")
        inexact = self.op(f"fcmp one {wide} {back.text}, {value.text}")
        last = self.op(f"zext {flag} {inexact} to {bits}")
        odd = self.op(f"or {bits} {cut}, {last}")
        return Value(self.op(f"bitcast {bits} {odd} to {narrow}"), "float32", lanes)

    def _magnitude(self, value: Value) -> str:
        """Of a float64, by its bits."""
        words, lanes = vector("i64", value.lanes), value.lanes
        word = self.op(f"bitcast {type_of(value)} {value.text} to {words}")
        mask = self.splat(Value(str((1 << 63) - 1), "int64"), lanes).text
        return self.op(f"bitcast {words} {self.op(f'and {words} {word}, {mask}')} to {type_of(value)}")

    def _word(self, value: int, lanes: int) -> str:
        return self.splat(Value(str(value), "int32"), lanes).text


__all__ = ["Bfloat16"]
