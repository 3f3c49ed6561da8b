"""Expressions to LLVM IR text, scalar or in explicit vector lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autotune.codegen.llvm.addresses import Environment, Ramp
from autotune.codegen.llvm.arithmetic import (
    ArithmeticEmitter,
    Bounds,
    float_to_integer,
    is_by_int32,
    unclipped,
)
from autotune.codegen.llvm.bits import BIT_FUNCTIONS, bit_function, bitcast
from autotune.codegen.llvm.types import Value, constant, number, scalar_type, type_of, vector
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, Load, has_load, nodes
from autotune.te.dtypes import HALVES, is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Select, Var
from autotune.te.narrow import NARROW

_INTRINSICS = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "abs": "fabs",
}


class Expressions:
    """Emits expressions; ``load`` emits the loads in them, ``written`` pairs the pointer of a buffer with those
    that the kernel writes to.

    The same part of another backend is :class:`autotune.codegen.opencl.expressions.Expressions`.
    """

    def __init__(
        self,
        arithmetic: ArithmeticEmitter,
        env: Environment,
        load: Callable[[Load], Value],
        written: Callable[[Buffer], Sequence[tuple[str, str]]] = lambda _: (),
    ) -> None:
        self.arithmetic = arithmetic
        self.code = arithmetic.code
        self.env = env
        self.load = load
        self.written = written
        target = self.code.module.target
        self._has_fma = "fma" in target.features or target.arch == "aarch64"

    def value(self, node: Expr) -> Value:
        """Return the value of an expression; shared nodes are emitted once a statement."""
        value = self.code.memo.get(id(node))
        if value is None:
            emit = _EMIT.get(type(node))
            if emit is None:
                raise BuildError(f"no code for {type(node).__name__}")
            value = emit(self, node)
            self.code.memo.add(id(node), value)
        return value

    def _constant(self, node: Const) -> Value:
        known = None if is_float(node.dtype) else int(node.value)
        return Value(constant(node.value, node.dtype), node.dtype, 1, known)

    def _not(self, node: Not) -> Value:
        return self.arithmetic.inverted(self.value(node.a))

    def _variable(self, var: Var) -> Value:
        known = self.env[var]
        if isinstance(known, Value):
            return known
        if isinstance(known, int):
            return number(known)
        lanes = ", ".join(f"i64 {known.base + i}" for i in range(known.lanes))
        return Value(f"<{lanes}>", "int64", known.lanes)

    def _binary(self, node: Binary) -> Value:
        if is_float(node.dtype):
            if node.op in ("+", "-") and self._has_fma and node.dtype not in HALVES:
                fused = self._fused(node)
                if fused is not None:
                    return fused
            return self.arithmetic.float_op(node.op, self.value(node.a), self.value(node.b))
        return self.arithmetic.int_op(node.op, self.value(node.a), self.value(node.b))

    def _fused(self, node: Binary) -> Value | None:
        """Return ``a * b ± c`` in one rounding; None when no operand is a product of its own."""
        for product, other, first in ((node.b, node.a, False), (node.a, node.b, True)):
            if not isinstance(product, Binary) or product.op != "*":
                continue
            if self.code.memo.get(id(product)) is not None:
                continue
            x, y, z = self.value(product.a), self.value(product.b), self.value(other)
            if node.op == "-" and first:
                z = self.arithmetic.negated(z)
            elif node.op == "-":
                x = self.arithmetic.negated(x)
            (x, y, z), lanes = self.code.alike(x, y, z)
            return self.arithmetic.intrinsic("fma", node.dtype, lanes, x, y, z)
        return None

    def _compare(self, node: Compare) -> Value:
        return self.arithmetic.compare_op(node.op, self.value(node.a), self.value(node.b))

    def _call(self, node: Call) -> Value:
        code, cast = self.code, self.arithmetic.cast
        if node.name == "overwritten":
            return self._overwritten(node.args[0])
        if node.name == "order_key":
            return self.arithmetic.order_key(self.value(node.args[0]), node.dtype)
        if node.name.startswith("bitcast_"):
            return bitcast(code, self.value(node.args[0]), node.dtype)
        if node.name in BIT_FUNCTIONS:
            return bit_function(self.arithmetic, node.name, *map(self.value, node.args))
        dtype = "float32" if node.dtype in HALVES else node.dtype
        args, lanes = code.alike(*[cast(self.value(a), dtype) for a in node.args])
        if node.name in _INTRINSICS:
            found = self.arithmetic.intrinsic(_INTRINSICS[node.name], dtype, lanes, *args)
        else:
            symbol, kind = code.module.math(node.name, lanes, dtype), vector(scalar_type(dtype), lanes)
            values = ", ".join(f"{kind} {a.text}" for a in args)
            found = Value(code.op(f"call {kind} @{symbol}({values})"), dtype, lanes)
        return cast(found, node.dtype)

    def _overwritten(self, read: Expr) -> Value:
        """Return whether the buffer of a load is one that the kernel writes to."""
        assert isinstance(read, Load)
        found = Value("false", "bool", 1, 0)
        for one, other in self.written(read.buffer):
            same = Value(self.code.op(f"icmp eq ptr {one}, {other}"), "bool", 1)
            found = (
                same
                if found.number == 0
                else Value(self.code.op(f"or i1 {found.text}, {same.text}"), "bool", 1)
            )
        return found

    def _cast(self, node: Cast) -> Value:
        if is_float(node.a.dtype) and not is_float(node.dtype) and node.dtype not in ("bool", *NARROW):
            inner, clip = unclipped(node.a)
            if self.code.memo.get(id(node.a)) is None and node.a.dtype not in HALVES:
                exact = self._rounded_by_conversion(inner, node.dtype, clip)
                value = self.value(inner if exact is None else exact)
                return float_to_integer(self.arithmetic, value, node.dtype, clip, rounds=exact is not None)
        return self.arithmetic.cast(self.value(node.a), node.dtype)

    def _rounded_by_conversion(self, node: Expr, dtype: str, clip: Bounds) -> Expr | None:
        """Return the argument of ``node`` if that rounds as conversion to an integer can, and is not used otherwise:
        clipped to whole numbers, it may be rounded after."""
        if not isinstance(node, Call) or node.name != "round" or node.dtype != "float32":
            return None
        whole = all(float(bound).is_integer() or math.isinf(bound) for bound in clip)
        unused = self.code.memo.get(id(node)) is None
        return node.args[0] if whole and unused and is_by_int32(dtype) else None

    def _select(self, node: Select) -> Value:
        cond = self.value(node.cond)
        if cond.number is not None:
            with self.code.decided():
                return self.value(node.a if cond.number else node.b)
        if cond.lanes == 1 and has_load(node.a, node.b):
            return self._branching_select(cond, node)
        if cond.lanes == 1:
            a, b = self.value(node.a), self.value(node.b)
        else:
            with self.arithmetic.masked(cond):
                a = self.value(node.a)
            with self.arithmetic.masked(self.arithmetic.inverted(cond)):
                b = self.value(node.b)
        (a, b), lanes = self.code.alike(a, b)
        if cond.lanes not in (1, lanes):
            a, b = self.code.splat(a, cond.lanes), self.code.splat(b, cond.lanes)
        return self.code.select(cond, a, b)

    def _branching_select(self, cond: Value, node: Select) -> Value:
        """Return a scalar condition before loads: only the side taken may touch memory."""
        code = self.code
        stem = code.fresh("sel")
        before = code.hoisting_point()
        code.end_block(f"br i1 {cond.text}, label %{stem}.a, label %{stem}.b")
        sides: list[tuple[Value, str]] = []
        lanes = 1 if self._alike_in_lanes(node) else code.lanes
        for side, expr in (("a", node.a), ("b", node.b)):
            code.label(f"{stem}.{side}")
            with code.scope(before):
                value = code.splat(self.value(expr), lanes)
            sides.append((value, code.block))
            code.end_block(f"br label %{stem}.end")
        code.label(f"{stem}.end")
        incoming = ", ".join(f"[ {v.text}, %{block} ]" for v, block in sides)
        first = sides[0][0]
        return Value(code.op(f"phi {type_of(first)} {incoming}"), first.dtype, first.lanes)

    def _alike_in_lanes(self, expr: Expr) -> bool:
        """Return whether an expression surely is one value for all lanes; an address made of it stays a scalar."""
        for node in nodes(expr):
            if isinstance(node, Load) and node.buffer.scope == "local":
                return False
            known = self.env.get(node) if isinstance(node, Var) else None
            if isinstance(known, Ramp) or (isinstance(known, Value) and known.lanes > 1):
                return False
        return True


_EMIT: dict[type[Expr], Callable[[Expressions, Any], Value]] = {
    Load: lambda expressions, node: expressions.load(node),
    Const: Expressions._constant,
    Binary: Expressions._binary,
    Var: Expressions._variable,
    IterVar: Expressions._variable,
    Select: Expressions._select,
    Compare: Expressions._compare,
    Call: Expressions._call,
    Cast: Expressions._cast,
    Not: Expressions._not,
}
"""The emitter of each kind of node."""
