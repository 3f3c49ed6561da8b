"""Functions for numbers of eight bits and fewer, which lie in bytes: to float32 or an integer of a byte, and back.

As :mod:`autotune.te.narrow` defines them; see :mod:`autotune.codegen.llvm.narrow` for how the bits are found.
"""

from __future__ import annotations

import struct

from autotune.te.narrow import NARROW_FLOATS, NARROW_INTEGERS, NarrowFloat

_MANTISSA, _BIAS = 23, 127
"""Of float32."""


def widened(dtype: str) -> tuple[str, str]:
    """Return the function that widens a number, and the type that it gives.

    >>> widened("float8_e5m2"), widened("uint4")
    (('float8_e5m2_to_float', 'float32'), ('uint4_to_uint8', 'uint8'))
    """
    if dtype in NARROW_FLOATS:
        return f"{dtype}_to_float", "float32"
    wide = "uint8" if dtype.startswith("u") else "int8"
    return f"{dtype}_to_{wide}", wide


def narrowed(dtype: str) -> tuple[str, str]:
    """Return the function that gives the bits of a number, and the type that it takes.

    >>> narrowed("float4_e2m1fn"), narrowed("int2")
    (('float_to_float4_e2m1fn', 'float32'), ('int8_to_int2', 'int8'))
    """
    _, wide = widened(dtype)
    return f"{'float' if wide == 'float32' else wide}_to_{dtype}", wide


def narrow_definitions() -> dict[str, str]:
    """Return the texts of all these functions by their names."""
    texts = {}
    for dtype, form in NARROW_FLOATS.items():
        texts[widened(dtype)[0]] = _from_float(dtype, form)
        texts[narrowed(dtype)[0]] = _to_float(dtype, form)
    for dtype, bits in NARROW_INTEGERS.items():
        (widen, wide), (narrow, _) = widened(dtype), narrowed(dtype)
        texts[widen] = f'''
def {widen}(bits):
    """Return the number that the low bits of a byte are."""
    return np.{wide}(np.{wide}(np.{wide}(bits) << {8 - bits}) >> {8 - bits})'''
        texts[narrow] = f'''
def {narrow}(x):
    """Return the low bits of an integer of a byte."""
    return np.uint8(x & {(1 << bits) - 1})'''
    return texts


def _from_float(dtype: str, form: NarrowFloat) -> str:
    shift = 31 - form.exponent - form.mantissa
    special = ""
    if form.beyond == "ieee":
        special = f"\n    if size > {form.largest}:\n        word = placed | 0x7F800000"
    elif form.beyond in ("nan", "sign"):
        special = (
            f"\n    if {'size' if form.beyond == 'nan' else 'bits'} == {form.nan}:\n        word = 0x7FC00000"
        )
    return f'''
def {widened(dtype)[0]}(bits):
    """Return the float32 of the bits of a {dtype}."""
    size = np.int64(bits) & {form.sign - 1}
    placed = size << {_MANTISSA - form.mantissa}
    scaled = np.uint32(placed).view(np.float32) * np.float32({2.0 ** (_BIAS - form.bias)!r})
    word = np.int64(np.float32(scaled).view(np.uint32)){special}
    return np.uint32(word | (np.int64(bits) & {form.sign}) << {shift}).view(np.float32)'''


def _to_float(dtype: str, form: NarrowFloat) -> str:
    shift, drop = 31 - form.exponent - form.mantissa, _MANTISSA - form.mantissa
    rebias = (_BIAS - form.bias) << form.mantissa
    least = 2.0 ** (1 - form.bias)
    ruler = 2.0 ** (1 - form.bias - form.mantissa + _MANTISSA)
    (ruler_bits,) = struct.unpack("I", struct.pack("f", ruler))
    nan = f"{form.nan}" if form.beyond in ("sign", "none") else f"{form.nan} | sign"
    zero = "\n    if bits == 0:\n        sign = 0" if form.beyond == "sign" else ""
    return f'''
def {narrowed(dtype)[0]}(x):
    """Return the bits of the {dtype} nearest to a float32."""
    word = np.int64(np.float32(x).view(np.uint32))
    size = word & 0x7FFFFFFF
    sign = (word >> {shift}) & {form.sign}
    if x != x:
        return np.uint8({nan})
    if abs(x) < {least!r}:
        total = abs(x) + np.float32({ruler!r})
        bits = np.int64(np.float32(total).view(np.uint32)) - {ruler_bits}
    else:
        bits = ((size + {(1 << (drop - 1)) - 1} + ((size >> {drop}) & 1)) >> {drop}) - {rebias}
    if bits > {form.largest}:
        bits = {form.overflow}{zero}
    return np.uint8(bits | sign)'''


__all__ = ["narrow_definitions", "narrowed", "widened"]
