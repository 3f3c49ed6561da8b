"""Loops over threads taken apart at barriers: all iterations run to a barrier before any goes on, one after another.

As TVM's InjectVirtualThread does for virtual threads of a GPU, and PoCL for the work items of a group on a CPU
(Jääskeläinen et al., "pocl: A Performance-Portable OpenCL Implementation", 2015): what is around a barrier is around it
once, what is between two barriers is a loop over the threads. Local memory that differs from thread to thread has an
element for each; what is the same for all of them is done once. Conditions that differ move inwards around barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    has_load,
    is_block_axis,
    is_thread_axis,
    nodes,
    sequence,
    sub_statements,
    walk,
)
from autotune.lower.rewrite import moved, with_parts
from autotune.te.expr import Expr, Not, Var

Around = tuple[Let | If, ...]
"""Names and conditions that differ from thread to thread, outermost first."""


def in_turns(
    stmt: Stmt, together: Callable[[For], bool], meets: Callable[[Stmt], bool], kind: str, *, innermost: bool
) -> Stmt:
    """Return the statement with the loops over threads that ``together`` names taken apart.

    No such loop is around what ``meets`` finds afterwards, such as barriers. The loops in its place are of ``kind``,
    around all of what lies between two such places, or with ``innermost`` around single statements.
    """
    stmt = with_parts(stmt, lambda part: in_turns(part, together, meets, kind, innermost=innermost))
    if not isinstance(stmt, For) or not together(stmt):
        return stmt
    if not any(meets(part) for part in walk(stmt.body)):
        return replace(stmt, kind="serial")
    return _Threads(stmt, meets, kind, innermost=innermost).apart(stmt.body, ())


def by_one_thread(stmt: Stmt) -> Stmt:
    """Return the statement with the threads of each block one after another, from barrier to barrier."""
    return in_turns(stmt, _is_thread, lambda part: isinstance(part, Barrier), "serial", innermost=False)


def _is_thread(loop: For) -> bool:
    return is_thread_axis(loop.kind) and not is_block_axis(loop.kind)


class _Threads:
    """Return the iterations of one loop; ``differing`` are variables and local buffers of which each has its own."""

    def __init__(self, loop: For, meets: Callable[[Stmt], bool], kind: str, *, innermost: bool) -> None:
        self.loop = loop
        self.meets = meets
        self.kind = kind
        self.innermost = innermost
        self.differing: set[Var | Buffer] = {loop.var}
        self.local = {
            p.buffer for p in walk(loop.body) if isinstance(p, Allocate) and p.buffer.scope == "local"
        }
        known = 0
        while known != len(self.differing):
            known = len(self.differing)
            self._mark(loop.body, under=False)

    def apart(self, stmt: Stmt, around: Around) -> Stmt:
        """Return the statement as all threads run it, under what is ``around`` it."""
        if not self._is_divided(stmt):
            return self._by_each(stmt, around)
        if isinstance(stmt, Seq):
            return sequence([self.apart(part, around) for part in stmt.stmts])
        if isinstance(stmt, For):
            return replace(stmt, body=self.apart(stmt.body, around))
        if isinstance(stmt, Allocate):
            return self._allocation(stmt, around)
        if isinstance(stmt, Let):
            if not self._differs(stmt.value):
                return replace(stmt, body=self.apart(stmt.body, around))
            self._check(stmt.value)
            return self.apart(stmt.body, (*around, stmt))
        if isinstance(stmt, If):
            return self._branch(stmt, around)
        return stmt  # a barrier

    def _is_divided(self, stmt: Stmt) -> bool:
        """Return whether the threads' loop is inside of a statement, not around it."""
        if any(self.meets(part) for part in walk(stmt)):
            if isinstance(stmt, While | Intrinsic):
                raise BuildError(f"threads of {self.loop.kind} meet inside of {type(stmt).__name__}")
            return True
        if not self.innermost:
            return False
        if isinstance(stmt, Let | If):
            return not any(map(self._differs, expressions(stmt)))
        return isinstance(stmt, Seq | Allocate) or (isinstance(stmt, For) and stmt.kind == "serial")

    def _by_each(self, stmt: Stmt, around: Around) -> Stmt:
        """Return a statement that each thread runs, or that is the same for all."""
        if not around and not self._statement_differs(stmt):
            return stmt
        for node in reversed(around):
            stmt = replace(node, then=stmt) if isinstance(node, If) else replace(node, body=stmt)
        return For(self.loop.var, self.loop.extent, self.kind, stmt)

    def _allocation(self, stmt: Allocate, around: Around) -> Stmt:
        buffer, body = stmt.buffer, stmt.body
        if buffer in self.differing:
            buffer = Buffer(buffer.name, (self.loop.extent, *buffer.shape), buffer.dtype, buffer.scope)
            body = moved(body, stmt.buffer, buffer, lambda at: (self.loop.var, *at))
            self.differing.add(buffer)
        return Allocate(buffer, self.apart(body, around), stmt.note)

    def _branch(self, stmt: If, around: Around) -> Stmt:
        if not self._differs(stmt.cond):
            return with_parts(stmt, lambda part: self.apart(part, around))
        self._check(stmt.cond)
        parts = [self.apart(stmt.then, (*around, If(stmt.cond, sequence([]), None)))]
        if stmt.otherwise is not None:
            other = If(Not(stmt.cond), sequence([]), None)
            parts.append(self.apart(stmt.otherwise, (*around, other)))
        return sequence(parts)

    def _check(self, value: Expr) -> None:
        if has_load(value):
            raise BuildError(
                f"a value that memory has for each thread of {self.loop.kind} is around a barrier; compute what waits "
                f"outside of it"
            )

    # -- what differs ----------------------------------------------------------------------------------------

    def _mark(self, stmt: Stmt, *, under: bool) -> None:
        """Find names and buffers that differ; ``under`` a condition that does, all that is stored does."""
        if isinstance(stmt, Let) and self._differs(stmt.value):
            self.differing.add(stmt.var)
        elif isinstance(stmt, Store) and stmt.buffer in self.local:
            self.differing |= {stmt.buffer} if under or any(map(self._differs, expressions(stmt))) else set()
        under = under or (isinstance(stmt, If | While) and self._differs(stmt.cond))
        for part in sub_statements(stmt):
            self._mark(part, under=under)

    def _differs(self, expr: Expr) -> bool:
        return any(
            node in self.differing
            if isinstance(node, Var)
            else isinstance(node, Load) and node.buffer in self.differing
            for node in nodes(expr)
        )

    def _statement_differs(self, stmt: Stmt) -> bool:
        stored = any(isinstance(part, Store) and part.buffer in self.differing for part in walk(stmt))
        return stored or any(self._differs(expr) for part in walk(stmt) for expr in expressions(part))


__all__ = ["by_one_thread", "in_turns"]
