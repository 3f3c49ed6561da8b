"""bfloat16 to float32 and back by integer instructions, the same on every target and without a library."""

from __future__ import annotations

from autotune.codegen.llvm.types import Value, type_of, vector
from autotune.codegen.llvm.writer import Writer


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

    def _word(self, value: int, lanes: int) -> str:
        return self.splat(Value(str(value), "int32"), lanes).text


__all__ = ["Bfloat16"]
