"""The reference interpreter of the loop IR: same numbers as machine code, no compiler, any schedule.

It is slow and simple on purpose; the property tests compare it with NumPy and with machine code. Loops bound to
thread axes run as on a GPU, barriers included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from autotune.codegen.interpreter.external import call_external
from autotune.codegen.interpreter.threads import Thread
from autotune.errors import InternalError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    External,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    LoopKernel,
    LoopProgram,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    has_thread_axes,
)
from autotune.te.conversion import converted
from autotune.te.depth import walks_deep
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Not, Select, Var
from autotune.te.values import BINARY, COMPARE, FUNCTIONS

Array = np.ndarray[Any, Any]


def run_program(program: LoopProgram, arrays: Mapping[str, Array]) -> None:
    """Run all kernels; ``arrays`` holds one array an argument, outputs are written in place.

    Raises InternalError on an access outside of a buffer.
    """
    memory: dict[Buffer, Array] = {}
    for buffer in program.arguments:
        memory[buffer] = arrays[buffer.name]
    for buffer in program.workspaces:
        memory[buffer] = poisoned(buffer)
    for kernel in program.kernels:
        run_kernel(kernel, memory, range(kernel.tiles))


@walks_deep
def run_kernel(kernel: LoopKernel, memory: Mapping[Buffer, Array], tiles: range) -> None:
    """Run some tiles of a kernel; ``memory`` has the arrays of its buffers.

    Raises InternalError on an access outside of a buffer.
    """
    with np.errstate(all="ignore"):
        if has_thread_axes(kernel.body):
            for _ in Thread(_evaluate, _place, poisoned, dict(memory)).run(kernel.body):
                raise InternalError(f"kernel {kernel.name} waits at a barrier outside of its threads")
        else:
            _Machine(dict(memory), tiles=tiles).run(kernel.body)


def poisoned(buffer: Buffer) -> Array:
    """Return the fresh memory full of a value that shows when it is read before it is written."""
    value = np.nan if is_float(buffer.dtype) else True if buffer.dtype == "bool" else 0x55
    return np.full(buffer.shape, value, buffer.dtype)


class _Machine:
    def __init__(
        self, memory: dict[Buffer, Array], env: dict[Var, Any] | None = None, tiles: range = range(1)
    ) -> None:
        self.memory = memory
        self.env: dict[Var, Any] = {} if env is None else env
        self.tiles = tiles
        """Iterations of the kernel's parallel loop."""

    def run(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                self.run(part)
        elif isinstance(stmt, For):
            for number in self.tiles if stmt.kind == "parallel" else range(stmt.extent):
                self.env[stmt.var] = np.int64(number)
                self.run(stmt.body)
        elif isinstance(stmt, While):
            while self.value(stmt.cond):
                self.run(stmt.body)
        elif isinstance(stmt, Store):
            index = self.index(stmt.buffer, stmt.indices)
            self.memory[stmt.buffer][index] = self.value(stmt.value)
        elif isinstance(stmt, Let):
            self.env[stmt.var] = self.value(stmt.value)
            self.run(stmt.body)
        elif isinstance(stmt, If):
            if self.value(stmt.cond):
                self.run(stmt.then)
            elif stmt.otherwise is not None:
                self.run(stmt.otherwise)
        elif isinstance(stmt, Allocate):
            self.memory[stmt.buffer] = poisoned(stmt.buffer)
            self.run(stmt.body)
        elif isinstance(stmt, Intrinsic):
            self.run(stmt.body)
        elif isinstance(stmt, External):
            call_external(stmt, self.memory)
        elif not isinstance(stmt, Barrier | Prefetch):
            raise InternalError(f"unknown statement {type(stmt).__name__}")

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, ...]:
        return self._place(buffer, map(self.value, indices))

    def _place(self, buffer: Buffer, indices: Iterable[Any]) -> tuple[int, ...]:
        place = tuple(int(i) for i in indices)
        if any(not 0 <= i < d for i, d in zip(place, buffer.shape, strict=True)):
            raise InternalError(f"access to {buffer.name}{list(place)} outside of its shape {buffer.shape}")
        return place

    def value(self, node: Expr) -> Any:
        """Return the value of an expression, of whose parts each is worked out once."""
        return self._value(node, {})

    def _value(self, node: Expr, memo: dict[int, Any]) -> Any:
        if isinstance(node, Const):
            return np.dtype(node.dtype).type(node.value)
        if isinstance(node, Var):
            return self.env[node]
        done = memo.get(id(node))
        if done is None:
            done = memo[id(node)] = self._computed(node, lambda part: self._value(part, memo))
        return done

    def _computed(self, node: Expr, value: Callable[[Expr], Any]) -> Any:
        if isinstance(node, Load):
            return self.memory[node.buffer][self._place(node.buffer, map(value, node.indices))]
        if isinstance(node, Binary):
            if node.op == "and":
                return value(node.a) and value(node.b)
            if node.op == "or":
                return value(node.a) or value(node.b)
            return BINARY[node.op](value(node.a), value(node.b))
        if isinstance(node, Compare):
            return COMPARE[node.op](value(node.a), value(node.b))
        if isinstance(node, Select):
            return value(node.a if value(node.cond) else node.b)
        if isinstance(node, Not):
            return not value(node.a)
        if isinstance(node, Cast):
            return converted(np.asarray(value(node.a)), node.dtype)[()]
        if isinstance(node, Call):
            return FUNCTIONS[node.name](*[value(a) for a in node.args])
        raise InternalError(f"unknown expression {type(node).__name__}")


def _evaluate(node: Expr, env: dict[Var, Any], memory: dict[Buffer, Array]) -> Any:
    return _Machine(memory, env).value(node)


def _place(
    buffer: Buffer, indices: tuple[Expr, ...], env: dict[Var, Any], memory: dict[Buffer, Array]
) -> tuple[int, ...]:
    return _Machine(memory, env).index(buffer, indices)


__all__ = ["poisoned", "run_kernel", "run_program"]
