"""Interpreting loops that are bound to GPU thread axes: threads run one at a time, and wait for one another at
barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autotune.codegen.interpreter.evaluator import Array, Env, Evaluator, Memory
from autotune.codegen.interpreter.external import call_external
from autotune.codegen.interpreter.tiles import multiplied
from autotune.errors import InternalError, LoweringError
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
    is_block_axis,
    is_thread_axis,
)
from autotune.te.expr import Expr

Waits = Iterator[None]
"""A running thread; it yields at each barrier."""


class Thread:
    """One thread of a block: its variables and its local memory; shared memory is the block's."""

    def __init__(self, evaluator: Evaluator, fresh: Callable[[Buffer], Array], memory: Memory) -> None:
        self.evaluator = evaluator
        self.fresh = fresh
        self.env: Env = {}
        self.memory = memory
        self.shared: Memory = {}
        self.alone = True

    def run(self, stmt: Stmt) -> Waits:
        """Run a statement."""
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                yield from self.run(part)
        elif isinstance(stmt, For):
            yield from self._for(stmt)
        elif isinstance(stmt, While):
            while self.value(stmt.cond):
                yield from self.run(stmt.body)
        elif isinstance(stmt, Store):
            place = self.evaluator.place(stmt.buffer, stmt.indices, self.env, self.memory)
            self.memory[stmt.buffer][place] = self.value(stmt.value)
        elif isinstance(stmt, Let):
            self.env[stmt.var] = self.value(stmt.value)
            yield from self.run(stmt.body)
        elif isinstance(stmt, If):
            if self.value(stmt.cond):
                yield from self.run(stmt.then)
            elif stmt.otherwise is not None:
                yield from self.run(stmt.otherwise)
        elif isinstance(stmt, Allocate):
            self._allocate(stmt.buffer)
            yield from self.run(stmt.body)
        elif isinstance(stmt, Barrier):
            if not self.alone:
                yield
        elif isinstance(stmt, Intrinsic):
            if not multiplied(stmt, self.evaluator, self.env, self.memory):
                yield from self.run(stmt.body)
        elif isinstance(stmt, External):
            call_external(stmt, self.memory)
        elif not isinstance(stmt, Prefetch):
            raise InternalError(f"unknown statement {type(stmt).__name__}")

    def value(self, node: Expr) -> Any:
        """Return the value of an expression for this thread."""
        return self.evaluator.value(node, self.env, self.memory)

    def _allocate(self, buffer: Buffer) -> None:
        """Allocate memory: local memory is fresh, shared memory belongs to the first thread of the block
        that comes by."""
        if buffer.scope != "shared" or self.alone:
            self.memory[buffer] = self.fresh(buffer)
            return
        if buffer not in self.shared:
            self.shared[buffer] = self.fresh(buffer)
        self.memory[buffer] = self.shared[buffer]

    def _for(self, loop: For) -> Waits:
        if not is_thread_axis(loop.kind):
            for number in range(loop.extent):
                self.env[loop.var] = np.int64(number)
                yield from self.run(loop.body)
        elif is_block_axis(loop.kind):
            for number in range(loop.extent):
                self.shared = {}
                self.env[loop.var] = np.int64(number)
                yield from self.run(loop.body)
        else:
            yield from self._together(loop)

    def _together(self, loop: For) -> Waits:
        """Return all iterations at once: each runs to its next barrier before any goes on."""
        threads: list[Thread] = []
        for number in range(loop.extent):
            thread = Thread(self.evaluator, self.fresh, dict(self.memory))
            thread.env = dict(self.env)
            thread.env[loop.var] = np.int64(number)
            thread.shared = self.shared if not self.alone else threads[0].shared if threads else {}
            thread.alone = False
            threads.append(thread)
        running = [thread.run(loop.body) for thread in threads]
        outermost = self.alone
        while running:
            waiting = [one for one in running if next(one, "done") is None]
            if waiting and len(waiting) != len(running):
                raise LoweringError(
                    f"{len(waiting)} of {len(running)} threads of {loop.kind} wait at a barrier that the others do "
                    f"not reach: shared stages must be computed where all threads of the block come by"
                )
            running = waiting
            if running and not outermost:
                yield


__all__ = ["Thread"]
