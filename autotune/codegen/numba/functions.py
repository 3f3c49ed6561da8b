"""Functions that printed modules bring along: what Python, NumPy and numba leave undefined, defined as everywhere.

A module has those that it calls.
"""

from __future__ import annotations

from collections.abc import Collection

from autotune.codegen.numba.narrow import narrow_definitions, widened
from autotune.te.dtypes import integer_limits, is_unsigned
from autotune.te.narrow import NARROW_INTEGERS

DECORATOR = '@njit(nogil=True, error_model="numpy")'
"""Divisions by zero give what NumPy gives, and raise nothing."""

_FIXED = {
    # F. Giesen, "Half to float done quick" and its reverse, as in codegen/llvm/half_precision.py. A NaN keeps its bits.
    "half_to_float": '''
def half_to_float(bits):
    """Return the float32 of the bits of a float16."""
    placed = np.uint32(np.uint32(bits & 0x7FFF) << 13)
    normal = np.uint32(placed + 0x38000000)
    if bits & 0x7C00 == 0x7C00:
        normal = np.uint32(placed | 0x7F800000)
    elif bits & 0x7C00 == 0:
        subnormal = np.uint32(normal + 0x00800000).view(np.float32) - np.uint32(0x38800000).view(np.float32)
        normal = np.float32(subnormal).view(np.uint32)
    return np.uint32(normal | (np.uint32(bits & 0x8000) << 16)).view(np.float32)''',
    "float_to_half": '''
def float_to_half(x):
    """Return the bits of the float16 nearest to a float32."""
    word = np.int64(np.float32(x).view(np.uint32))
    magnitude = word & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        bits = 0x7C00 | max((magnitude >> 13) & 0x3FF, 1)
    elif magnitude >= 0x47800000:
        bits = 0x7C00
    elif magnitude < 0x38800000:
        total = np.uint32(magnitude).view(np.float32) + np.float32(0.5)
        bits = np.int64(np.float32(total).view(np.uint32)) - 0x3F000000
    else:
        bits = (magnitude - 0x37FFF001 + ((magnitude >> 13) & 1)) >> 13
    return np.uint16(bits | ((word >> 16) & 0x8000))''',
    "round_to_half": '''
def round_to_half(x):
    """Return a float32 rounded to what a float16 holds."""
    return half_to_float(float_to_half(x))''',
    "brain_to_float": '''
def brain_to_float(bits):
    """Return the float32 of the bits of a bfloat16."""
    return np.uint32(np.uint32(bits) << 16).view(np.float32)''',
    "float_to_brain": '''
def float_to_brain(x):
    """Return the bits of the bfloat16 nearest to a float32."""
    word = np.int64(np.float32(x).view(np.uint32))
    if x != x:
        return np.uint16(word >> 16 if word & 0x7F0000 else (word >> 16) | 0x40)
    return np.uint16((word + 0x7FFF + ((word >> 16) & 1)) >> 16)''',
    "round_to_brain": '''
def round_to_brain(x):
    """Return a float32 rounded to what a bfloat16 holds."""
    return brain_to_float(float_to_brain(x))''',
    "odd_single": '''
def odd_single(x):
    """Return a float64 rounded to the neighbouring float32 with an odd last bit, which can be rounded further."""
    y = np.float32(x)
    word = np.float32(y).view(np.uint32)
    if np.float64(y) == x or x != x or word & 1:
        return y
    return np.uint32(word + 1 if abs(np.float64(y)) < abs(x) else word - 1).view(np.float32)''',
    "sigmoid": '''
def sigmoid(x):
    """Return 1 / (1 + exp(-x)), by an exponential that does not overflow."""
    e = np.exp(-abs(x))
    return (e if x < 0 else 1.0) / (1.0 + e)''',
    "order_key_float32": '''
def order_key_float32(x):
    """Return an integer that is ordered as numbers are, NaN last."""
    bits = np.float32(x).view(np.int32)
    return np.int32(0x7FFFFFFF if x != x else -0x80000000 - bits if bits < 0 else bits)''',
    "order_key_float64": '''
def order_key_float64(x):
    """Return an integer that is ordered as numbers are, NaN last."""
    bits = np.float64(x).view(np.int64)
    return 0x7FFFFFFFFFFFFFFF if x != x else -0x8000000000000000 - bits if bits < 0 else bits''',
    "order_key_float16": '''
def order_key_float16(x):
    """Return an integer that is ordered as numbers are, NaN last."""
    bits = np.uint16(float_to_half(x)).view(np.int16)
    return np.int16(0x7FFF if x != x else -0x8000 - bits if bits < 0 else bits)''',
    "order_key_bfloat16": '''
def order_key_bfloat16(x):
    """Return an integer that is ordered as numbers are, NaN last."""
    bits = np.uint16(float_to_brain(x)).view(np.int16)
    return np.int16(0x7FFF if x != x else -0x8000 - bits if bits < 0 else bits)''',
    "minimum": '''
def minimum(a, b):
    """Return the smaller number; NaN where one is."""
    return a if a < b or a != a else b''',
    "maximum": '''
def maximum(a, b):
    """Return the larger number; NaN where one is."""
    return a if a > b or a != a else b''',
    "max_number": '''
def max_number(a, b):
    """Return the larger number; a where b is NaN."""
    return b if b > a else a''',
    "floor_divide": '''
def floor_divide(a, b):
    """Return the quotient rounded down; 0 by zero."""
    if b == 0:
        return b
    return -a if b == -1 else a // b''',
    "floor_modulo": '''
def floor_modulo(a, b):
    """Return the remainder with the sign of b; 0 by zero."""
    return b - b if b == 0 or b == -1 else a % b''',
    "unsigned_divide": '''
def unsigned_divide(a, b):
    """Return the quotient; 0 by zero."""
    return a // b if b != 0 else b''',
    "unsigned_modulo": '''
def unsigned_modulo(a, b):
    """Return the remainder; 0 by zero."""
    return a % b if b != 0 else b''',
    **narrow_definitions(),
}
_NEEDS = {
    "round_to_half": ("half_to_float", "float_to_half"),
    "round_to_brain": ("brain_to_float", "float_to_brain"),
    "order_key_float16": ("float_to_half",),
    "order_key_bfloat16": ("float_to_brain",),
}

