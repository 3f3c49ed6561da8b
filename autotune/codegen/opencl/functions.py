"""Functions of OpenCL C that code calls: what the language leaves undefined or to the device, defined as everywhere.

A program has those that it calls. Contraction into fused multiplications is off in them.
"""

from __future__ import annotations

from collections.abc import Collection

from autotune.codegen.opencl.types import register_type
from autotune.te.dtypes import integer_limits, is_unsigned

_HALF = {
    # F. Giesen, "Half to float done quick" and its reverse, as in codegen/llvm/half_precision.py.
    "at_from_half": """
static float at_from_half(ushort h) {
  const uint placed = (uint)(h & 0x7fff) << 13, exponent = placed & 0x0f800000U;
  const uint normal = placed + 0x38000000U;
  const uint subnormal = as_uint(as_float(normal + 0x00800000U) - as_float(0x38800000U));
  const uint value = exponent == 0x0f800000U ? (placed | 0x7f800000U) : exponent == 0 ? subnormal : normal;
  return as_float(value | ((uint)(h & 0x8000) << 16));
}""",
    "at_to_half": """
static ushort at_to_half(float x) {
  const uint word = as_uint(x), magnitude = word & 0x7fffffffU, shifted = magnitude >> 13;
  const uint normal = (magnitude + ((shifted & 1) + 0xc8000fffU)) >> 13;
  const uint subnormal = as_uint(as_float(magnitude) + 0.5f) - 0x3f000000U;
  const uint special = magnitude > 0x7f800000U ? ((shifted & 0x3ff) | 0x7e00U) : 0x7c00U;
  const uint value = magnitude >= 0x47800000U ? special : magnitude < 0x38800000U ? subnormal : normal;
  return (ushort)(value | ((word >> 16) & 0x8000U));
}""",
    "at_half": """
static float at_half(float x) { return at_from_half(at_to_half(x)); }""",
    "at_from_brain": """
static float at_from_brain(ushort h) { return as_float((uint)h << 16); }""",
    "at_to_brain": """
static ushort at_to_brain(float x) {
  const uint word = as_uint(x), upper = word >> 16;
  return (ushort)(x != x ? (upper | 0x40U) : (word + ((upper & 1) + 0x7fffU)) >> 16);
}""",
    "at_brain": """
static float at_brain(float x) { return at_from_brain(at_to_brain(x)); }""",
    "at_odd_single": """
/* A double rounded to the neighbouring float whose last bit is odd: rounded further, it is as if rounded once. */
static float at_odd_single(double x) {
  const float y = (float)x;
  const uint word = as_uint(y);
  if ((double)y == x || x != x || (word & 1)) return y;
  return as_float(fabs((double)y) < fabs(x) ? word + 1 : word - 1);
}""",
    "at_sigmoid_f": """
static float at_sigmoid_f(float x) {
  const float e = exp(-fabs(x)); /* which does not overflow where the result is small */
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}""",
    "at_sigmoid_d": """
static double at_sigmoid_d(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}""",
    "at_order_key_float32": """
static int at_order_key_float32(float x) {
  const int bits = as_int(x);
  return x != x ? INT_MAX : bits < 0 ? INT_MIN - bits : bits;
}""",
    "at_order_key_float64": """
static long at_order_key_float64(double x) {
  const long bits = as_long(x);
  return x != x ? LONG_MAX : bits < 0 ? LONG_MIN - bits : bits;
}""",
    "at_order_key_float16": """
static short at_order_key_float16(float x) {
  const short bits = as_short(at_to_half(x));
  return x != x ? SHRT_MAX : bits < 0 ? (short)(SHRT_MIN - bits) : bits;
}""",
    "at_order_key_bfloat16": """
static short at_order_key_bfloat16(float x) {
  const short bits = as_short(at_to_brain(x));
  return x != x ? SHRT_MAX : bits < 0 ? (short)(SHRT_MIN - bits) : bits;
}""",
}
_NEEDS = {
    "at_half": ("at_from_half", "at_to_half"),
    "at_brain": ("at_from_brain", "at_to_brain"),
    "at_order_key_float16": ("at_to_half",),
    "at_order_key_bfloat16": ("at_to_brain",),
}

