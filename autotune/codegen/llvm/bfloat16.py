"""bfloat16 to float32 and back by integer instructions, the same on every target and without a library.

The bits of a bfloat16 are the upper half of a float32.
"""

from __future__ import annotations

from autotune.codegen.llvm.types import Value, number
from autotune.codegen.llvm.writer import Writer


def from_bfloat16(w: Writer, value: Value) -> Value:
    """Return the float32 of a bfloat16: exact."""
    wide = w.converted("zext", value, "int32")
    return w.converted("bitcast", w.binary("shl nuw", wide, _word(w, 16, wide)), "float32")


def to_bfloat16(w: Writer, value: Value) -> Value:
    """Return a float32 rounded to the nearest bfloat16, ties to even; a NaN stays one, made quiet.

    Adding 0x7fff, and one more where the last bit kept is set, carries into the bits kept exactly where the
    nearest is above; the carry out of the fraction counts the exponent up, to infinity beyond the largest.
    """
    word = w.converted("bitcast", value, "int32")
    upper = w.binary("lshr", word, _word(w, 16, word))
    odd = w.binary("and", upper, _word(w, 1, word))
    moved = w.binary("add", word, w.binary("add", odd, _word(w, 0x7FFF, word)))
    nearest = w.binary("lshr", moved, _word(w, 16, word))
    # The bit that makes a NaN quiet, set also where all bits of its payload were in the lower half.
    quiet = w.binary("or", upper, _word(w, 0x40, word))
    return w.converted("trunc", w.select(w.compared("fcmp uno", value, value), quiet, nearest), "bfloat16")


def _word(w: Writer, value: int, like: Value) -> Value:
    return w.splat(number(value, "int32"), like.lanes)


__all__ = ["from_bfloat16", "to_bfloat16"]
