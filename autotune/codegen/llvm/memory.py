"""Loads and stores of memory: pointers hoisted to the loop they depend on, scalar or in lanes."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from autotune.codegen.llvm.addresses import Address
from autotune.codegen.llvm.arithmetic import ArithmeticEmitter
from autotune.codegen.llvm.types import Value, memory_type, suffix, type_of, vector
from autotune.lower.ir import Buffer
from autotune.target import ITEM_BYTES

VECTOR_BYTES = 16
"""Alignment of a GPU's buffers, and the longest access of its threads; one whose address may not be a multiple of its
length is taken apart there."""

_DUMMY = "  %dummy = alloca i64, align 8"


class MemoryAccesses:
    """Emits accesses to buffers in memory.

    ``base`` gives the pointer to element 0 of a buffer; ``constant`` are those that the function does not write.
    """

    def __init__(
        self, arithmetic: ArithmeticEmitter, base: Callable[[Buffer], str], constant: frozenset[Buffer]
    ) -> None:
        self.arithmetic = arithmetic
        self.code = arithmetic.code
        self.base = base
        self._by_length = self.code.module.target.is_nvidia
        self.constant = constant

    def pointer(self, buffer: Buffer, address: Address) -> str:
        """Return the pointer to the first element of an access."""
        code, base, kind = self.code, self.base(buffer), memory_type(buffer.dtype)
        if address.scalars:
            key: tuple[object, ...] = ("sum", base, address.scalars)
            base = code.known(key) or code.remember(key, self._advanced(base, kind, address.scalars))
        if address.constant:
            key = ("ptr", base, address.constant, kind)
            base = code.cached(key, f"getelementptr {kind}, ptr {base}, i64 {address.constant}")
        return base

    def _advanced(self, base: str, kind: str, scalars: tuple[tuple[str, int], ...]) -> str:
        """Return a pointer moved by a sum of scalars, each addition in the outermost scope that has its operands."""
        code = self.code
        # Outer loops first: what they add is then invariant in the inner ones, and hoisted out of them.
        for name, c in sorted(scalars, key=lambda term: (code.depth_of(term[0]), term)):
            offset = name
            if c != 1:
                offset = code.cached(("mul", name, c), f"mul nsw i64 {name}, {c}", code.depth_of(name))
            depth, key = max(code.depth_of(base), code.depth_of(offset)), ("ptr", base, offset, kind)
            base = code.cached(key, f"getelementptr {kind}, ptr {base}, i64 {offset}", depth)
        return base

    def load(self, buffer: Buffer, address: Address) -> Value:
        """Load what is no plain load: lanes under a mask, or a gather."""
        kind, item, lanes = memory_type(buffer.dtype), ITEM_BYTES[buffer.dtype], self.code.lanes
        if address.lanes is None and address.stride == 0:
            lanes, pointer = 1, self._safe_pointer(self.pointer(buffer, address))
            text = f"load {kind}, ptr {pointer}, align {item}"
        elif address.lanes is None and address.stride == 1:
            text = self._lanes_loaded(buffer, address, lanes)
        elif address.pattern is not None and self._within_vector(address.pattern):
            text = self._shuffled(buffer, address, address.pattern)
        else:
            active, wide = self.arithmetic.active_lanes(), f"<{lanes} x {kind}>"
            pointers = f"<{lanes} x ptr>", f"align {item} {self._lane_pointers(buffer, address)}"
            mask = f"<{lanes} x i1>", "splat (i1 true)" if active is None else active.text
            name = f"@llvm.masked.gather.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
            text = self.code.call(wide, name, pointers, mask, (wide, "zeroinitializer"))
        return self.from_memory(Value(self.code.op(text), buffer.dtype, lanes))

    def plain_load(self, buffer: Buffer, address: Address, lanes: int) -> Value:
        """Return a scalar or contiguous lanes, loaded once: in the scope when the function does not write the
        buffer, else until something may have written it.
        """
        code = self.code
        idle = code.idle if lanes > 1 else 0
        key = ("load", self.base(buffer), address.scalars, address.constant, lanes, idle)
        constant = buffer in self.constant
        name = code.known(key) if constant else code.held.get(key)
        if name is None:
            name = code.op(self._lanes_loaded(buffer, address, lanes))
            if constant:
                code.remember(key, name)
            else:
                code.held[key] = name
        value = Value(name, buffer.dtype, lanes)
        return value if buffer.dtype != "bool" else self.from_memory(value)

    def alignment(self, buffer: Buffer, address: Address, lanes: int) -> int:
        """Return bytes that surely divide the address of neighbouring elements; one's where more is of no use."""
        item = ITEM_BYTES[buffer.dtype]
        if lanes == 1 or not self._by_length:
            return item
        return gcd(VECTOR_BYTES, item * gcd(address.constant, *(step for _, step in address.scalars)))

    def _lanes_loaded(self, buffer: Buffer, address: Address, lanes: int) -> str:
        """Return a scalar, or neighbours as far as lanes are active."""
        pointer = self.pointer(buffer, address)
        wide, item = vector(memory_type(buffer.dtype), lanes), ITEM_BYTES[buffer.dtype]
        active = None if lanes == 1 else self.arithmetic.active_lanes()
        if active is None:
            return f"load {wide}, ptr {pointer}, align {self.alignment(buffer, address, lanes)}"
        name = f"@llvm.masked.load.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
        mask, other = (f"<{lanes} x i1>", active.text), (wide, "zeroinitializer")
        return self.code.call(wide, name, ("ptr", f"align {item} {pointer}"), mask, other)

    def _within_vector(self, pattern: tuple[int, ...]) -> bool:
        """Return whether all that the lanes read is within the reach of one load, and no lane is off."""
        near = max(pattern) - min(pattern) < self.code.lanes
        return near and self.code.idle == 0 and self.arithmetic.active_lanes() is None

    def _shuffled(self, buffer: Buffer, address: Address, pattern: tuple[int, ...]) -> str:
        """Return one load from the first element that a lane reads to the last one, and a shuffle: a
        gather loads each."""
        first, lanes = min(pattern), self.code.lanes
        count = max(pattern) - first + 1
        start = address._replace(constant=address.constant + first, stride=0, lanes=None, pattern=None)
        kind = f"<{count} x {memory_type(buffer.dtype)}>"
        pointer = self.pointer(buffer, start)
        line = self.code.op(f"load {kind}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}")
        order = ", ".join(f"i32 {n - first}" for n in pattern)
        return f"shufflevector {kind} {line}, {kind} {line}, <{lanes} x i32> <{order}>"

    def _lane_pointers(self, buffer: Buffer, address: Address) -> str:
        lanes, kind = self.code.lanes, memory_type(buffer.dtype)
        base = self.pointer(buffer, address)
        if address.lanes is not None:
            offsets = address.lanes.text
        else:
            offsets = "<" + ", ".join(f"i64 {i * address.stride}" for i in range(lanes)) + ">"
        return self.code.op(f"getelementptr {kind}, ptr {base}, <{lanes} x i64> {offsets}")

    def _safe_pointer(self, pointer: str) -> str:
        """Return a pointer that may be read when no lane is active: it leads to a dummy then."""
        code, mask = self.code, self.code.mask
        if mask is None:
            return pointer
        name = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        some = code.cached(("any", mask.text), code.call("i1", name, (type_of(mask), mask.text)))
        if _DUMMY not in code.entry:
            code.entry += [_DUMMY, "  store i64 0, ptr %dummy, align 8"]
        return code.op(f"select i1 {some}, ptr {pointer}, ptr %dummy")

    def from_memory(self, value: Value) -> Value:
        """Return a value as it is in registers: a bool takes a bit there."""
        if value.dtype != "bool":
            return value
        zero = "0" if value.lanes == 1 else "zeroinitializer"
        text = f"icmp ne {vector('i8', value.lanes)} {value.text}, {zero}"
        return Value(self.code.op(text), "bool", value.lanes)

    def store(self, buffer: Buffer, address: Address, value: Value, stream: bool = False) -> None:
        """Store to memory: scalar, contiguous lanes (past the caches on request), or a scatter."""
        code, lanes = self.code, self.code.lanes
        code.held.clear()
        kind, item = memory_type(buffer.dtype), ITEM_BYTES[buffer.dtype]
        if value.dtype == "bool":
            value = code.converted("zext", value, "uint8")
        if lanes == 1:
            code.lines.append(
                f"  store {kind} {value.text}, ptr {self.pointer(buffer, address)}, align {item}"
            )
            return
        value = code.splat(value, lanes)
        wide = f"<{lanes} x {kind}>"
        active = self.arithmetic.active_lanes()
        neighbours = address.lanes is None and address.stride == 1
        if neighbours and active is None:
            pointer = self.pointer(buffer, address)
            how = f"align {self.alignment(buffer, address, lanes)}"
            if stream:
                how = f"align {lanes * item}, {code.module.nontemporal()}"
            code.lines.append(f"  store {wide} {value.text}, ptr {pointer}, {how}")
            return
        if neighbours:
            pointers = "ptr", f"align {item} {self.pointer(buffer, address)}"
            name = f"@llvm.masked.store.v{lanes}{_memory_suffix(buffer.dtype)}.p0"
        else:
            pointers = f"<{lanes} x ptr>", f"align {item} {self._lane_pointers(buffer, address)}"
            name = f"@llvm.masked.scatter.v{lanes}{_memory_suffix(buffer.dtype)}.v{lanes}p0"
        mask = f"<{lanes} x i1>", "splat (i1 true)" if active is None else active.text
        code.lines.append("  " + code.call("void", name, (wide, value.text), pointers, mask))


def _memory_suffix(dtype: str) -> str:
    return "i8" if dtype == "bool" else suffix(dtype, 1)


__all__ = ["MemoryAccesses"]
