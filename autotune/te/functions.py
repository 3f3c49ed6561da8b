"""Functions of single values: elementary functions, rounding, and integer division. Names follow TVM 0.18's ``te``."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from autotune.target import ITEM_BYTES
from autotune.te.dtypes import HALVES, dtype_named, integer_limits, is_float, is_unsigned
from autotune.te.expr import (
    Call,
    Const,
    Expr,
    ExprLike,
    as_expr,
    binary,
    cast,
    compare,
    const,
    operands,
    select,
)


def _float_call(name: str, *args: ExprLike) -> Expr:
    exprs = [as_expr(a) for a in args]
    dtype = next((e.dtype for e in exprs if is_float(e.dtype)), "float32")
    return Call(name, tuple(cast(e, dtype) for e in exprs), dtype)


def exp(x: ExprLike) -> Expr:
    """Return e to the power of x."""
    return _float_call("exp", x)


def exp_nonpositive(x: ExprLike) -> Expr:
    """Return e to the power of x, which is not above 0; a result below the smallest normal number may be 0.

    A third of the instructions of :func:`exp` scale results to all exponents, and keep large arguments in range.
    """
    return _float_call("exp_nonpositive", x)


def exp2(x: ExprLike) -> Expr:
    """Return 2 to the power of x."""
    return _power_of(2, x)


def exp10(x: ExprLike) -> Expr:
    """Return 10 to the power of x."""
    return _power_of(10, x)


def _power_of(base: int, x: ExprLike) -> Expr:
    exponent = as_expr(x)
    dtype = exponent.dtype if is_float(exponent.dtype) else "float32"
    return _float_call("pow", const(base, dtype), exponent)


def log(x: ExprLike) -> Expr:
    """Return the natural logarithm."""
    return _float_call("log", x)


def log1p(x: ExprLike) -> Expr:
    """Return the natural logarithm of 1 + x, accurate for small x."""
    return _float_call("log1p", x)


def log2(x: ExprLike) -> Expr:
    """Return the logarithm to the base 2, exact for powers of two."""
    return _float_call("log2", x)


def log10(x: ExprLike) -> Expr:
    """Return the logarithm to the base 10."""
    return _float_call("log10", x)


def sin(x: ExprLike) -> Expr:
    """Return the sine of x in radians, for x of any size."""
    return _float_call("sin", x)


def cos(x: ExprLike) -> Expr:
    """Return the cosine of x in radians, for x of any size."""
    return _float_call("cos", x)


def tan(x: ExprLike) -> Expr:
    """Return the tangent of x in radians, for x of any size."""
    return _float_call("tan", x)


def sinh(x: ExprLike) -> Expr:
    """Return the hyperbolic sine."""
    return _float_call("sinh", x)


def cosh(x: ExprLike) -> Expr:
    """Return the hyperbolic cosine."""
    return _float_call("cosh", x)


def atan(x: ExprLike) -> Expr:
    """Return the inverse tangent in radians."""
    return _float_call("atan", x)


def asin(x: ExprLike) -> Expr:
    """Return the inverse sine in radians; NaN outside of [-1, 1]."""
    return _in_single(x, lambda v: 2.0 * atan(v / (1.0 + sqrt((1.0 - v) * (1.0 + v)))))


def acos(x: ExprLike) -> Expr:
    """Return the inverse cosine in radians; NaN outside of [-1, 1]."""
    return _in_single(x, lambda v: 2.0 * atan(sqrt((1.0 - v) / (1.0 + v))))


def asinh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic sine, of x of any size."""

    def of(value: Expr) -> Expr:
        size = abs(value)
        inverse = 1.0 / size
        less = log1p(size + size / (inverse + sqrt(inverse * inverse + 1.0)))
        found = select(size < _LARGE, less, log(size) + _LN2)
        return select(value < 0.0, -found, select(value > 0.0, found, value))

    return _in_single(x, of)


def acosh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic cosine; NaN below 1."""

    def of(value: Expr) -> Expr:
        above = value - 1.0
        return select(value < _LARGE, log1p(above + sqrt(above) * sqrt(above + 2.0)), log(value) + _LN2)

    return _in_single(x, of)


def atanh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."""

    def of(value: Expr) -> Expr:
        size = abs(value)
        found = log1p(2.0 * size / (1.0 - size)) * 0.5
        return select(value < 0.0, -found, select(value > 0.0, found, value))

    return _in_single(x, of)


