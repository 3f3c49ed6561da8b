"""Software pipelining: stages attached to a loop are computed some iterations ahead of their readers.

A buffer gets a copy for each iteration in flight. Before the loop the first tiles are computed, in the loop the tile of
a later iteration before the one at hand is used (Lam, "Software Pipelining", 1988). Threads that fill shared memory
together meet once an iteration: the tile at hand is there then, and the copy that is filled next has been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from autotune.errors import LoweringError
from autotune.lower.ir import (
    AHEAD,
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    loads,
    sequence,
    walk,
)
from autotune.lower.rewrite import moved, substituted
from autotune.rounding import round_up
from autotune.strides import dense_strides
from autotune.target import ITEM_BYTES
from autotune.te.expr import Binary, Compare, Expr, Var, const

_LINE_BYTES = 64
"""Copies of a buffer begin at multiples of this."""


class _Iteration(NamedTuple):
    """One iteration: names and conditions around it, memory of it alone, what fills ``ahead`` buffers, what follows."""

    around: tuple[Let | If, ...]
    own: tuple[Allocate, ...]
    filling: tuple[Stmt, ...]
    using: tuple[Stmt, ...]


def pipelined(loop: For, ahead: Sequence[Buffer], distance: int) -> Stmt:
    """Return the loop with what fills the buffers ``ahead`` run ``distance`` iterations before the rest.

    Raises LoweringError where these are not filled once an iteration, by statements of their own.
    """
    return _Pipeline(loop, ahead, distance).statement()


class _Pipeline:
    def __init__(self, loop: For, ahead: Sequence[Buffer], distance: int) -> None:
        self.loop = loop
        self.distance = min(distance, loop.extent - 1)
        self.shared = any(buffer.scope == "shared" for buffer in ahead)
        self.copies = {buffer: _with_copies(buffer, self.distance + 1) for buffer in ahead}
        self.one = self._taken_apart()

    def statement(self) -> Stmt:
        """Return memory for all copies, the first tiles, and the loop."""
        parts: list[Stmt] = [Barrier()] if self.shared else []
        for number in range(self.distance):
            # Of several tiles on their way, each is a group of copies.
            parts += [Barrier(self.distance)] if self.shared and number else []
            parts.append(self._filled(const(number)))
        later = self.loop.var + self.distance
        more = Compare("<", later, const(self.loop.extent))
        body: list[Stmt] = [Barrier(self.distance - 1)] if self.shared else []
        body += [If(more, self._filled(later), None), self._used()]
        parts.append(replace(self.loop, body=sequence(body)))
        stmt = sequence(parts)
        for buffer in reversed(self.copies.values()):
            stmt = Allocate(buffer, stmt, AHEAD if buffer.scope == "shared" else "")
        return stmt

    def _filled(self, iteration: Expr) -> Stmt:
        """Return the statement that fills the buffers for an iteration."""
        stmt = sequence(self._with_barriers(self.one.filling))
        for node in reversed(self.one.around):
            stmt = If(node.cond, stmt, None) if isinstance(node, If) else _named(node, stmt)
        return substituted(self._in_copies(stmt), {self.loop.var: iteration})

    def _with_barriers(self, filling: Iterable[Stmt]) -> list[Stmt]:
        """Return the parts with barriers, where threads meet between a tile and one that is computed from it."""
        parts, written = list[Stmt](), set[Buffer]()
        for stmt in filling:
            if any(load.buffer in written for load in loads(stmt)):
                parts.append(Barrier(0))
                written.clear()
            written |= {buffer for buffer in _stored(stmt) if buffer.scope == "shared"}
            parts.append(stmt)
        return parts

    def _used(self) -> Stmt:
        stmt = self._in_copies(sequence(list(self.one.using)))
        for own in reversed(self.one.own):
            stmt = replace(own, body=stmt)
        for node in reversed(self.one.around):
            stmt = If(node.cond, stmt, None) if isinstance(node, If) else replace(node, body=stmt)
        return stmt

    def _in_copies(self, stmt: Stmt) -> Stmt:
        """Return the statement on the copies that its iteration has."""
        number = Binary("%", self.loop.var, const(self.distance + 1), "int64")
        for old, new in self.copies.items():
            stmt = moved(stmt, old, new, lambda at: (number, *at))
        return stmt

    def _taken_apart(self) -> _Iteration:
        around, own, stmt = list[Let | If](), list[Allocate](), self.loop.body
        allocated = set[Buffer]()
        while isinstance(stmt, Let | Allocate) or (isinstance(stmt, If) and stmt.otherwise is None):
            if isinstance(stmt, If):
                around.append(stmt)
                stmt = stmt.then
                continue
            if isinstance(stmt, Let):
                around.append(stmt)
            elif stmt.buffer in self.copies:
                allocated.add(stmt.buffer)
            else:
                own.append(stmt)
            stmt = stmt.body
        if allocated != set(self.copies):
            raise self._refusal()
        filling, using = self._divided(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
        return _Iteration(tuple(around), tuple(own), filling, using)

    def _divided(self, stmts: Sequence[Stmt]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """Return the statements that fill the buffers, and the rest without the barriers around the former."""
        filling = [n for n, stmt in enumerate(stmts) if _stored(stmt) & set(self.copies)]
        met = {n + side for n in filling for side in (-1, 1) if _is_shared(stmts[n], self.copies)}
        rest = [stmt for n, stmt in enumerate(stmts) if n not in filling and n not in met]
        if any(load.buffer in _stored(stmt) for n in filling for load in loads(stmts[n]) for stmt in rest):
            raise self._refusal()
        return tuple(stmts[n] for n in filling), tuple(rest)

    def _refusal(self) -> LoweringError:
        names = ", ".join(buffer.name for buffer in self.copies)
        return LoweringError(
            f"{names} cannot be computed ahead in loop {self.loop.var.name}: its iterations differ in size, as those "
            f"of a fused loop whose parts were split by a factor that does not divide; split by one that does, or "
            f"compute {names} at a loop that is not fused"
        )


def _with_copies(buffer: Buffer, count: int) -> Buffer:
    step = round_up(buffer.elements * ITEM_BYTES[buffer.dtype], _LINE_BYTES) // ITEM_BYTES[buffer.dtype]
    shape = (count, *buffer.shape)
    strides = (step, *buffer.strides)
    whole = dense_strides(shape)
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, None if strides == whole else strides)


def _named(node: Let, body: Stmt) -> Let:
    """Return the name anew: the iteration at hand has it for a value of its own."""
    var = Var(node.var.name, node.var.dtype)
    return Let(var, node.value, substituted(body, {node.var: var}))


def _stored(stmt: Stmt) -> set[Buffer]:
    return {part.buffer for part in walk(stmt) if isinstance(part, Store)}


def _is_shared(stmt: Stmt, buffers: Iterable[Buffer]) -> bool:
    return any(buffer in _stored(stmt) and buffer.scope == "shared" for buffer in buffers)


__all__ = ["pipelined"]
