"""Numbers of eight bits and fewer to float32 or an integer of a byte and back, by integer instructions."""

from __future__ import annotations

from autotune.codegen.llvm.types import Value, constant, number
from autotune.codegen.llvm.writer import Writer
from autotune.te.narrow import NARROW_FLOATS, NARROW_INTEGERS, NarrowFloat

_MANTISSA, _BIAS = 23, 127
"""Of float32."""


def from_narrow_float(w: Writer, value: Value) -> Value:
    """Return the float32 of a narrow number: exact.

    The bits in the place of float32's exponent and mantissa are the number by a power of two, subnormal ones too.
    """
    form = NARROW_FLOATS[value.dtype]
    word = w.converted("zext", value, "int32")
    size = w.binary("and", word, _word(w, form.sign - 1, word))
    placed = w.binary("shl", size, _word(w, _MANTISSA - form.mantissa, word))
    scaled = w.binary("fmul", _float(w, placed), _real(w, 2.0 ** (_BIAS - form.bias), word))
    bits = w.converted("bitcast", scaled, "int32")
    if form.beyond == "ieee":
        special = w.compared("icmp ugt", size, _word(w, form.largest, word))
        bits = w.select(special, w.binary("or", placed, _word(w, 0x7F800000, word)), bits)
    elif form.beyond in ("nan", "sign"):
        special = w.compared("icmp eq", size if form.beyond == "nan" else word, _word(w, form.nan, word))
        bits = w.select(special, _word(w, 0x7FC00000, word), bits)
    shift = _word(w, 31 - form.exponent - form.mantissa, word)
    sign = w.binary("shl", w.binary("and", word, _word(w, form.sign, word)), shift)
    return _float(w, w.binary("or", bits, sign))


def to_narrow_float(w: Writer, value: Value, dtype: str) -> Value:
    """Return a float32 rounded once, as ``autotune.te.narrow`` says."""
    form = NARROW_FLOATS[dtype]
    word = w.converted("bitcast", value, "int32")
    size = w.binary("and", word, _word(w, 0x7FFFFFFF, word))
    least = 2.0 ** (1 - form.bias)
    small = w.compared("fcmp olt", _float(w, size), _real(w, least, word))
    rounded = w.select(small, _subnormal(w, size, form), _normal(w, size, form))
    over = w.compared("icmp sgt", rounded, _word(w, form.largest, word))
    bits = w.select(over, _word(w, form.overflow, word), rounded)
    shift = _word(w, 31 - form.exponent - form.mantissa, word)
    sign = w.binary("and", w.binary("lshr", word, shift), _word(w, form.sign, word))
    signed = w.binary("or", bits, sign)
    if form.beyond == "sign":
        signed = w.select(w.compared("icmp eq", bits, _word(w, 0, word)), bits, signed)
    nan = _word(w, form.nan, word)
    nan = nan if form.beyond in ("sign", "none") else w.binary("or", nan, sign)
    return w.converted("trunc", w.select(w.compared("fcmp uno", value, value), nan, signed), dtype)


def _normal(w: Writer, size: Value, form: NarrowFloat) -> Value:
    """Return bits of a number whose exponent the format has; see ``to_bfloat16`` for the rounding."""
    drop = _MANTISSA - form.mantissa
    odd = w.binary("and", w.binary("lshr", size, _word(w, drop, size)), _word(w, 1, size))
    moved = w.binary("add", size, w.binary("add", odd, _word(w, (1 << (drop - 1)) - 1, size)))
    kept = w.binary("lshr", moved, _word(w, drop, size))
    return w.binary("sub", kept, _word(w, (_BIAS - form.bias) << form.mantissa, size))


def _subnormal(w: Writer, size: Value, form: NarrowFloat) -> Value:
    """Return bits of a smaller number: steps of the least one, counted by a sum whose last bit is one step."""
    ruler = _real(w, 2.0 ** (1 - form.bias - form.mantissa + _MANTISSA), size)
    total = w.converted("bitcast", w.binary("fadd", _float(w, size), ruler), "int32")
    return w.binary("sub", total, w.converted("bitcast", ruler, "int32"))


def from_narrow_integer(w: Writer, value: Value) -> Value:
    """Return the int8 or uint8 of a narrow integer, whose bits are the low ones of its byte."""
    unused = 8 - NARROW_INTEGERS[value.dtype]
    wide = "uint8" if value.dtype.startswith("u") else "int8"
    byte = Value(value.text, wide, value.lanes)
    shift = w.splat(number(unused, wide), value.lanes)
    return w.binary("lshr" if wide == "uint8" else "ashr", w.binary("shl", byte, shift), shift)


def to_narrow_integer(w: Writer, value: Value, dtype: str) -> Value:
    """Return the low bits of an integer of a byte."""
    mask = w.splat(number((1 << NARROW_INTEGERS[dtype]) - 1, value.dtype), value.lanes)
    kept = w.binary("and", value, mask)
    return Value(kept.text, dtype, value.lanes)


def _word(w: Writer, value: int, like: Value) -> Value:
    return w.splat(number(value, "int32"), like.lanes)


def _real(w: Writer, value: float, like: Value) -> Value:
    return w.splat(Value(constant(value, "float32"), "float32"), like.lanes)


def _float(w: Writer, bits: Value) -> Value:
    return w.converted("bitcast", bits, "float32")


__all__ = ["from_narrow_float", "from_narrow_integer", "to_narrow_float", "to_narrow_integer"]
