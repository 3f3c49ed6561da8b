"""Expressions to LLVM IR text, scalar or in explicit vector lanes.

One :class:`ExpressionEmitter` emits one function. The environment says for each variable whether it is a known
number (an unrolled loop), a ramp of lanes (the vectorized loop) or an SSA value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from autotune.codegen.module import ModuleText
from autotune.codegen.types import (
    ITEM_BYTES,
    Value,
    constant,
    memory_type,
    number,
    scalar_type,
    suffix,
    type_of,
    vector,
)
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, Load, operands
from autotune.lower.linear import Lin, Simplifier
from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Select,
    Var,
    is_float,
)

_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "and": "and", "or": "or"}
_FLOAT_COMPARE = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_INT_COMPARE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs"}

MAX_LINES = 400_000
"""Longest function; a schedule that unrolls more is refused instead of compiling for minutes."""


class Ramp(NamedTuple):
    """Lanes ``base, base + 1, ...`` of a vectorized loop."""

    base: int
    lanes: int


class Address(NamedTuple):
    """An evaluated element offset: a sum of scalars, a constant, a stride over lanes, or a vector."""

    scalars: tuple[tuple[str, int], ...]
    constant: int
    stride: int
    lanes: Value | None


class _Scope(NamedTuple):
    """Pure values by what they compute, and where to put those that do not depend on the scope."""

    values: dict[tuple[object, ...], str]
    before: list[str]


class ExpressionEmitter:
    """Emits expressions into ``lines``; statements are the business of its subclass."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        # A list among the lines is a place for instructions that are hoisted out of what follows it.
        self.lines: list[str | list[str]] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.env: dict[Var, int | Ramp | Value] = {}
        self.lanes = 1
        self.mask: Value | None = None
        self._counter = 0
        self._forms: dict[int, Lin] = {}
        self._linear = Simplifier()
        self._scopes: list[_Scope] = [_Scope({}, [])]
        self._depths: dict[str, int] = {}
        self.constant_buffers: frozenset[Buffer] = frozenset()
        self._memos: list[dict[int, Value]] = [{}]
        self._has_fma = "fma" in module.target.features or module.target.arch == "aarch64"

    # -- text ------------------------------------------------------------------------------------------------

    def fresh(self, stem: str = "v") -> str:
        """A new SSA name or label stem."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def op(self, text: str) -> str:
        """Emit an instruction with a result; returns its name."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def flat_lines(self) -> list[str]:
        """All lines of the function, hoisted ones in their places."""
        flat: list[str] = []
        for line in self.lines:
            if isinstance(line, str):
                flat.append(line)
            else:
                flat += line
        return flat

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name
        if len(self.lines) > MAX_LINES:
            raise BuildError(
                f"the schedule unrolls to more than {MAX_LINES} instructions; unroll or vectorize less"
            )

    def hoisting_point(self) -> list[str]:
        """A place before the next branch, for what turns out to be invariant in the scope behind it."""
        point: list[str] = []
        self.lines.append(point)
        return point

    @contextmanager
    def scope(self, before: list[str]) -> Iterator[None]:
        """A block whose values are not visible after it; ``before`` is its hoisting point."""
        self._scopes.append(_Scope({}, before))
        self._memos.append({})
        try:
            yield
        finally:
            self._scopes.pop()
            self._memos.pop()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """One statement: values of expressions are shared within, not across."""
        self._memos.append({})
        try:
            yield
        finally:
            self._memos.pop()

    @contextmanager
    def masked(self, mask: Value) -> Iterator[None]:
        """Lanes outside of ``mask`` neither read nor write."""
        old = self.mask
        self.mask = mask if old is None else self.logical("and", old, mask)
        self._memos.append({})
        try:
            yield
        finally:
            self._memos.pop()
            self.mask = old

    @property
    def depth(self) -> int:
        """Number of the innermost scope; 0 is the function's."""
        return len(self._scopes) - 1

    def depth_of(self, name: str) -> int:
        """Scope in which an SSA value is available, at most the innermost."""
        return min(self._depths.get(name, self.depth), self.depth)

    def available(self, name: str, depth: int) -> None:
        """Tell in which scope an SSA value was made."""
        self._depths[name] = depth

    def cached(self, key: tuple[object, ...], text: str, depth: int | None = None) -> str:
        """The result of a pure instruction, emitted once in this scope and those around.

        With ``depth``, the outermost scope that its operands allow, it is emitted there.
        """
        for scope in reversed(self._scopes):
            name = scope.values.get(key)
            if name is not None:
                return name
        if depth is None or depth == self.depth:
            name = self.op(text)
            depth = self.depth
        else:
            self._counter += 1
            name = f"%v{self._counter}"
            self._scopes[depth + 1].before.append(f"  {name} = {text}")
        self._scopes[depth].values[key] = name
        self._depths[name] = depth
        return name

    def splat(self, value: Value, lanes: int) -> Value:
        """The value in every lane."""
        if value.lanes == lanes:
            return value
        kind = scalar_type(value.dtype)
        if not value.text.startswith("%"):
            return Value(f"splat ({kind} {value.text})", value.dtype, lanes)
        wide = f"<{lanes} x {kind}>"
        one = self.cached(
            ("insert", value.text, lanes), f"insertelement {wide} poison, {kind} {value.text}, i64 0"
        )
        name = self.cached(
            ("splat", value.text, lanes),
            f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer",
        )
        return Value(name, value.dtype, lanes)

    def alike(self, *values: Value) -> tuple[list[Value], int]:
        """The values with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values], lanes

    # -- expressions -----------------------------------------------------------------------------------------

    def expr(self, node: Expr) -> Value:
        """The value of an expression; shared nodes are emitted once a statement."""
        for memo in reversed(self._memos):
            done = memo.get(id(node))
            if done is not None:
                return done
        value = self._expr(node)
        self._memos[-1][id(node)] = value
        return value

    def _expr(self, node: Expr) -> Value:
        if isinstance(node, Load):
            return self.load(node)
        if isinstance(node, Const):
            known = None if is_float(node.dtype) else int(node.value)
            return Value(constant(node.value, node.dtype), node.dtype, 1, known)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Var):
            return self._variable(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Compare):
            return self._compare(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Cast):
            return self._cast(node)
        if isinstance(node, Not):
            value = self.expr(node.a)
            one = self.splat(Value("true", "bool"), value.lanes)
            return Value(self.op(f"xor {type_of(value)} {value.text}, {one.text}"), "bool", value.lanes)
        raise BuildError(f"no code for {type(node).__name__}")

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
            if node.op in ("+", "-") and self._has_fma and node.dtype != "float16":
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
            if any(id(product) in memo for memo in self._memos):
                continue
            x, y, z = self.expr(product.a), self.expr(product.b), self.expr(other)
            if node.op == "-" and first:
                z = self._negated(z)
            elif node.op == "-":
                x = self._negated(x)
            (x, y, z), lanes = self.alike(x, y, z)
            return self.intrinsic("fma", node.dtype, lanes, x, y, z)
        return None

    def _negated(self, value: Value) -> Value:
        return Value(self.op(f"fneg {type_of(value)} {value.text}"), value.dtype, value.lanes)

    def intrinsic(self, name: str, dtype: str, lanes: int, *args: Value) -> Value:
        """Call ``llvm.<name>`` on operands of one type."""
        symbol = f"@llvm.{name}.{suffix(dtype, lanes)}"
        kind = vector(scalar_type(dtype), lanes)
        self.module.declare(f"declare {kind} {symbol}({', '.join([kind] * len(args))})")
        values = ", ".join(f"{kind} {a.text}" for a in args)
        return Value(self.op(f"call {kind} {symbol}({values})"), dtype, lanes)

    def float_op(self, op: str, a: Value, b: Value) -> Value:
        """A floating-point operation."""
        (a, b), lanes = self.alike(a, b)
        kind = type_of(a)
        if op in _FLOAT_OPS:
            return Value(self.op(f"{_FLOAT_OPS[op]} {kind} {a.text}, {b.text}"), a.dtype, lanes)
        return Value(self._extreme(op, a, b), a.dtype, lanes)

    def _extreme(self, op: str, a: Value, b: Value) -> str:
        """min or max of floating-point values, a NaN in either staying one as in NumPy.

        One instruction keeps the NaN of one operand, which is enough beside a constant; else two more look at
        the other operand.
        """
        if not a.text.startswith("%"):
            a, b = b, a
        kind, flag = type_of(a), vector("i1", a.lanes)
        order = "ogt" if op == "max" else "olt"
        better = self.op(f"fcmp {order} {kind} {b.text}, {a.text}")
        result = self.op(f"select {flag} {better}, {kind} {b.text}, {kind} {a.text}")
        if not b.text.startswith("%"):
            return result
        unordered = self.op(f"fcmp uno {kind} {b.text}, {b.text}")
        return self.op(f"select {flag} {unordered}, {kind} {b.text}, {kind} {result}")

    def int_op(self, op: str, a: Value, b: Value) -> Value:
        """An integer or logical operation, folded when both operands are known."""
        if a.number is not None and b.number is not None and a.dtype == "int64":
            return number(_folded(op, a.number, b.number))
        (a, b), lanes = self.alike(a, b)
        kind = type_of(a)
        if op in _INT_OPS:
            return Value(self.op(f"{_INT_OPS[op]} {kind} {a.text}, {b.text}"), a.dtype, lanes)
        if op in ("min", "max"):
            prefix = "u" if a.dtype in ("uint8", "bool") else "s"
            return self.intrinsic(prefix + op, a.dtype, lanes, a, b)
        return self._floor_divide(op, a, b, lanes)

    def _floor_divide(self, op: str, a: Value, b: Value, lanes: int) -> Value:
        """Division that rounds down; the remainder has the divisor's sign."""
        kind, flag = type_of(a), vector("i1", lanes)
        if a.dtype == "uint8":
            return Value(
                self.op(f"{'udiv' if op == '//' else 'urem'} {kind} {a.text}, {b.text}"), a.dtype, lanes
            )
        zero = self.splat(number(0, a.dtype), lanes).text
        rest = self.op(f"srem {kind} {a.text}, {b.text}")
        signs = self.op(f"xor {kind} {rest}, {b.text}")
        differ = self.op(f"icmp slt {kind} {signs}, {zero}")
        some = self.op(f"icmp ne {kind} {rest}, {zero}")
        fix = self.op(f"and {flag} {differ}, {some}")
        if op == "%":
            moved = self.op(f"add {kind} {rest}, {b.text}")
            name = self.op(f"select {flag} {fix}, {kind} {moved}, {kind} {rest}")
        else:
            quotient = self.op(f"sdiv {kind} {a.text}, {b.text}")
            wide = self.op(f"sext {flag} {fix} to {kind}") if lanes == 1 or kind else ""
            name = self.op(f"add {kind} {quotient}, {wide}")
        return Value(name, a.dtype, lanes)

    def logical(self, op: str, a: Value, b: Value) -> Value:
        """Logical and/or of conditions."""
        return self.int_op(op, a, b)

    def _compare(self, node: Compare) -> Value:
        a, b = self.expr(node.a), self.expr(node.b)
        if a.number is not None and b.number is not None:
            holds = _holds(node.op, a.number, b.number)
            return Value("true" if holds else "false", "bool", 1, int(holds))
        (a, b), lanes = self.alike(a, b)
        if is_float(a.dtype):
            return Value(
                self.op(f"fcmp {_FLOAT_COMPARE[node.op]} {type_of(a)} {a.text}, {b.text}"), "bool", lanes
            )
        code = _INT_COMPARE[node.op]
        if a.dtype in ("uint8", "bool") and code.startswith("s"):
            code = "u" + code[1:]
        return Value(self.op(f"icmp {code} {type_of(a)} {a.text}, {b.text}"), "bool", lanes)

    def _call(self, node: Call) -> Value:
        args, lanes = self.alike(*[self.expr(a) for a in node.args])
        if node.name in _INTRINSICS:
            return self.intrinsic(_INTRINSICS[node.name], node.dtype, lanes, *args)
        # A library function handles at most one register's lanes; halves go through float32.
        symbol = self.module.math(node.name, lanes, node.dtype)
        kind = vector(scalar_type(node.dtype), lanes)
        values = ", ".join(f"{kind} {a.text}" for a in args)
        return Value(self.op(f"call {kind} @{symbol}({values})"), node.dtype, lanes)

    def _cast(self, node: Cast) -> Value:
        return self.cast(self.expr(node.a), node.dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """A value converted to another type."""
        old = value.dtype
        if old == dtype:
            return value
        if value.number is not None and not is_float(dtype) and dtype != "bool":
            return Value(str(value.number), dtype, 1, value.number if dtype == "int64" else None)
        source, target = type_of(value), vector(scalar_type(dtype), value.lanes)
        if dtype == "bool":
            zero = self.splat(Value(constant(0, old), old), value.lanes).text
            compare = "fcmp une" if is_float(old) else "icmp ne"
            return Value(self.op(f"{compare} {source} {value.text}, {zero}"), dtype, value.lanes)
        unsigned = old in ("bool", "uint8")
        if is_float(old) and is_float(dtype):
            code = "fpext" if ITEM_BYTES[dtype] > ITEM_BYTES[old] else "fptrunc"
        elif is_float(old):
            code = "fptoui" if dtype == "uint8" else "fptosi"
        elif is_float(dtype):
            code = "uitofp" if unsigned else "sitofp"
        elif ITEM_BYTES[dtype] == ITEM_BYTES[old] and old != "bool":
            return Value(value.text, dtype, value.lanes)
        elif ITEM_BYTES[dtype] > ITEM_BYTES[old] or old == "bool":
            code = "zext" if unsigned else "sext"
        else:
            code = "trunc"
        return Value(self.op(f"{code} {source} {value.text} to {target}"), dtype, value.lanes)

    def _select(self, node: Select) -> Value:
        cond = self.expr(node.cond)
        if cond.number is not None:
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
        self.lines.append(f"  br i1 {cond.text}, label %{stem}.a, label %{stem}.b")
        sides: list[tuple[Value, str]] = []
        lanes = self.lanes
        for side, expr in (("a", node.a), ("b", node.b)):
            self.label(f"{stem}.{side}")
            with self.scope(before):
                value = self.splat(self.expr(expr), lanes)
            sides.append((value, self.block))
            self.lines.append(f"  br label %{stem}.end")
        self.label(f"{stem}.end")
        incoming = ", ".join(f"[ {v.text}, %{block} ]" for v, block in sides)
        first = sides[0][0]
        return Value(self.op(f"phi {type_of(first)} {incoming}"), first.dtype, first.lanes)

    # -- memory ----------------------------------------------------------------------------------------------

    def form(self, key: object, buffer: Buffer, indices: tuple[Expr, ...]) -> Lin:
        """Element offset of an access, as a linear form; computed once a node."""
        done = self._forms.get(id(key))
        if done is None:
            done = Lin({}, 0)
            for index, stride in zip(indices, buffer.strides, strict=True):
                done = done + self._linear.form(index).scaled(stride)
            self._forms[id(key)] = done
        return done

    def address(self, form: Lin) -> Address:
        """The offset with the environment put in."""
        total, stride = form.constant, 0
        scalars: list[tuple[str, int]] = []
        vectors: list[tuple[Value, int]] = []
        for atom, c in form.terms.items():
            known = self.env.get(atom) if isinstance(atom, Var) else None
            if known is None:
                known = self.expr(atom)
            if isinstance(known, Value) and known.number is not None:
                known = known.number
            if isinstance(known, int):
                total += c * known
            elif isinstance(known, Ramp):
                stride += c
                total += c * known.base
            elif known.lanes == 1:
                scalars.append((known.text, c))
            else:
                vectors.append((known, c))
        if not vectors:
            return Address(tuple(scalars), total, stride, None)
        return Address(tuple(scalars), total, 0, self._lane_offsets(vectors, stride))

    def _scaled(self, text: str, c: int) -> str:
        return (
            text if c == 1 else self.cached(("mul", text, c), f"mul nsw i64 {text}, {c}", self.depth_of(text))
        )

    def _lane_offsets(self, vectors: list[tuple[Value, int]], stride: int) -> Value:
        lanes = self.lanes
        kind = f"<{lanes} x i64>"
        steps = ", ".join(f"i64 {i * stride}" for i in range(lanes))
        total = f"<{steps}>"
        for value, c in vectors:
            scaled = self.op(f"mul {kind} {value.text}, splat (i64 {c})")
            total = self.op(f"add {kind} {total}, {scaled}")
        return Value(total, "int64", lanes)

    def pointer(self, buffer: Buffer, address: Address) -> str:
        """Pointer to the first element of an access."""
        base, kind = self.base_pointer(buffer), memory_type(buffer.dtype)
        # Outer loops first: what they add is then invariant in the inner ones, and hoisted out of them.
        for name, c in sorted(address.scalars, key=lambda term: (self.depth_of(term[0]), term)):
            offset = self._scaled(name, c)
            depth = max(self.depth_of(base), self.depth_of(offset))
            base = self.cached(
                ("ptr", base, offset, kind), f"getelementptr {kind}, ptr {base}, i64 {offset}", depth
            )
        if address.constant:
            base = self.cached(
                ("ptr", base, address.constant, kind),
                f"getelementptr {kind}, ptr {base}, i64 {address.constant}",
            )
        return base

    def base_pointer(self, buffer: Buffer) -> str:
        """Pointer to element 0 of a buffer; the subclass knows where buffers are."""
        raise NotImplementedError

    def load(self, node: Load) -> Value:
        """An element, or one for each lane."""
        raise NotImplementedError

    def load_from(self, buffer: Buffer, address: Address) -> Value:
        """Load from memory: scalar, contiguous lanes, or a gather."""
        kind, item = memory_type(buffer.dtype), ITEM_BYTES[buffer.dtype]
        if address.lanes is None and address.stride == 0:
            pointer = self._safe_pointer(self.pointer(buffer, address))
            text = f"load {kind}, ptr {pointer}, align {item}"
            return self._from_memory(Value(self._loaded(buffer, pointer, 1, text), buffer.dtype))
        lanes = self.lanes
        wide = f"<{lanes} x {kind}>"
        if address.lanes is None and address.stride == 1:
            pointer = self.pointer(buffer, address)
            if self.mask is None:
                text = f"load {wide}, ptr {pointer}, align {item}"
                return self._from_memory(
                    Value(self._loaded(buffer, pointer, lanes, text), buffer.dtype, lanes)
                )
            else:
                name = f"@llvm.masked.load.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
                self.module.declare(f"declare {wide} {name}(ptr, <{lanes} x i1>, {wide})")
                text = (
                    f"call {wide} {name}(ptr align {item} {pointer}, <{lanes} x i1> {self.mask.text}, "
                    f"{wide} zeroinitializer)"
                )
            return self._from_memory(Value(self.op(text), buffer.dtype, lanes))
        pointers = self._lane_pointers(buffer, address)
        mask = "splat (i1 true)" if self.mask is None else self.mask.text
        name = f"@llvm.masked.gather.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
        self.module.declare(f"declare {wide} {name}(<{lanes} x ptr>, <{lanes} x i1>, {wide})")
        text = (
            f"call {wide} {name}(<{lanes} x ptr> align {item} {pointers}, <{lanes} x i1> {mask}, "
            f"{wide} zeroinitializer)"
        )
        return self._from_memory(Value(self.op(text), buffer.dtype, lanes))

    def _loaded(self, buffer: Buffer, pointer: str, lanes: int, text: str) -> str:
        """The result of a load; a buffer that the function does not write is loaded once a place."""
        if buffer in self.constant_buffers:
            return self.cached(("load", pointer, lanes), text)
        return self.op(text)

    def _lane_pointers(self, buffer: Buffer, address: Address) -> str:
        lanes, kind = self.lanes, memory_type(buffer.dtype)
        base = self.pointer(buffer, address)
        if address.lanes is not None:
            offsets = address.lanes.text
        else:
            offsets = "<" + ", ".join(f"i64 {i * address.stride}" for i in range(lanes)) + ">"
        return self.op(f"getelementptr {kind}, ptr {base}, <{lanes} x i64> {offsets}")

    def _safe_pointer(self, pointer: str) -> str:
        """A pointer that may be read when no lane is active: it leads to a dummy then."""
        if self.mask is None:
            return pointer
        lanes = self.mask.lanes
        name = f"@llvm.vector.reduce.or.v{lanes}i1"
        self.module.declare(f"declare i1 {name}(<{lanes} x i1>)")
        some = self.cached(("any", self.mask.text), f"call i1 {name}(<{lanes} x i1> {self.mask.text})")
        if "  %dummy = alloca i64, align 8" not in self.entry:
            self.entry += ["  %dummy = alloca i64, align 8", "  store i64 0, ptr %dummy, align 8"]
        return self.op(f"select i1 {some}, ptr {pointer}, ptr %dummy")

    def _from_memory(self, value: Value) -> Value:
        if value.dtype != "bool":
            return value
        wide = vector("i8", value.lanes)
        zero = "0" if value.lanes == 1 else "zeroinitializer"
        return Value(self.op(f"icmp ne {wide} {value.text}, {zero}"), "bool", value.lanes)

    def store_to(self, buffer: Buffer, address: Address, value: Value) -> None:
        """Store to memory: scalar, contiguous lanes, or a scatter."""
        kind, item = memory_type(buffer.dtype), ITEM_BYTES[buffer.dtype]
        if value.dtype == "bool":
            wide = self.op(f"zext {type_of(value)} {value.text} to {vector('i8', value.lanes)}")
            value = Value(wide, "uint8", value.lanes)
        if self.lanes == 1:
            self.lines.append(
                f"  store {kind} {value.text}, ptr {self.pointer(buffer, address)}, align {item}"
            )
            return
        lanes = self.lanes
        value = self.splat(value, lanes)
        wide = f"<{lanes} x {kind}>"
        if address.lanes is None and address.stride == 1:
            pointer = self.pointer(buffer, address)
            if self.mask is None:
                self.lines.append(f"  store {wide} {value.text}, ptr {pointer}, align {item}")
                return
            name = f"@llvm.masked.store.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
            self.module.declare(f"declare void {name}({wide}, ptr, <{lanes} x i1>)")
            self.lines.append(
                f"  call void {name}({wide} {value.text}, ptr align {item} {pointer}, "
                f"<{lanes} x i1> {self.mask.text})"
            )
            return
        pointers = self._lane_pointers(buffer, address)
        mask = "splat (i1 true)" if self.mask is None else self.mask.text
        name = f"@llvm.masked.scatter.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
        self.module.declare(f"declare void {name}({wide}, <{lanes} x ptr>, <{lanes} x i1>)")
        self.lines.append(
            f"  call void {name}({wide} {value.text}, <{lanes} x ptr> align {item} {pointers}, "
            f"<{lanes} x i1> {mask})"
        )


def _memory_suffix(dtype: str) -> str:
    return "i8" if dtype == "bool" else suffix(dtype, 1)


def _has_load(node: Expr) -> bool:
    seen: set[int] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Load):
            return True
        if id(current) not in seen:
            seen.add(id(current))
            stack.extend(operands(current))
    return False


def _folded(op: str, a: int, b: int) -> int:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "//":
        return a // b
    if op == "%":
        return a % b
    return min(a, b) if op == "min" else max(a, b)


def _holds(op: str, a: int, b: int) -> bool:
    return {
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
        "==": a == b,
        "!=": a != b,
    }[op]