_SHIFT = '''
def {name}(a, b):
    """Return a {sign} b; by {width} bits or more, or less than none, no bit of a is left."""
    return np.{dtype}(a {sign} b if 0 <= b and b < {width} else {beyond})'''
_SATURATED = '''
def {name}(x):
    """Return x toward zero, within the limits of {dtype}; 0 of NaN."""
    if x >= {high!r}:
        return np.{held}({most})
    if x <= {low!r}:
        return np.{held}({least})
    return np.{held}(x) if x == x else np.{held}(0)'''


def definition(name: str) -> str:
    """Return the text of a function: a fixed one, or ``left_shift_int8``, ``float_to_uint8`` and their like."""
    if name in _FIXED:
        return _FIXED[name]
    kind, _, dtype = name.rpartition("_")
    low, high = integer_limits(dtype)
    if kind == "float_to":  # limits that are compared with are powers of two, or short: exact
        limits = {"high": float(high + 1), "low": float(low), "most": high, "least": low}
        held = widened(dtype)[1] if dtype in NARROW_INTEGERS else dtype
        return _SATURATED.format(name=name, dtype=dtype, held=held, **limits)
    sign = "<<" if kind == "left_shift" else ">>"
    beyond = "(-1 if a < 0 else 0)" if sign == ">>" and not is_unsigned(dtype) else f"np.{dtype}(0)"
    width = (high - low + 1).bit_length() - 1
    return _SHIFT.format(name=name, dtype=dtype, sign=sign, width=width, beyond=beyond)


def definitions(names: Collection[str]) -> list[str]:
    """Return the texts of functions, and of those that they call."""
    wanted = {need for name in names for need in (*_NEEDS.get(name, ()), name)}
    order = {name: n for n, name in enumerate(_FIXED)}
    in_order = sorted(wanted, key=lambda name: (order.get(name, len(order)), name))
    return [f"{DECORATOR}\n{definition(name).strip()}" for name in in_order]


FUNCTIONS = frozenset(_FIXED)
"""Names that are taken."""

__all__ = ["DECORATOR", "FUNCTIONS", "definition", "definitions"]