_EXTREME = """
static {type} at_{op}_{dtype}({type} a, {type} b) {{ return a {compare} b || a != a ? a : b; }}"""
_MAX_NUMBER = """
static {type} at_max_number_{dtype}({type} a, {type} b) {{ return b > a ? b : a; }}"""
_WHOLE_EXTREME = """
static {type} at_{op}_{dtype}({type} a, {type} b) {{ return a {compare} b ? a : b; }}"""
_UNSIGNED_DIVISION = """
static {type} at_div_{dtype}({type} a, {type} b) {{ return b == 0 ? 0 : a / b; }}"""
_UNSIGNED_REMAINDER = """
static {type} at_mod_{dtype}({type} a, {type} b) {{ return b == 0 ? 0 : a % b; }}"""
# By -1 and 0 the quotient is a * b, which wraps, and there is no remainder.
_DIVISION = """
static {type} at_div_{dtype}({type} a, {type} b) {{
  if (b == 0 || b == -1) return ({type})(({unsigned})a * ({unsigned})b);
  const {type} quotient = a / b, rest = a % b;
  return quotient - (rest != 0 && (rest ^ b) < 0);
}}"""
_REMAINDER = """
static {type} at_mod_{dtype}({type} a, {type} b) {{
  if (b == 0 || b == -1) return 0;
  const {type} rest = a % b;
  return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;
}}"""
_SATURATED = """
static {to} at_{dtype}_of_{source}({type} x) {{
  return x >= {high} ? {most} : x <= {low} ? {least} : x == x ? ({to})x : 0;
}}"""


def definition(name: str) -> str:
    """Return the text of a function, or of a type: ``at_float8`` is a ``float8`` that lies where a
    ``float`` may lie."""
    if name in _HALF:
        return _HALF[name]
    kind, _, rest = name.removeprefix("at_").partition("_")
    if not rest:
        return f"typedef {kind} {name} __attribute__((aligned({8 if kind.startswith('double') else 4})));"
    if "_of_" in name:
        dtype, _, source = name.removeprefix("at_").partition("_of_")
        return _saturated(dtype, source)
    if name.startswith("at_max_number_"):
        dtype = name.removeprefix("at_max_number_")
        return _MAX_NUMBER.format(type=register_type(dtype), dtype=dtype)
    fields = {
        "type": register_type(rest),
        "dtype": rest,
        "op": kind,
        "compare": "<" if kind == "min" else ">",
    }
    if kind in ("min", "max"):
        return (_EXTREME if rest.startswith("float") else _WHOLE_EXTREME).format(**fields)
    fields["unsigned"] = "ulong" if rest == "int64" else "uint"
    if kind == "div":
        return (_UNSIGNED_DIVISION if is_unsigned(rest) else _DIVISION).format(**fields)
    return (_UNSIGNED_REMAINDER if is_unsigned(rest) else _REMAINDER).format(**fields)


def _saturated(dtype: str, source: str) -> str:
    """Return the floating point to an integer: toward zero, within its limits, 0 of NaN.

    The bounds that are compared with are powers of two, or short: exact in the floating-point type.
    """
    low, high = integer_limits(dtype)
    suffix = "" if source == "float64" else "f"
    names = {"int8": "CHAR", "int16": "SHRT", "int32": "INT", "int64": "LONG"}
    unsigned = {"uint8": "UCHAR_MAX", "uint16": "USHRT_MAX", "uint32": "UINT_MAX", "uint64": "ULONG_MAX"}
    most, least = (
        (unsigned[dtype], "0")
        if dtype in unsigned
        else (names[dtype].replace("CHAR", "SCHAR") + "_MAX", names[dtype].replace("CHAR", "SCHAR") + "_MIN")
    )
    return _SATURATED.format(
        to=register_type(dtype),
        dtype=dtype,
        source=source,
        type=register_type(source),
        high=f"{float(high + 1).hex()}{suffix}",
        low=f"({float(low).hex()}{suffix})",
        most=most,
        least=least,
    )


def definitions(names: Collection[str]) -> str:
    """Return the text of functions, and of those that they call."""
    wanted = {need for name in names for need in (*_NEEDS.get(name, ()), name)}
    order = {name: n for n, name in enumerate(_HALF)}
    if not wanted:
        return ""
    texts = [definition(name).strip() for name in sorted(wanted, key=lambda n: (order.get(n, len(order)), n))]
    return "\n".join(["#pragma OPENCL FP_CONTRACT OFF", *texts, "#pragma OPENCL FP_CONTRACT ON", ""])


__all__ = ["definition", "definitions"]
