"""Text of one LLVM function: names, blocks, scopes and hoisting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from autotune.codegen.module import ModuleText
from autotune.codegen.types import Value, scalar_type
from autotune.errors import BuildError

MAX_LINES = 400_000
"""Longest function; a schedule that unrolls more is refused instead of compiling for minutes."""


class _Scope(NamedTuple):
    """Pure values by what they compute, and where to put those that do not depend on the scope."""

    values: dict[tuple[object, ...], str]
    before: list[str]


class Writer:
    """Collects the lines of a function.

    ``lanes`` is the width of the vectorized loop that is being emitted (1 outside of one), ``mask`` the lanes of it
    that are active (None for all).
    """

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        # A list among the lines is a place for instructions that are hoisted out of what follows it.
        self.lines: list[str | list[str]] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.lanes = 1
        self.mask: Value | None = None
        self._counter = 0
        self._scopes: list[_Scope] = [_Scope({}, [])]
        self._depths: dict[str, int] = {}
        self._memos: list[dict[int, Value]] = [{}]

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
