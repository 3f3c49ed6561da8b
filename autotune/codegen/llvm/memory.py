"""Loads and stores: addresses in linear form, hoisted to the loop they depend on, scalar or in lanes."""

from __future__ import annotations

from typing import NamedTuple

from autotune.codegen.llvm.arithmetic import Arithmetic
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.scoped import Scoped
from autotune.codegen.llvm.types import Value, memory_type, suffix, type_of, vector
from autotune.lower.ir import Buffer, Load
from autotune.lower.linear import Lin, Simplifier
from autotune.target import ITEM_BYTES
from autotune.te.expr import Expr, Var


class Ramp(NamedTuple):
    """Lanes ``base, base + 1, ...`` of a vectorized loop."""

    base: int
    lanes: int


class Terms(NamedTuple):
    """The terms of an offset by what they are in a scope: numbers and ramps, which differ from one copy of an
    unrolled loop to the next, SSA values that stay the same, and what has to be computed where it is used.
    """

    numbers: tuple[tuple[Var, int], ...]
    scalars: tuple[tuple[str, int], ...]
    others: tuple[tuple[Expr, int], ...]


class Address(NamedTuple):
    """An evaluated element offset: a sum of scalars, a constant, a stride over lanes, or a vector."""

    scalars: tuple[tuple[str, int], ...]
    constant: int
    stride: int
    lanes: Value | None


