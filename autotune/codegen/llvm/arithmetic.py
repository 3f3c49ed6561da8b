"""Arithmetic on values: one operation is one or a few instructions, scalar or in lanes.

Floating point to integers is the same on every machine. Numbers truncate toward zero and stay within the type's
limits; NaN becomes 0. The processor's conversion gives something of its own outside of its range, and so does LLVM's
``fptosi``; LLVM's saturating one works element by element. Here values are clamped before they are converted, which a
value that is clipped already pays nothing for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.bfloat16 import from_bfloat16, to_bfloat16
from autotune.codegen.llvm.division import floor_division
from autotune.codegen.llvm.narrow import (
    from_narrow_float,
    from_narrow_integer,
    to_narrow_float,
    to_narrow_integer,
)
from autotune.codegen.llvm.types import Value, constant, number, scalar_type, suffix, type_of, vector
from autotune.codegen.llvm.writer import Writer
from autotune.errors import BuildError
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import HALVES, float_limits, integer_limits, is_float, is_unsigned, wrapped
from autotune.te.expr import Binary, Const, Expr
from autotune.te.folding import folded, holds
from autotune.te.narrow import NARROW, NARROW_FLOATS

_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "and": "and", "or": "or"}
_FLOAT_COMPARE = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_INT_COMPARE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}

Bounds = tuple[float, float]
"""Least and largest value."""

UNBOUNDED: Bounds = (-math.inf, math.inf)


class ArithmeticEmitter:
    """Emits operations whose operands are values already."""

    def __init__(self, code: Writer) -> None:
        self.code = code
        self._symbols: dict[tuple[str, str, int], str] = {}

    @contextmanager
    def masked(self, mask: Value) -> Iterator[None]:
        """Keep lanes outside of ``mask`` from reading and writing."""
        code, old = self.code, self.code.mask
        code.mask = mask if old is None else self.int_op("and", old, mask)
        with code.memo:
            yield
        code.mask = old

    def active_lanes(self) -> Value | None:
        """Return the lanes that may access memory; None for all."""
        lanes, idle, mask = self.code.lanes, self.code.idle, self.code.mask
        if not idle:
            return mask
        bits = ", ".join(f"i1 {int(n < lanes - idle)}" for n in range(lanes))
        busy = Value(f"<{bits}>", "bool", lanes)
        return busy if mask is None else self.int_op("and", mask, busy)

    def intrinsic(self, name: str, dtype: str, lanes: int, *args: Value) -> Value:
        """Call ``llvm.<name>`` on operands of one type."""
        kind = vector(scalar_type(dtype), lanes)
        symbol = self._symbol(name, dtype, lanes, len(args))
        values = ", ".join([f"{kind} {a.text}" for a in args])
        return Value(self.code.op(f"call {kind} {symbol}({values})"), dtype, lanes)

    def _symbol(self, name: str, dtype: str, lanes: int, count: int) -> str:
        """Return the symbol of an intrinsic over ``count`` operands of one type, declared once."""
        key = (name, dtype, lanes)
        symbol = self._symbols.get(key)
        if symbol is None:
            kind = vector(scalar_type(dtype), lanes)
            symbol = self._symbols[key] = f"@llvm.{name}.{suffix(dtype, lanes)}"
            self.code.module.declare(f"declare {kind} {symbol}({', '.join([kind] * count)})")
        return symbol

    def negated(self, value: Value) -> Value:
        """Return the number with the other sign."""
        return Value(self.code.op(f"fneg {type_of(value)} {value.text}"), value.dtype, value.lanes)

    def inverted(self, flag: Value) -> Value:
        """Return a condition that holds where ``flag`` does not."""
        return self.code.binary("xor", flag, self.code.splat(Value("true", "bool"), flag.lanes))

    def float_op(self, op: str, a: Value, b: Value) -> Value:
        """Return a floating-point operation; on bfloat16 one of float32, rounded."""
        if a.dtype == "bfloat16":
            wide = self.float_op(op, self.cast(a, "float32"), self.cast(b, "float32"))
            return self.cast(wide, a.dtype)
        (a, b), _ = self.code.alike(a, b)
        if op in _FLOAT_OPS:
            return self.code.binary(_FLOAT_OPS[op], a, b)
        return self._if_beyond("max", b, a) if op == "max_number" else self._extreme(op, a, b)

    def _extreme(self, op: str, a: Value, b: Value) -> Value:
        """Return min or max of floating-point values, a NaN in either staying one as in NumPy.

        One instruction keeps the NaN of one operand, which is enough beside a constant. Else LLVM's ``maximum``
        looks at the other operand too, in what the target has for it; of zeros of both signs either will do.
        """
        if not a.text.startswith("%"):
            a, b = b, a
        if not b.text.startswith("%"):
            return self._if_beyond(op, b, a)
        kind, symbol = type_of(a), self._symbol(f"{op}imum", a.dtype, a.lanes, 2)
        text = f"call nsz {kind} {symbol}({kind} {a.text}, {kind} {b.text})"
        return Value(self.code.op(text), a.dtype, a.lanes)

    def _if_beyond(self, op: str, a: Value, b: Value) -> Value:
        """Return ``a`` where it is larger (smaller for min) than ``b``, else ``b``, also where one is NaN."""
        return self.code.select(self.code.compared(f"fcmp {'ogt' if op == 'max' else 'olt'}", a, b), a, b)

    def int_op(self, op: str, a: Value, b: Value) -> Value:
        """Return an integer or logical operation, folded when both operands are known, or the one that decides."""
        if a.number is not None and b.number is not None and a.dtype == "int64":
            return number(folded(op, a.number, b.number, a.dtype))
        if op in ("and", "or") and a.dtype == "bool":
            for known, other in ((a, b), (b, a)):
                if known.number is not None:
                    return known if bool(known.number) == (op == "or") else other
        if op in ("//", "%"):
            return floor_division(self.code, op, a, b)
        (a, b), lanes = self.code.alike(a, b)
        if op in _INT_OPS:
            return self.code.binary(_INT_OPS[op], a, b)
        if op in ("min", "max"):
            prefix = "u" if is_unsigned(a.dtype) else "s"
            return self.intrinsic(prefix + op, a.dtype, lanes, a, b)
        raise BuildError(f"no integer operation {op}")

    def compare_op(self, op: str, a: Value, b: Value) -> Value:
        """Return a comparison, folded when both operands are known."""
        if a.number is not None and b.number is not None:
            known = holds(op, a.number, b.number)
            return Value("true" if known else "false", "bool", 1, int(known))
        (a, b), _ = self.code.alike(a, b)
        if a.dtype == "bfloat16":
            a, b = self.cast(a, "float32"), self.cast(b, "float32")
        if is_float(a.dtype):
            return self.code.compared(f"fcmp {_FLOAT_COMPARE[op]}", a, b)
        code = _INT_COMPARE[op]
        if is_unsigned(a.dtype) and code.startswith("s"):
            code = "u" + code[1:]
        return self.code.compared(f"icmp {code}", a, b)

    def order_key(self, x: Value, dtype: str) -> Value:
        """Return the meaning of ``te.order_key``."""
        most = 2 ** (8 * ITEM_BYTES[dtype] - 1) - 1
        code = self.code
        top, least, zero = (code.splat(number(n, dtype), x.lanes) for n in (most, -most - 1, 0))
        word = code.converted("bitcast", x, dtype)
        below = code.compared("icmp slt", word, zero)
        key = code.select(below, code.binary("sub", least, word), word)
        return code.select(code.compared("fcmp uno", x, x), top, key)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value converted to another type."""
        old = value.dtype
        if old == dtype:
            return value
        if old in NARROW or dtype in NARROW:
            return self._narrow_cast(value, dtype)
        if value.number is not None and not is_float(dtype) and dtype != "bool":
            return number(wrapped(value.number, dtype), dtype)
        if old == "bfloat16":
            return self.cast(from_bfloat16(self.code, value), dtype)
        if dtype == "bfloat16":
            return to_bfloat16(self.code, self.cast(value, "float32"))
        if dtype == "bool":
            zero = self.code.splat(Value(constant(0, old), old), value.lanes)
            return self.code.compared("fcmp une" if is_float(old) else "icmp ne", value, zero)
        if is_float(old) and not is_float(dtype):
            return float_to_integer(self, value, dtype)
        unsigned = is_unsigned(old)
        if is_float(old) and is_float(dtype):
            code = "fpext" if ITEM_BYTES[dtype] > ITEM_BYTES[old] else "fptrunc"
        elif is_float(dtype):
            code = "uitofp" if unsigned else "sitofp"
        elif ITEM_BYTES[dtype] == ITEM_BYTES[old] and old != "bool":
            return Value(value.text, dtype, value.lanes)
        elif ITEM_BYTES[dtype] > ITEM_BYTES[old] or old == "bool":
            code = "zext" if unsigned else "sext"
        else:
            code = "trunc"
        return self.code.converted(code, value, dtype)

    def _narrow_cast(self, value: Value, dtype: str) -> Value:
        """Convert from or to a type of eight bits or fewer; from one to another by way of one that computes."""
        if value.dtype in NARROW_FLOATS:
            return self.cast(from_narrow_float(self.code, value), dtype)
        if value.dtype in NARROW:
            return self.cast(from_narrow_integer(self.code, value), dtype)
        if dtype in NARROW_FLOATS:
            return to_narrow_float(self.code, self.cast(value, "float32"), dtype)
        if is_float(value.dtype):
            value = float_to_integer(self, value, "int8", integer_limits(dtype))
        return to_narrow_integer(self.code, self.cast(value, "int8"), dtype)