_LARGE, _LN2 = 1e15, 0.6931471805599453
"""From here on x**2 + 1 is x**2."""


def _in_single(x: ExprLike, of: Callable[[Expr], Expr]) -> Expr:
    """Return a function of several operations; of two bytes in float32, and rounded once."""
    value = as_expr(x)
    value = value if is_float(value.dtype) else cast(value, "float32")
    return cast(of(cast(value, "float32")), value.dtype) if value.dtype in HALVES else of(value)


def bitwise_and(a: ExprLike, b: ExprLike) -> Expr:
    """Return the bits that both integers have."""
    return _of_bits("bitwise_and", a, b)


def bitwise_or(a: ExprLike, b: ExprLike) -> Expr:
    """Return the bits that any of two integers has."""
    return _of_bits("bitwise_or", a, b)


def bitwise_xor(a: ExprLike, b: ExprLike) -> Expr:
    """Return the bits that one of two integers has."""
    return _of_bits("bitwise_xor", a, b)


def bitwise_not(x: ExprLike) -> Expr:
    """Return the bits that an integer does not have."""
    value = as_expr(x)
    low, high = integer_limits(value.dtype)
    return bitwise_xor(value, const(low + high if low else high, value.dtype))


def left_shift(a: ExprLike, b: ExprLike) -> Expr:
    """Return bits moved up by ``b``, zeros below; by the type's width or more it is 0."""
    return _of_bits("left_shift", a, b)


def right_shift(a: ExprLike, b: ExprLike) -> Expr:
    """Return bits moved down by ``b``, copies of the sign above; by the type's width or more it is 0 or -1."""
    return _of_bits("right_shift", a, b)


def _of_bits(name: str, a: ExprLike, b: ExprLike) -> Expr:
    x, y, dtype = operands(a, b)
    if is_float(dtype) or dtype == "bool":
        raise TypeError(f"te.{name} takes integers, got {dtype}")
    return Call(name, (x, y), dtype)