class MemoryEmitter(Arithmetic):
    """Emits accesses to buffers.

    ``env`` says for each variable whether it is a known number (an unrolled loop), a ramp of lanes (the vectorized
    loop) or an SSA value. ``constant_buffers`` are those that the function does not write.
    """

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.env: dict[Var, int | Ramp | Value] = {}
        self.constant_buffers: frozenset[Buffer] = frozenset()
        self._forms: dict[int, Lin] = {}
        self._terms: Scoped[Lin, Terms] = Scoped()
        """Terms of forms, for as long as their variables are what they are."""
        self.linear = Simplifier()

    def expr(self, node: Expr) -> Value:
        """The value of an expression; the subclass knows how."""
        raise NotImplementedError

    def form(self, key: object, buffer: Buffer, indices: tuple[Expr, ...]) -> Lin:
        """Element offset of an access, as a linear form; computed once a node."""
        done = self._forms.get(id(key))
        if done is None:
            done = Lin({}, 0)
            for index, stride in zip(indices, buffer.strides, strict=True):
                done = done + self.linear.form(index).scaled(stride)
            done = self._forms[id(key)] = self.linear.joined(done)
        return done

    def address(self, form: Lin) -> Address:
        """The offset with the environment put in."""
        terms = self._terms.get(form)
        if terms is None:
            terms = self._sorted_terms(form)
            self._terms.add(form, terms)
        total, stride = form.constant, 0
        for var, c in terms.numbers:
            known = self.env[var]
            if isinstance(known, int):
                total += c * known
            elif isinstance(known, Ramp):
                stride += c
                total += c * known.base
        if not terms.others:
            return Address(terms.scalars, total, stride, None)
        scalars = list(terms.scalars)
        vectors: list[tuple[Value, int]] = []
        for atom, c in terms.others:
            value = self.expr(atom)
            if value.number is not None:
                total += c * value.number
            elif value.lanes == 1:
                scalars.append((value.text, c))
            else:
                vectors.append((value, c))
        if not vectors:
            return Address(tuple(scalars), total, stride, None)
        return Address(tuple(scalars), total, 0, self._lane_offsets(vectors, stride))

    def _sorted_terms(self, form: Lin) -> Terms:
        numbers: list[tuple[Var, int]] = []
        scalars: list[tuple[str, int]] = []
        others: list[tuple[Expr, int]] = []
        for atom, c in form.terms.items():
            known = self.env.get(atom) if isinstance(atom, Var) else None
            if isinstance(atom, Var) and isinstance(known, int | Ramp):
                numbers.append((atom, c))
            elif isinstance(known, Value) and known.lanes == 1 and known.number is None:
                scalars.append((known.text, c))
            else:
                others.append((atom, c))
        return Terms(tuple(numbers), tuple(scalars), tuple(others))

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
        if address.scalars:
            key = ("sum", base, address.scalars)
            base = self.known(key) or self.remember(key, self._advanced(base, kind, address.scalars))
        if address.constant:
            base = self.cached(
                ("ptr", base, address.constant, kind),
                f"getelementptr {kind}, ptr {base}, i64 {address.constant}",
            )
        return base

    def _advanced(self, base: str, kind: str, scalars: tuple[tuple[str, int], ...]) -> str:
        """A pointer moved by a sum of scalars, each addition in the outermost scope that has its operands."""
        # Outer loops first: what they add is then invariant in the inner ones, and hoisted out of them.
        for name, c in sorted(scalars, key=lambda term: (self.depth_of(term[0]), term)):
            offset = self._scaled(name, c)
            depth = max(self.depth_of(base), self.depth_of(offset))
            base = self.cached(
                ("ptr", base, offset, kind), f"getelementptr {kind}, ptr {base}, i64 {offset}", depth
            )
        return base

    def base_pointer(self, buffer: Buffer) -> str:
        """Pointer to element 0 of a buffer; the subclass knows where buffers are."""
        raise NotImplementedError

    def load(self, node: Load) -> Value:
        """An element, or one for each lane."""
        raise NotImplementedError

    def load_from(self, buffer: Buffer, address: Address) -> Value:
        """Load from memory what is no plain load: lanes under a mask, or a gather."""
        kind, item = memory_type(buffer.dtype), ITEM_BYTES[buffer.dtype]
        if address.lanes is None and address.stride == 0:
            pointer = self._safe_pointer(self.pointer(buffer, address))
            text = f"load {kind}, ptr {pointer}, align {item}"
            return self.from_memory(Value(self.op(text), buffer.dtype))
        lanes = self.lanes
        wide = f"<{lanes} x {kind}>"
        if address.lanes is None and address.stride == 1:
            name = self.op(self._lanes_loaded(buffer, self.pointer(buffer, address), lanes))
            return self.from_memory(Value(name, buffer.dtype, lanes))
        active = self.active_lanes()
        mask = "splat (i1 true)" if active is None else active.text
        pointers = self._lane_pointers(buffer, address)
        name = f"@llvm.masked.gather.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
        self.module.declare(f"declare {wide} {name}(<{lanes} x ptr>, <{lanes} x i1>, {wide})")
        text = (
            f"call {wide} {name}(<{lanes} x ptr> align {item} {pointers}, <{lanes} x i1> {mask}, "
            f"{wide} zeroinitializer)"
        )
        return self.from_memory(Value(self.op(text), buffer.dtype, lanes))

    def plain_load(self, buffer: Buffer, address: Address, lanes: int) -> Value:
        """A scalar or contiguous lanes, loaded once: in the scope when the function does not write the buffer, else
        until something may have written it.
        """
        idle = self.idle if lanes > 1 else 0
        key = ("load", self.base_pointer(buffer), address.scalars, address.constant, lanes, idle)
        constant = buffer in self.constant_buffers
        name = self.known(key) if constant else self.held.get(key)
        if name is None:
            name = self.op(self._lanes_loaded(buffer, self.pointer(buffer, address), lanes))
            if constant:
                self.remember(key, name)
            else:
                self.held[key] = name
        value = Value(name, buffer.dtype, lanes)
        return value if buffer.dtype != "bool" else self.from_memory(value)

    def _lanes_loaded(self, buffer: Buffer, pointer: str, lanes: int) -> str:
        """A scalar, or neighbours as far as lanes are active."""
        wide, item = vector(memory_type(buffer.dtype), lanes), ITEM_BYTES[buffer.dtype]
        active = None if lanes == 1 else self.active_lanes()
        if active is None:
            return f"load {wide}, ptr {pointer}, align {item}"
        name = f"@llvm.masked.load.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
        self.module.declare(f"declare {wide} {name}(ptr, <{lanes} x i1>, {wide})")
        mask = f"<{lanes} x i1> {active.text}"
        return f"call {wide} {name}(ptr align {item} {pointer}, {mask}, {wide} zeroinitializer)"

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

    def from_memory(self, value: Value) -> Value:
        """A value as it is in registers: a bool takes a bit there."""
        if value.dtype != "bool":
            return value
        wide = vector("i8", value.lanes)
        zero = "0" if value.lanes == 1 else "zeroinitializer"
        return Value(self.op(f"icmp ne {wide} {value.text}, {zero}"), "bool", value.lanes)

    def store_to(self, buffer: Buffer, address: Address, value: Value, stream: bool = False) -> None:
        """Store to memory: scalar, contiguous lanes (past the caches on request), or a scatter."""
        self.held.clear()
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
        active = self.active_lanes()
        if address.lanes is None and address.stride == 1:
            pointer = self.pointer(buffer, address)
            if active is None:
                how = f"align {lanes * item}, {self.module.nontemporal()}" if stream else f"align {item}"
                self.lines.append(f"  store {wide} {value.text}, ptr {pointer}, {how}")
                return
            name = f"@llvm.masked.store.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
            self.module.declare(f"declare void {name}({wide}, ptr, <{lanes} x i1>)")
            self.lines.append(
                f"  call void {name}({wide} {value.text}, ptr align {item} {pointer}, "
                f"<{lanes} x i1> {active.text})"
            )
            return
        pointers = self._lane_pointers(buffer, address)
        mask = "splat (i1 true)" if active is None else active.text
        name = f"@llvm.masked.scatter.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
        self.module.declare(f"declare void {name}({wide}, <{lanes} x ptr>, <{lanes} x i1>)")
        self.lines.append(
            f"  call void {name}({wide} {value.text}, <{lanes} x ptr> align {item} {pointers}, "
            f"<{lanes} x i1> {mask})"
        )


def _memory_suffix(dtype: str) -> str:
    return "i8" if dtype == "bool" else suffix(dtype, 1)
