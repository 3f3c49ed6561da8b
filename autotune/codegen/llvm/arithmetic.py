"""Arithmetic on values: one operation is one or a few instructions, scalar or in lanes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.bfloat16 import Bfloat16
from autotune.codegen.llvm.division import floor_division
from autotune.codegen.llvm.float_to_integer import float_to_integer
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.types import Value, constant, number, scalar_type, suffix, type_of, vector
from autotune.errors import BuildError
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import is_float, is_unsigned, wrapped
from autotune.te.folding import folded

_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "and": "and", "or": "or"}
_FLOAT_COMPARE = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_INT_COMPARE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}


class Arithmetic(Bfloat16):
    """Emits operations whose operands are values already."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self._symbols: dict[tuple[str, str, int], str] = {}

    @contextmanager
    def masked(self, mask: Value) -> Iterator[None]:
        """Lanes outside of ``mask`` neither read nor write."""
        old = self.mask
        self.mask = mask if old is None else self.logical("and", old, mask)
        with self.statement():
            yield
        self.mask = old

    def active_lanes(self) -> Value | None:
        """The lanes that may access memory; None for all."""
        if not self.idle:
            return self.mask
        bits = ", ".join(f"i1 {int(n < self.lanes - self.idle)}" for n in range(self.lanes))
        busy = Value(f"<{bits}>", "bool", self.lanes)
        return busy if self.mask is None else self.logical("and", self.mask, busy)

    def intrinsic(self, name: str, dtype: str, lanes: int, *args: Value) -> Value:
        """Call ``llvm.<name>`` on operands of one type."""
        kind = vector(scalar_type(dtype), lanes)
        symbol = self._symbol(name, dtype, lanes, len(args))
        values = ", ".join([f"{kind} {a.text}" for a in args])
        return Value(self.op(f"call {kind} {symbol}({values})"), dtype, lanes)

    def _symbol(self, name: str, dtype: str, lanes: int, count: int) -> str:
        """The symbol of an intrinsic over ``count`` operands of one type, declared once."""
        key = (name, dtype, lanes)
        symbol = self._symbols.get(key)
        if symbol is None:
            kind = vector(scalar_type(dtype), lanes)
            symbol = self._symbols[key] = f"@llvm.{name}.{suffix(dtype, lanes)}"
            self.module.declare(f"declare {kind} {symbol}({', '.join([kind] * count)})")
        return symbol

    def negated(self, value: Value) -> Value:
        return Value(self.op(f"fneg {type_of(value)} {value.text}"), value.dtype, value.lanes)

    def float_op(self, op: str, a: Value, b: Value) -> Value:
        """A floating-point operation; on bfloat16 one of float32, rounded."""
        if a.dtype == "bfloat16":
            wide = self.float_op(op, self.cast(a, "float32"), self.cast(b, "float32"))
            return self.cast(wide, a.dtype)
        (a, b), lanes = self.alike(a, b)
        kind = type_of(a)
        if op in _FLOAT_OPS:
            return Value(self.op(f"{_FLOAT_OPS[op]} {kind} {a.text}, {b.text}"), a.dtype, lanes)
        if op == "max_number":
            return Value(self._if_beyond("max", b, a), a.dtype, lanes)
        return Value(self._extreme(op, a, b), a.dtype, lanes)

    def _extreme(self, op: str, a: Value, b: Value) -> str:
        """min or max of floating-point values, a NaN in either staying one as in NumPy.

        One instruction keeps the NaN of one operand, which is enough beside a constant. Else LLVM's ``maximum``
        looks at the other operand too, in what the target has for it; of zeros of both signs either will do.
        """
        if not a.text.startswith("%"):
            a, b = b, a
        kind = type_of(a)
        if b.text.startswith("%"):
            symbol = self._symbol(f"{op}imum", a.dtype, a.lanes, 2)
            return self.op(f"call nsz {kind} {symbol}({kind} {a.text}, {kind} {b.text})")
        return self._if_beyond(op, b, a)

    def _if_beyond(self, op: str, a: Value, b: Value) -> str:
        """``a`` where it is larger (smaller for min) than ``b``, else ``b``, also where one is NaN."""
        kind = type_of(a)
        beyond = self.op(f"fcmp {'ogt' if op == 'max' else 'olt'} {kind} {a.text}, {b.text}")
        return self.op(f"select {vector('i1', a.lanes)} {beyond}, {kind} {a.text}, {kind} {b.text}")

    def int_op(self, op: str, a: Value, b: Value) -> Value:
        """An integer or logical operation, folded when both operands are known."""
        if a.number is not None and b.number is not None and a.dtype == "int64":
            return number(folded(op, a.number, b.number, a.dtype))
        if op in ("//", "%"):
            return floor_division(self, op, a, b)
        (a, b), lanes = self.alike(a, b)
        kind = type_of(a)
        if op in _INT_OPS:
            return Value(self.op(f"{_INT_OPS[op]} {kind} {a.text}, {b.text}"), a.dtype, lanes)
        if op in ("min", "max"):
            prefix = "u" if is_unsigned(a.dtype) else "s"
            return self.intrinsic(prefix + op, a.dtype, lanes, a, b)
        raise BuildError(f"no integer operation {op}")

    def logical(self, op: str, a: Value, b: Value) -> Value:
        """Logical and/or of conditions."""
        return self.int_op(op, a, b)

    def compare_op(self, op: str, a: Value, b: Value) -> Value:
        """A comparison, folded when both operands are known."""
        if a.number is not None and b.number is not None:
            holds = _holds(op, a.number, b.number)
            return Value("true" if holds else "false", "bool", 1, int(holds))
        (a, b), lanes = self.alike(a, b)
        if a.dtype == "bfloat16":
            a, b = self.cast(a, "float32"), self.cast(b, "float32")
        if is_float(a.dtype):
            return Value(self.op(f"fcmp {_FLOAT_COMPARE[op]} {type_of(a)} {a.text}, {b.text}"), "bool", lanes)
        code = _INT_COMPARE[op]
        if is_unsigned(a.dtype) and code.startswith("s"):
            code = "u" + code[1:]
        return Value(self.op(f"icmp {code} {type_of(a)} {a.text}, {b.text}"), "bool", lanes)

    def order_key(self, x: Value, dtype: str) -> Value:
        """The meaning of ``te.order_key``."""
        most = 2 ** (8 * ITEM_BYTES[dtype] - 1) - 1
        floats, integers, flags = (
            vector(t, x.lanes) for t in (scalar_type(x.dtype), scalar_type(dtype), "i1")
        )
        top, least, zero = (self.splat(number(n, dtype), x.lanes).text for n in (most, -most - 1, 0))
        word = self.op(f"bitcast {floats} {x.text} to {integers}")
        below = self.op(f"icmp slt {integers} {word}, {zero}")
        mirrored = self.op(f"sub {integers} {least}, {word}")
        key = self.op(f"select {flags} {below}, {integers} {mirrored}, {integers} {word}")
        nan = self.op(f"fcmp uno {floats} {x.text}, {x.text}")
        chosen = self.op(f"select {flags} {nan}, {integers} {top}, {integers} {key}")
        return Value(chosen, dtype, x.lanes)

    def cast(self, value: Value, dtype: str) -> Value:
        """A value converted to another type."""
        old = value.dtype
        if old == dtype:
            return value
        if value.number is not None and not is_float(dtype) and dtype != "bool":
            return number(wrapped(value.number, dtype), dtype)
        if old == "bfloat16":
            return self.cast(self.from_bfloat16(value), dtype)
        if dtype == "bfloat16":
            return self.to_bfloat16(self.cast(value, "float32"))
        source, target = type_of(value), vector(scalar_type(dtype), value.lanes)
        if dtype == "bool":
            zero = self.splat(Value(constant(0, old), old), value.lanes).text
            compare = "fcmp une" if is_float(old) else "icmp ne"
            return Value(self.op(f"{compare} {source} {value.text}, {zero}"), dtype, value.lanes)
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
        return Value(self.op(f"{code} {source} {value.text} to {target}"), dtype, value.lanes)


def _holds(op: str, a: int, b: int) -> bool:
    return {
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
        "==": a == b,
        "!=": a != b,
    }[op]