def unclipped(node: Expr) -> tuple[Expr, Bounds]:
    """Return the operand of a chain of minima and maxima with constants, and the bounds; the node itself for others."""
    low, high = UNBOUNDED
    while isinstance(node, Binary) and node.op in ("min", "max") and is_float(node.dtype):
        value, bound = (node.b, node.a) if isinstance(node.a, Const) else (node.a, node.b)
        if not isinstance(bound, Const) or math.isnan(bound.value):
            break
        # An outer bound decides where it contradicts an inner one.
        limit = min(max(float(bound.value), low), high)
        low, high = (max(low, limit), high) if node.op == "max" else (low, min(high, limit))
        node = value
    return node, (low, high)


def float_to_integer(
    a: ArithmeticEmitter, value: Value, dtype: str, clip: Bounds = UNBOUNDED, *, rounds: bool = False
) -> Value:
    """Return ``value``, clipped to ``clip``, as an integer of type ``dtype``: the part before the point, or where it
    ``rounds`` the nearest, ties to even, of a float32 by way of 32 bits."""
    w = a.code
    if value.dtype in HALVES:
        value = a.cast(value, "float32")
    low, high = integer_limits(dtype)
    beyond = _ceiling(high, value.dtype) if clip[1] >= high else None
    top = max(min(clip[1], _largest(high, value.dtype)), float(low))
    bottom = min(max(clip[0], float(low)), top)
    lower = _bounded(w, "ogt", value, bottom)  # NaN becomes the bound
    inside = _bounded(w, "olt", lower, top)
    whole = _rounded(a, inside, dtype) if rounds else _truncated(a, inside, dtype)
    if beyond is not None:
        whole = w.select(_compare(w, "oge", value, beyond), _number(w, high, whole), whole)
    if int(bottom) == 0:
        return whole
    return w.select(_compare(w, "ord", value, 0.0), whole, _number(w, 0, whole))


