"""bfloat16 to float32 and back by integer instructions, the same on every target and without a library.

The bits of a bfloat16 are the upper half of a float32.
"""

from __future__ import annotations

from autotune.codegen.llvm.types import Value, number, type_of, vector
from autotune.codegen.llvm.writer import Writer


def from_bfloat16(w: Writer, value: Value) -> Value:
    """The float32 of a bfloat16: exact."""
    bits, floats = vector("i32", value.lanes), vector("float", value.lanes)
    wide = w.op(f"zext {type_of(value)} {value.text} to {bits}")
    upper = w.op(f"shl nuw {bits} {wide}, {_word(w, 16, value.lanes)}")
    return Value(w.op(f"bitcast {bits} {upper} to {floats}"), "float32", value.lanes)


def to_bfloat16(w: Writer, value: Value) -> Value:
    """A float32 rounded to the nearest bfloat16, ties to even; a NaN stays one, made quiet.

    Adding 0x7fff, and one more where the last bit kept is set, carries into the bits kept exactly where the
    nearest is above; the carry out of the fraction counts the exponent up, to infinity beyond the largest.
    """
    lanes = value.lanes
    bits, narrow = vector("i32", lanes), vector("i16", lanes)
    word = w.op(f"bitcast {type_of(value)} {value.text} to {bits}")
    upper = w.op(f"lshr {bits} {word}, {_word(w, 16, lanes)}")
    odd = w.op(f"and {bits} {upper}, {_word(w, 1, lanes)}")
    bias = w.op(f"add {bits} {odd}, {_word(w, 0x7FFF, lanes)}")
    moved = w.op(f"add {bits} {word}, {bias}")
    nearest = w.op(f"lshr {bits} {moved}, {_word(w, 16, lanes)}")
    # The bit that makes a NaN quiet, set also where all bits of its payload were in the lower half.
    quiet = w.op(f"or {bits} {upper}, {_word(w, 0x40, lanes)}")
    unordered = w.op(f"fcmp uno {type_of(value)} {value.text}, {value.text}")
    chosen = w.op(f"select {vector('i1', lanes)} {unordered}, {bits} {quiet}, {bits} {nearest}")
    return Value(w.op(f"trunc {bits} {chosen} to {narrow}"), "bfloat16", lanes)


def _word(w: Writer, value: int, lanes: int) -> str:
    return w.splat(number(value, "int32"), lanes).text


__all__ = ["from_bfloat16", "to_bfloat16"]
