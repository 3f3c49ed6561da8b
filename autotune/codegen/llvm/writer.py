"""Text of one LLVM function: names, blocks, scopes and hoisting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.scoped import Scoped
from autotune.codegen.llvm.types import Value, scalar_type, type_of, vector
from autotune.errors import BuildError

MAX_LINES = 400_000
"""Longest function; a schedule that unrolls more is refused instead of compiling for minutes."""


class Writer:
    """Collects the lines of a function, and knows what holds where the next one goes.

    The same part of another backend is :class:`autotune.codegen.opencl.writer.Writer`.
    ``lanes`` is the width of the vectorized loop that is being emitted (1 outside of one), of which the last ``idle``
    neither read nor write memory. ``mask`` are the lanes where the conditions around hold (None for all).
    ``decisions`` counts the conditions around that are known to hold while code is emitted: they may hold for some
    iterations of an unrolled loop only.
    """

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        # A list among the lines is a place for instructions that are hoisted out of what follows it.
        self.lines: list[str | list[str]] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.lanes = 1
        self.idle = 0
        self.mask: Value | None = None
        self.decisions = 0
        self._counter = 0
        self.depth = 0
        """Number of the innermost scope; 0 is the function's."""
        self.memo: Scoped[int, Value] = Scoped()
        """Values of expressions by the node's id; ``with`` it, one statement: they are not shared with others."""
        self._values: Scoped[tuple[object, ...], str] = Scoped()
        """Names of pure values by what they compute."""
        self._before: list[list[str]] = [[]]
        """For each open scope the place before it, for what does not depend on it."""
        self._depths: dict[str, int] = {}
        self.held: dict[tuple[object, ...], str] = {}
        """Values that this block has loaded, until a store may change them."""
        self._in_slots: dict[str, Value] = {}
        """Known values of slots in this block."""
        self._unstored: dict[str, Value] = {}
        """Those of them that the slot's memory does not have yet."""

    def fresh(self, stem: str = "v") -> str:
        """Return a new SSA name or label stem."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def op(self, text: str) -> str:
        """Emit an instruction with a result; returns its name."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def binary(self, instruction: str, a: Value, b: Value) -> Value:
        """Return an instruction on two values of one type, which its result has too."""
        return Value(self.op(f"{instruction} {type_of(a)} {a.text}, {b.text}"), a.dtype, a.lanes)

    def compared(self, instruction: str, a: Value, b: Value) -> Value:
        """Return a comparison of two values of one type."""
        return Value(self.op(f"{instruction} {type_of(a)} {a.text}, {b.text}"), "bool", a.lanes)

    def select(self, flag: Value, a: Value, b: Value) -> Value:
        """Return ``a`` where the flag is set, else ``b``."""
        kind = type_of(a)
        text = f"select {type_of(flag)} {flag.text}, {kind} {a.text}, {kind} {b.text}"
        return Value(self.op(text), a.dtype, a.lanes)

    def converted(self, instruction: str, value: Value, dtype: str) -> Value:
        """Return a value converted to another type by an instruction."""
        kind = vector(scalar_type(dtype), value.lanes)
        return Value(self.op(f"{instruction} {type_of(value)} {value.text} to {kind}"), dtype, value.lanes)

    def call(self, result: str, symbol: str, *arguments: tuple[str, str]) -> str:
        """Return the call of a function, which is declared too; arguments are types and values."""
        self.module.declare(f"declare {result} {symbol}({', '.join([kind for kind, _ in arguments])})")
        return f"call {result} {symbol}({', '.join([f'{kind} {value}' for kind, value in arguments])})"

    def flat_lines(self) -> list[str]:
        """Return all lines of the function, hoisted ones in their places."""
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

    def end_block(self, line: str) -> None:
        """Emit the branch at the end of a block; what slots hold is in memory from here on."""
        for slot, value in self._unstored.items():
            self.lines.append(f"  store {type_of(value)} {value.text}, ptr {slot}")
        self._unstored.clear()
        self._in_slots.clear()
        self.held.clear()
        self.lines.append(f"  {line}")

    def read_slot(self, slot: str, dtype: str, lanes: int) -> Value:
        """Return the value of a slot, a register in stack memory; within a block it stays an SSA value."""
        value = self._in_slots.get(slot)
        if value is None:
            value = Value(self.op(f"load {vector(scalar_type(dtype), lanes)}, ptr {slot}"), dtype, lanes)
            self._in_slots[slot] = value
        return value

    def write_slot(self, slot: str, value: Value) -> None:
        """Give a slot another value."""
        self._in_slots[slot] = self._unstored[slot] = value

    def drop_slot(self, slot: str) -> None:
        """Drop a slot, which nothing reads from here on."""
        self._unstored.pop(slot, None)

    def hoisting_point(self) -> list[str]:
        """Return a place before the next branch, for what turns out to be invariant in the scope behind it."""
        point: list[str] = []
        self.lines.append(point)
        return point

    @contextmanager
    def scope(self, before: list[str]) -> Iterator[None]:
        """Open a block whose values are not visible after it; ``before`` is its hoisting point."""
        self._before.append(before)
        self.depth += 1
        with self._values, self.memo:
            yield
        self.depth -= 1
        self._before.pop()

    @contextmanager
    def decided(self) -> Iterator[None]:
        """Enter the side of a condition that is known while code is emitted."""
        self.decisions += 1
        yield
        self.decisions -= 1

    def depth_of(self, name: str) -> int:
        """Return the scope in which an SSA value is available, at most the innermost."""
        return min(self._depths.get(name, self.depth), self.depth)

    def available(self, name: str, depth: int) -> None:
        """Tell in which scope an SSA value was made."""
        self._depths[name] = depth

    def cached(self, key: tuple[object, ...], text: str, depth: int | None = None) -> str:
        """Return the result of a pure instruction, emitted once in this scope and those around.

        With ``depth``, the outermost scope that its operands allow, it is emitted there.
        """
        name = self.known(key)
        if name is not None:
            return name
        if depth is None or depth == self.depth:
            name = self.op(text)
            depth = self.depth
        else:
            self._counter += 1
            name = f"%v{self._counter}"
            self._before[depth + 1].append(f"  {name} = {text}")
        self._depths[name] = depth
        return self.remember(key, name)

    def known(self, key: tuple[object, ...]) -> str | None:
        """Return the name of a pure value, if it was emitted in this scope or one around."""
        return self._values.get(key)

    def remember(self, key: tuple[object, ...], name: str) -> str:
        """Tell the name of a pure value, for as long as it is available."""
        self._values.add(key, name, self.depth_of(name))
        return name

    def splat(self, value: Value, lanes: int) -> Value:
        """Return the value in every lane."""
        if value.lanes == lanes:
            return value
        key = ("splat", value.text, lanes)
        name = self.known(key)
        if name is None:
            kind = scalar_type(value.dtype)
            if not value.text.startswith("%"):
                return Value(f"splat ({kind} {value.text})", value.dtype, lanes)
            wide = f"<{lanes} x {kind}>"
            one = self.op(f"insertelement {wide} poison, {kind} {value.text}, i64 0")
            text = f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"
            name = self.cached(key, text)
        return Value(name, value.dtype, lanes)

    def alike(self, *values: Value) -> tuple[list[Value], int]:
        """Return the values with the same number of lanes."""
        lanes = max([v.lanes for v in values])
        return [v if v.lanes == lanes else self.splat(v, lanes) for v in values], lanes
