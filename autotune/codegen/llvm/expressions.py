"""Expressions to LLVM IR text, scalar or in explicit vector lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.codegen.llvm.float_to_integer import float_to_integer, unclipped
from autotune.codegen.llvm.memory import Ramp
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.streams import StreamStores
from autotune.codegen.llvm.types import Value, constant, number, scalar_type, type_of, vector
from autotune.errors import BuildError
from autotune.lower.ir import Load, nodes
from autotune.te.dtypes import HALVES, is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Select, Var

_INTRINSICS = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "abs": "fabs",
}


class ExpressionEmitter(StreamStores):
    """Emits expressions; statements are the business of its subclass."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self._has_fma = "fma" in module.target.features or module.target.arch == "aarch64"

    def expr(self, node: Expr) -> Value:
        """The value of an expression; shared nodes are emitted once a statement."""
        value = self._memo.get(id(node))
        if value is None:
            emit = _EMIT.get(type(node))
            if emit is None:
                raise BuildError(f"no code for {type(node).__name__}")
            value = emit(self, node)
            self._memo.add(id(node), value)
        return value

    def _constant(self, node: Const) -> Value:
        known = None if is_float(node.dtype) else int(node.value)
        return Value(constant(node.value, node.dtype), node.dtype, 1, known)

    def _not(self, node: Not) -> Value:
        value = self.expr(node.a)
        one = self.splat(Value("true", "bool"), value.lanes)
        return Value(self.op(f"xor {type_of(value)} {value.text}, {one.text}"), "bool", value.lanes)

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
            return self.float_op(node.op, self.expr(node.a), self.expr(node.b))
        return self.int_op(node.op, self.expr(node.a), self.expr(node.b))

    def _fused(self, node: Binary) -> Value | None:
        """``a * b ± c`` in one rounding; None when no operand is a product of its own."""
        for product, other, first in ((node.b, node.a, False), (node.a, node.b, True)):
            if not isinstance(product, Binary) or product.op != "*":
                continue
            if self._memo.get(id(product)) is not None:
                continue
            x, y, z = self.expr(product.a), self.expr(product.b), self.expr(other)
            if node.op == "-" and first:
                z = self.negated(z)
            elif node.op == "-":
                x = self.negated(x)
            (x, y, z), lanes = self.alike(x, y, z)
            return self.intrinsic("fma", node.dtype, lanes, x, y, z)
        return None

    def _compare(self, node: Compare) -> Value:
        return self.compare_op(node.op, self.expr(node.a), self.expr(node.b))

    def _call(self, node: Call) -> Value:
        if node.name == "order_key":
            return self.order_key(self.expr(node.args[0]), node.dtype)
        dtype = "float32" if node.dtype in HALVES else node.dtype
        args, lanes = self.alike(*[self.cast(self.expr(a), dtype) for a in node.args])
        if node.name in _INTRINSICS:
            return self.cast(self.intrinsic(_INTRINSICS[node.name], dtype, lanes, *args), node.dtype)
        symbol = self.module.math(node.name, lanes, dtype)
        kind = vector(scalar_type(dtype), lanes)
        values = ", ".join(f"{kind} {a.text}" for a in args)
        return self.cast(Value(self.op(f"call {kind} @{symbol}({values})"), dtype, lanes), node.dtype)

    def _cast(self, node: Cast) -> Value:
        if is_float(node.a.dtype) and not is_float(node.dtype) and node.dtype != "bool":
            inner, clip = unclipped(node.a)
            if self._memo.get(id(node.a)) is None and node.a.dtype not in HALVES:
                return float_to_integer(self, self.expr(inner), node.dtype, clip)
        return self.cast(self.expr(node.a), node.dtype)

    def _select(self, node: Select) -> Value:
        cond = self.expr(node.cond)
        if cond.number is not None:
            with self.decided():
                return self.expr(node.a if cond.number else node.b)
        if cond.lanes == 1 and (_has_load(node.a) or _has_load(node.b)):
            return self._branching_select(cond, node)
        if cond.lanes == 1:
            a, b = self.expr(node.a), self.expr(node.b)
        else:
            with self.masked(cond):
                a = self.expr(node.a)
            one = self.splat(Value("true", "bool"), cond.lanes).text
            inverse = self.op(f"xor {type_of(cond)} {cond.text}, {one}")
            with self.masked(Value(inverse, "bool", cond.lanes)):
                b = self.expr(node.b)
        (a, b), lanes = self.alike(a, b)
        if cond.lanes != 1 and cond.lanes != lanes:
            lanes = cond.lanes
            a, b = self.splat(a, lanes), self.splat(b, lanes)
        kind = type_of(a)
        return Value(
            self.op(f"select {type_of(cond)} {cond.text}, {kind} {a.text}, {kind} {b.text}"),
            a.dtype,
            lanes,
        )

    def _branching_select(self, cond: Value, node: Select) -> Value:
        """A scalar condition before loads: only the side taken may touch memory."""
        stem = self.fresh("sel")
        before = self.hoisting_point()
        self.end_block(f"br i1 {cond.text}, label %{stem}.a, label %{stem}.b")
        sides: list[tuple[Value, str]] = []
        lanes = 1 if self._alike_in_lanes(node) else self.lanes
        for side, expr in (("a", node.a), ("b", node.b)):
            self.label(f"{stem}.{side}")
            with self.scope(before):
                value = self.splat(self.expr(expr), lanes)
            sides.append((value, self.block))
            self.end_block(f"br label %{stem}.end")
        self.label(f"{stem}.end")
        incoming = ", ".join(f"[ {v.text}, %{block} ]" for v, block in sides)
        first = sides[0][0]
        return Value(self.op(f"phi {type_of(first)} {incoming}"), first.dtype, first.lanes)

    def _alike_in_lanes(self, expr: Expr) -> bool:
        """Whether an expression surely is one value for all lanes; an address made of it stays a scalar."""
        for node in nodes(expr):
            if isinstance(node, Load) and node.buffer.scope == "local":
                return False
            known = self.env.get(node) if isinstance(node, Var) else None
            if isinstance(known, Ramp) or (isinstance(known, Value) and known.lanes > 1):
                return False
        return True


_EMIT: dict[type[Expr], Callable[[ExpressionEmitter, Any], Value]] = {
    Load: lambda emitter, node: emitter.load(node),
    Const: ExpressionEmitter._constant,
    Binary: ExpressionEmitter._binary,
    Var: ExpressionEmitter._variable,
    IterVar: ExpressionEmitter._variable,
    Select: ExpressionEmitter._select,
    Compare: ExpressionEmitter._compare,
    Call: ExpressionEmitter._call,
    Cast: ExpressionEmitter._cast,
    Not: ExpressionEmitter._not,
}
"""How each kind of node is emitted."""


def _has_load(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in nodes(expr))
