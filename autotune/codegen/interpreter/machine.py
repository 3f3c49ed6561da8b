"""The reference interpreter of the loop IR: same numbers as machine code, no compiler, any schedule.

It is slow and simple on purpose; the property tests compare it with NumPy and with machine code. Loops bound to
thread axes run as on a GPU, barriers included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.codegen.interpreter.evaluator import Array, Env, Evaluator, Memory
from autotune.codegen.interpreter.external import call_external
from autotune.codegen.interpreter.threads import Thread
from autotune.codegen.interpreter.tiles import multiplied
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
    LoopKernel,
    LoopProgram,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    has_thread_axes,
)
from autotune.te.depth import walks_deep
from autotune.te.dtypes import is_float
from autotune.te.expr import Expr


def run_program(program: LoopProgram, arrays: Mapping[str, Array]) -> None:
    """Run all kernels; ``arrays`` holds one array an argument, outputs are written in place.

    Raises InternalError on an access outside of a buffer.
    """
    memory: Memory = {}
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
            for _ in Thread(Evaluator(), poisoned, dict(memory)).run(kernel.body):
                raise InternalError(f"kernel {kernel.name} waits at a barrier outside of its threads")
        else:
            _Machine(dict(memory), tiles).run(kernel.body)


def poisoned(buffer: Buffer) -> Array:
    """Return the fresh memory full of a value that shows when it is read before it is written."""
    value = np.nan if is_float(buffer.dtype) else True if buffer.dtype == "bool" else 0x55
    return np.full(buffer.shape, value, buffer.dtype)


class _Machine:
    def __init__(self, memory: Memory, tiles: range) -> None:
        self.memory = memory
        self.env: Env = {}
        self.evaluator = Evaluator()
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
            place = self.evaluator.place(stmt.buffer, stmt.indices, self.env, self.memory)
            self.memory[stmt.buffer][place] = self.value(stmt.value)
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
            if not multiplied(stmt, self.evaluator, self.env, self.memory):
                self.run(stmt.body)
        elif isinstance(stmt, External):
            call_external(stmt, self.memory)
        elif not isinstance(stmt, Barrier | Prefetch):
            raise InternalError(f"unknown statement {type(stmt).__name__}")

    def value(self, node: Expr) -> Any:
        return self.evaluator.value(node, self.env, self.memory)


__all__ = ["poisoned", "run_kernel", "run_program"]
