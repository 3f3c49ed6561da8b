"""Statements of one work item: loops, branches, stores, memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.codegen.opencl.expressions import WRITTEN, Expressions
from autotune.codegen.opencl.types import INT_LIMITS, Value, memory_type, vector_type, whole
from autotune.codegen.opencl.vectors import Vectors
from autotune.codegen.opencl.writer import Writer
from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    External,
    For,
    If,
    Intrinsic,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
)
from autotune.target import ITEM_BYTES
from autotune.te.expr import Expr, Var

_MEET = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"


class Statements:
    """Writes statements; ``lanes`` is what the device likes for float32, ``pointed`` how it accesses lanes in memory
    (:mod:`autotune.codegen.opencl.vectors`).

    ``together`` says that the work items of a group share memory and meet at barriers: else each is alone.
    """

    def __init__(self, code: Writer, lanes: int, *, together: bool, pointed: bool) -> None:
        self.code = code
        self.together = together
        self.pointers: dict[Buffer, str] = {}
        self.spaces: dict[Buffer, str] = {}
        """Address spaces of buffers."""
        self.expressions = Expressions(code, self.pointers.__getitem__)
        self.vectors = Vectors(self.expressions, lanes, self.spaces if pointed else None)
        self.local_bytes = 0
        self.private_bytes = 0
        """Memory of each work item."""
        self._emit: dict[type[Stmt], Callable[[Any], None]] = {
            Seq: self._sequence,
            For: self._loop,
            While: self._while,
            Store: self._store,
            Allocate: self._allocate,
            Let: self._let,
            If: self._if,
            Intrinsic: lambda node: self.statement(node.body),
            Prefetch: lambda node: None,
            Barrier: self._barrier,
            External: _no_call,
        }

    def statement(self, node: Stmt) -> None:
        """Write a statement."""
        emit = self._emit.get(type(node))
        if emit is None:
            raise BuildError(f"no code for statement {type(node).__name__}")
        emit(node)

    def share(self, buffer: Buffer) -> None:
        """Declare memory that is one for all work items of a group."""
        if buffer not in self.pointers:
            name = self.pointers[buffer] = self.code.fresh(buffer.name)
            self.spaces[buffer] = "__local"
            count = max(buffer.elements, 1)
            self.code.local.append((memory_type(buffer.dtype), name, count))
            self.local_bytes += count * ITEM_BYTES[buffer.dtype]

    def evaluated(self, node: Expr, stem: str) -> Value:
        """Return an expression that other statements use, under a name."""
        with self.code.statement():
            self.expressions.begin(node)
            value = self.expressions.value(node)
            return value if value.number is not None else self.code.named(value, stem)

    def counted(self, variable: Var, extent: int, text: str) -> None:
        """Define a loop variable of ``extent`` values as what ``text`` says."""
        narrow = extent <= INT_LIMITS[1]
        name = self.code.fresh(variable.name)
        self.code.line(f"const {'int' if narrow else 'long'} {name} = {text};")
        self.expressions.env[variable] = Value(name, "int64", None, 0, narrow)
        self.expressions.ranges.loop(variable, 0, extent - 1)

    def repeated(self, node: For, body: Callable[[], None]) -> None:
        """Write a serial loop around what ``body`` writes."""
        name, narrow = self.code.fresh(node.var.name), node.extent <= INT_LIMITS[1]
        self.expressions.env[node.var] = Value(name, "int64", None, 0, narrow)
        self.expressions.ranges.loop(node.var, 0, node.extent - 1)
        kind = "int" if narrow else "long"
        with self.code.block(f"for ({kind} {name} = 0; {name} < {node.extent}; ++{name})"):
            body()

    def unrolled(self, node: For, body: Callable[[], None]) -> None:
        """Write each iteration by itself."""
        for number in range(node.extent):
            self.expressions.env[node.var] = whole(number)
            self.expressions.ranges.loop(node.var, number, number)
            with self.code.block():
                body()

    # -- kinds -----------------------------------------------------------------------------------------------

    def _sequence(self, node: Seq) -> None:
        for part in node.stmts:
            self.statement(part)

    def _loop(self, node: For) -> None:
        if node.kind == "vectorized":
            self.vectors.loop(node, lambda: self.repeated(node, lambda: self.statement(node.body)))
        elif node.kind == "unrolled":
            self.unrolled(node, lambda: self.statement(node.body))
        else:
            self.repeated(node, lambda: self.statement(node.body))

    def _while(self, node: While) -> None:
        """Write a loop whose condition is worked out anew each time round."""
        with self.code.block("for (;;)"):
            cond = self.evaluated(node.cond, "more")
            self.code.line(f"if (!({cond.text})) break;")
            self.statement(node.body)

    def _store(self, node: Store) -> None:
        with self.code.statement():
            self.expressions.begin(*node.indices, node.value)
            place = self.expressions.place(node.buffer, node.indices)
            value = self.expressions.value(node.value)
            text = value.text
            if node.buffer.dtype in WRITTEN:
                text = f"{self.code.function(WRITTEN[node.buffer.dtype])}({text})"
            self.code.line(f"{self.pointers[node.buffer]}[{place.text}] = {text};")

    def _allocate(self, node: Allocate) -> None:
        buffer = node.buffer
        if buffer.scope == "shared" and self.together:
            self.share(buffer)
            self.statement(node.body)
            return
        with self.code.block():
            name, count = self.code.fresh(buffer.name), max(buffer.elements, 1)
            lanes = self.vectors.packing(node)
            if lanes:
                self.vectors.packed[buffer] = lanes
                self.code.line(f"{vector_type(buffer.dtype, lanes)} {name}[{count // lanes}];")
            else:
                self.code.line(f"{memory_type(buffer.dtype)} {name}[{count}];")
            self.private_bytes += count * ITEM_BYTES[buffer.dtype]
            before = self.pointers.get(buffer)
            self.pointers[buffer], self.spaces[buffer] = name, "__private"
            self.statement(node.body)
            if before is not None:
                self.pointers[buffer] = before

    def _let(self, node: Let) -> None:
        with self.code.block():
            self.expressions.env[node.var] = self.evaluated(node.value, node.var.name)
            span = self.expressions.ranges.of(node.value)
            if span is not None:
                self.expressions.ranges.loop(node.var, *span)
            self.statement(node.body)

    def _if(self, node: If) -> None:
        with self.code.statement():
            self.expressions.begin(node.cond)
            cond = self.expressions.value(node.cond)
        if cond.number is not None:
            side = node.then if cond.number else node.otherwise
            if side is not None:
                self.statement(side)
            return
        with self.code.block(f"if ({cond.text})"):
            self.statement(node.then)
        if node.otherwise is not None:
            with self.code.block("else"):
                self.statement(node.otherwise)

    def _barrier(self, _: Barrier) -> None:
        """Write a barrier: one is as good as two, and alone there is nobody to wait for."""
        if self.together and (not self.code.lines or self.code.lines[-1].strip() != _MEET):
            self.code.line(_MEET)


def _no_call(node: External) -> None:
    raise BuildError("te.extern calls a function of the processor: build for target='host'")


__all__ = ["Statements"]
