"""Local memory of threads in registers: loops over its elements are unrolled, as registers have no addresses.

A thread's accumulators and the parts of operands that it holds are small; in a serial loop over them they would be in
memory of the device, however fast its name sounds. Compilers of CUDA unroll such loops by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.lower.frame import THREAD_REGISTERS
from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    For,
    Let,
    Load,
    Stmt,
    Store,
    expressions,
    nodes,
    sub_statements,
    walk,
)
from autotune.lower.rewrite import with_parts
from autotune.te.expr import Expr, Var

MAX_STORES = 1024
"""Statements that the loops over a buffer may become."""


def in_registers(stmt: Stmt) -> Stmt:
    """Return the statements of a thread with the serial loops unrolled that small local buffers are indexed by."""
    loops = set[int]()
    for part in walk(stmt):
        if isinstance(part, Allocate) and part.buffer.scope == "local":
            loops |= _loops_over(part, loops)
    return _unrolled(stmt, loops)


def _loops_over(node: Allocate, before: set[int]) -> set[int]:
    """Return the serial loops by whose variables a buffer is indexed; none where that would not make it registers."""
    if node.buffer.elements > THREAD_REGISTERS:
        return set()
    variables = _variables(node)
    inside = [part for part in walk(node.body) if isinstance(part, For)]
    found = {id(loop) for loop in inside if loop.kind == "serial" and loop.var in variables}
    if not variables <= {loop.var for loop in inside}:
        return set()
    if any(isinstance(part, Barrier) for loop in inside if id(loop) in found for part in walk(loop)):
        return set()
    return found if _stores(node.body, found | before) <= MAX_STORES else set()


def _variables(node: Allocate) -> set[Var]:
    """Return the variables on which the indices of a buffer depend, through names as well."""
    named = {part.var: part.value for part in walk(node.body) if isinstance(part, Let)}
    waiting = [index for access in _accesses(node) for index in access.indices]
    found = set[Var]()
    while waiting:
        for var in _variables_of(waiting.pop()):
            if var in named:
                waiting.append(named[var])
            else:
                found.add(var)
    return found


def _accesses(node: Allocate) -> Iterator[Store | Load]:
    buffer: Buffer = node.buffer
    for part in walk(node.body):
        if isinstance(part, Store) and part.buffer is buffer:
            yield part
        for expr in nodes(*expressions(part)):
            if isinstance(expr, Load) and expr.buffer is buffer:
                yield expr


def _variables_of(expr: Expr) -> Iterator[Var]:
    return (part for part in nodes(expr) if isinstance(part, Var))


def _stores(stmt: Stmt, unrolled: set[int]) -> int:
    """Return statements that are left when loops are unrolled."""
    count = int(isinstance(stmt, Store)) + sum(_stores(part, unrolled) for part in sub_statements(stmt))
    repeated = isinstance(stmt, For) and (stmt.kind == "unrolled" or id(stmt) in unrolled)
    return count * stmt.extent if isinstance(stmt, For) and repeated else count


def _unrolled(stmt: Stmt, loops: set[int]) -> Stmt:
    new = with_parts(stmt, lambda part: _unrolled(part, loops))
    return replace(new, kind="unrolled") if isinstance(new, For) and id(stmt) in loops else new


__all__ = ["in_registers"]