def popcount(x: ExprLike) -> Expr:
    """Return the number of ones among the bits of an integer, of its type.

    Neighbouring counts are added in parallel (Warren, Hacker's Delight, section 5-1).
    """
    value = as_expr(x)
    if is_float(value.dtype) or value.dtype == "bool":
        raise TypeError(f"te.popcount takes integers, got {value.dtype}")
    bits = 8 * ITEM_BYTES[value.dtype]
    dtype = f"uint{bits}"

    def repeated(byte: int) -> Expr:
        return const(int.from_bytes(bytes([byte] * (bits // 8)), "little"), dtype)

    def shifted(count: Expr, by: int) -> Expr:
        return right_shift(count, const(by, dtype))

    count = bitcast(value, dtype)
    count = count - bitwise_and(shifted(count, 1), repeated(0x55))
    count = bitwise_and(count, repeated(0x33)) + bitwise_and(shifted(count, 2), repeated(0x33))
    count = bitwise_and(count + shifted(count, 4), repeated(0x0F))
    return cast(shifted(count * repeated(0x01), bits - 8), value.dtype)


def bitcast(x: ExprLike, dtype: str) -> Expr:
    """Return the number of another type of the same size that has the bits of ``x``; not of bool."""
    value, dtype = as_expr(x), dtype_named(dtype)
    if value.dtype == dtype:
        return value
    sizes = [ITEM_BYTES[d] for d in (value.dtype, dtype)]
    if sizes[0] != sizes[1] or "bool" in (value.dtype, dtype):
        raise TypeError(f"te.bitcast takes types of one size that are not bool, got {value.dtype} to {dtype}")
    return Call(f"bitcast_{dtype}", (value,), dtype)


def sqrt(x: ExprLike) -> Expr:
    """Return the square root."""
    return _float_call("sqrt", x)


def rsqrt(x: ExprLike) -> Expr:
    """Return one over the square root."""
    return _float_call("rsqrt", x)


def erf(x: ExprLike) -> Expr:
    """Return Gauss error function."""
    return _float_call("erf", x)


def tanh(x: ExprLike) -> Expr:
    """Return the hyperbolic tangent."""
    return _float_call("tanh", x)


def sigmoid(x: ExprLike) -> Expr:
    """Return 1 / (1 + exp(-x))."""
    return _float_call("sigmoid", x)


def pow(x: ExprLike, y: ExprLike) -> Expr:
    """Return x to the power of y; small integer powers become products."""
    exponent = as_expr(y)
    base = as_expr(x)
    if isinstance(exponent, Const) and exponent.value in (1, 2, 3, 4) and is_float(base.dtype):
        result = base
        for _ in range(int(exponent.value) - 1):
            result = binary("*", result, base)
        return result
    return _float_call("pow", base, exponent)


def floor(x: ExprLike) -> Expr:
    """Return the largest integer not above x, as floating point."""
    return _float_call("floor", x)


def ceil(x: ExprLike) -> Expr:
    """Return the smallest integer not below x, as floating point."""
    return _float_call("ceil", x)


def trunc(x: ExprLike) -> Expr:
    """Return the integer next to x toward zero, as floating point."""
    return _float_call("trunc", x)


def isnan(x: ExprLike) -> Expr:
    """Return whether x is NaN."""
    value = as_expr(x)
    return compare("!=", value, value) if is_float(value.dtype) else const(False)


def isinf(x: ExprLike) -> Expr:
    """Return whether x is an infinity of either sign."""
    value = as_expr(x)
    return compare("==", abs(value), const(inf, value.dtype)) if is_float(value.dtype) else const(False)


def round(x: ExprLike) -> Expr:
    """Return the nearest integer, halves to even, as floating point."""
    return _float_call("round", x)


def abs(x: ExprLike) -> Expr:
    """Return the absolute value."""
    value = as_expr(x)
    if is_float(value.dtype):
        return Call("abs", (value,), value.dtype)
    if is_unsigned(value.dtype):
        return value
    return binary("max", value, binary("-", const(0, value.dtype), value))


_KEYS = {"float32": "int32", "float64": "int64"}


def order_key(x: ExprLike) -> Expr:
    """Return an integer of the width of a float32 or float64 that orders as it does.

    Zeros of both signs are equal, and every NaN is equal and beyond infinity. The integers are the floats' bits,
    those of negative numbers taken from the smallest integer.
    """
    value = as_expr(x)
    if value.dtype not in _KEYS:
        raise TypeError(f"te.order_key takes {' or '.join(_KEYS)}, got {value.dtype}")
    return Call("order_key", (value,), _KEYS[value.dtype])


def overwritten(x: Expr) -> Expr:
    """Return whether a result of the kernel lies in the memory that ``x`` is read of, an element of an operand.

    Machine code of CPUs may be run so; then the operand's elements are those of the result, until they are stored
    over. Everywhere else it is False.
    """
    return Call("overwritten", (x,), "bool")


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return the integer division rounding down."""
    return binary("//", a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """Return the remainder of the division that rounds down; it has the sign of the divisor."""
    return binary("%", a, b)


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return the integer division toward zero (C's), 0 by zero; ``floordiv`` is cheaper for indices,
    which are not negative."""
    x, y, dtype = operands(a, b)
    if is_unsigned(dtype):
        return binary("//", x, y)
    quotient = binary("//", x, y)
    rounded_down = binary("and", quotient < 0, binary("*", quotient, y) != x)
    return select(rounded_down, quotient + 1, quotient)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Return the remainder of the integer division toward zero, 0 by zero; it has the sign of the dividend."""
    x, y, dtype = operands(a, b)
    if is_unsigned(dtype):
        return binary("%", x, y)
    rest = binary("-", x, binary("*", truncdiv(x, y), y))
    nonzero = const(y.value != 0) if isinstance(y, Const) else compare("!=", y, 0)
    return select(nonzero, rest, const(0, dtype))


def fmod(a: ExprLike, b: ExprLike) -> Expr:
    """Return the remainder of the division toward zero (C's ``fmod``), exact; it has the sign of the dividend.

    Of floating-point numbers it is NaN by 0 and of an infinity, and ``a`` by an infinity; of integers 0 by 0.
    """
    x, y, dtype = operands(a, b)
    return Call("fmod", (x, y), dtype) if is_float(dtype) else truncmod(x, y)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """Return ``a / b`` of floating-point numbers; of integers the division toward zero, as in C."""
    x, y, dtype = operands(a, b)
    return binary("/", x, y) if is_float(dtype) else truncdiv(x, y)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return the integer division rounding up."""
    x, y, _ = operands(a, b)
    return -binary("//", -x, y)


def isfinite(x: ExprLike) -> Expr:
    """Return whether x is neither an infinity nor NaN."""
    value = as_expr(x)
    return compare("<", abs(value), const(inf, value.dtype)) if is_float(value.dtype) else const(True)


indexdiv = floordiv
indexmod = floormod