def _largest(high: int, dtype: str) -> float:
    """Return the largest number of a floating-point type that is at most ``high``."""
    digits = float_limits(dtype).nmant + 1
    spare = max(high.bit_length() - digits, 0)
    return float((high >> spare) << spare)


def _ceiling(high: int, dtype: str) -> float | None:
    """Return the number above ``high`` where that is none of the type itself: what is at least as large
    becomes ``high``."""
    return None if _largest(high, dtype) == high else float(high + 1)


def _bounded(w: Writer, inside: str, value: Value, bound: float) -> Value:
    """Return ``value`` where it compares with ``bound`` as ``inside`` says, else ``bound``."""
    return w.select(_compare(w, inside, value, bound), value, _number(w, bound, value))


def _truncated(a: ArithmeticEmitter, value: Value, dtype: str) -> Value:
    """Return the conversion of numbers within the limits; small integers by way of 32 bits, which have
    an instruction."""
    by_way = "int32" if is_by_int32(dtype) else dtype
    code = "fptoui" if is_unsigned(by_way) else "fptosi"
    return a.cast(a.code.converted(code, value, by_way), dtype)


def _rounded(a: ArithmeticEmitter, value: Value, dtype: str) -> Value:
    """Return the nearest integers of float32 numbers within the limits, in one instruction where there is one."""
    w, lanes = a.code, value.lanes
    whole, real = vector("i32", lanes), vector("float", lanes)
    suffix = "i32.f32" if lanes == 1 else f"v{lanes}i32.v{lanes}f32"
    found = w.op(w.call(whole, f"@llvm.lrint.{suffix}", (real, value.text)))
    return a.cast(Value(found, "int32", lanes), dtype)


def is_by_int32(dtype: str) -> bool:
    """Return whether an integer type is one of 32 bits with a sign, or smaller."""
    low, high = integer_limits(dtype)
    least, most = integer_limits("int32")
    return least <= low and high <= most


def _number(w: Writer, value: float, like: Value) -> Value:
    return w.splat(Value(constant(value, like.dtype), like.dtype), like.lanes)


def _compare(w: Writer, code: str, value: Value, bound: float) -> Value:
    return w.compared(f"fcmp {code}", value, _number(w, bound, value))
