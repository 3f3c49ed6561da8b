"""Divides a kernel into launches: in each, all of the loops over blocks stand around all of the rest.

Blocks of a grid cannot wait for one another, so that what follows a loop over blocks is a launch of its own. A loop
over blocks around several parts is repeated around each: its iterations are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.codegen.gpu.grid import TILE_THREADS, has_blocks
from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    If,
    Let,
    LoopKernel,
    Seq,
    Stmt,
    Store,
    expressions,
    has_thread_axes,
    is_block_axis,
    loads,
    nodes,
    walk,
)
from autotune.te.expr import Binary, Compare, Var, const


def launches(kernel: LoopKernel) -> list[LoopKernel]:
    """Return the launches of a kernel, in order; raises BuildError where blocks would have to wait for one another."""
    body = _with_tiles(kernel)
    if not has_blocks(body):
        return [replace(kernel, body=body)]
    return [_with_own_buffers(kernel, part) for part in _parts(kernel, body)]


def _with_tiles(kernel: LoopKernel) -> Stmt:
    """Return the body with the parallel loop bound: its iterations are blocks, or threads where nothing
    else is bound."""
    body = kernel.body
    if not isinstance(body, For) or body.kind != "parallel":
        return body
    if has_blocks(body):
        raise BuildError(
            f"kernel {kernel.name}: the parallel loop {body.var.name} is around loops bound to blockIdx; bind it too"
        )
    if has_thread_axes(body):
        return For(body.var, body.extent, "blockIdx.x", body.body)
    threads = min(body.extent, TILE_THREADS)
    blocks = -(-body.extent // threads)
    block, thread = Var("block"), Var("thread")
    tile = Binary("+", Binary("*", block, const(threads), "int64"), thread, "int64")
    inner = body.body
    if body.extent % threads:
        inner = If(Compare("<", body.var, const(body.extent)), inner, None)
    inner = For(thread, threads, "threadIdx.x", Let(body.var, tile, inner))
    return For(block, blocks, "blockIdx.x", inner)


def _parts(kernel: LoopKernel, stmt: Stmt) -> Iterator[Stmt]:
    """Yield the launches of a statement."""
    if not has_blocks(stmt):
        yield stmt
    elif isinstance(stmt, Seq):
        for part in stmt.stmts:
            yield from _parts(kernel, part)
    elif isinstance(stmt, For) and is_block_axis(stmt.kind):
        for part in _parts(kernel, stmt.body):
            yield For(stmt.var, stmt.extent, stmt.kind, part, stmt.note)
    elif isinstance(stmt, Let) and not _reads_memory(stmt):
        for part in _parts(kernel, stmt.body):
            yield Let(stmt.var, stmt.value, part)
    elif isinstance(stmt, If) and stmt.otherwise is None and not _reads_memory(stmt):
        for part in _parts(kernel, stmt.then):
            yield If(stmt.cond, part, None)
    else:
        raise BuildError(_refusal(kernel, stmt))


def _refusal(kernel: LoopKernel, stmt: Stmt) -> str:
    if isinstance(stmt, For):
        where, remedy = f"the {stmt.kind} loop {stmt.var.name}", "reorder the bound loops outwards"
    elif isinstance(stmt, Allocate):
        where = f"the loops that share buffer {stmt.buffer.name}"
        remedy = "compute its stage at the root, or inside of the bound loops"
    else:
        where, remedy = "a condition that memory decides", "compute it before"
    return (
        f"kernel {kernel.name}: loops bound to blockIdx are inside of {where}, but blocks of a GPU do not wait for "
        f"one another; {remedy}"
    )


def _reads_memory(stmt: Stmt) -> bool:
    """Return whether the expressions of a statement itself load anything."""
    return any(hasattr(node, "buffer") for node in nodes(*expressions(stmt)))


def _with_own_buffers(kernel: LoopKernel, body: Stmt) -> LoopKernel:
    """Return a kernel of a part: only the buffers that it touches."""
    written = {part.buffer for part in walk(body) if isinstance(part, Store)}
    read = {node.buffer for node in loads(body)}
    writes = tuple(b for b in kernel.writes if b in written)
    touched: list[Buffer] = [b for b in kernel.buffers if b in read and b not in written]
    return replace(kernel, body=body, tiles=1, reads=tuple(touched), writes=writes)


__all__ = ["launches"]
