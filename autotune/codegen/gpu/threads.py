"""Programs of each thread of a block, from loops whose iterations are the threads.

In the loop IR a loop that is bound to a thread axis starts its threads and waits for them all; what is outside of it
runs once. On a GPU all threads run everything. So here what stands outside of such a loop is left to the first thread
along its axis, threads beyond the end of a loop skip what is in it, and a barrier follows whatever the others may read.
In a kernel whose statements are all inside of all bound loops nothing of this is needed, and nothing is added.

Local memory outside of a loop over threads is one for all of them: it becomes shared memory, an element for each of the
threads around. Barriers stay where all threads come by: conditions move inwards around them. Virtual threads are
statements one after another, of the same thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.codegen.gpu.fragments import Fragments, fragment_buffer, is_warp_call
from autotune.codegen.gpu.grid import WARP, GridKernel, checked_size, has_blocks
from autotune.codegen.gpu.registers import in_registers
from autotune.codegen.lockstep import in_turns
from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Let,
    Load,
    LoopKernel,
    Seq,
    Stmt,
    Store,
    has_load,
    is_block_axis,
    is_thread_axis,
    nodes,
    sequence,
    uses,
    walk,
)
from autotune.lower.rewrite import moved, substituted, with_parts
from autotune.target import Target
from autotune.te.expr import Compare, Expr, Not, Var, const

THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def as_threads(kernel: LoopKernel, target: Target) -> GridKernel:
    """Return a launch (see :mod:`autotune.codegen.gpu.launches`) as its threads run it; raises BuildError."""
    extents: dict[str, int] = {}
    whole = _with_numbers(kernel.body)
    whole = in_turns(whole, _is_virtual, _meets, "unrolled", innermost=True)
    for part in walk(whole):
        if isinstance(part, For) and is_thread_axis(part.kind):
            extents[part.kind] = max(extents.get(part.kind, 1), part.extent)
    if any(is_warp_call(part) for part in walk(whole)):
        lanes = extents.setdefault("threadIdx.x", WARP)
        if lanes != WARP:
            raise BuildError(
                f"kernel {kernel.name}: instructions of tensor cores run on the {WARP} threads of a warp, but "
                f"threadIdx.x has {lanes}; bind a loop of {WARP} iterations to it, and more warps to threadIdx.y"
            )
    launch = checked_size(kernel.name, extents, target)
    indices = {tag: Var(tag) for tag in extents}
    body = in_registers(_ThreadRewriter(kernel, indices, extents).block(whole))
    return GridKernel(kernel, body, indices, launch)


def _is_virtual(loop: For) -> bool:
    return loop.kind.startswith("vthread")


def _meets(stmt: Stmt) -> bool:
    """Return whether threads meet at a statement, or start."""
    return isinstance(stmt, Barrier) or (isinstance(stmt, For) and stmt.kind in THREADS)


def _with_numbers(stmt: Stmt) -> Stmt:
    """Return the statement with the only iteration of a bound loop by its number: registers have no other places."""
    stmt = with_parts(stmt, _with_numbers)
    if isinstance(stmt, For) and is_thread_axis(stmt.kind) and stmt.extent == 1:
        return For(stmt.var, 1, stmt.kind, substituted(stmt.body, {stmt.var: const(0)}), stmt.note)
    return stmt


class _ThreadRewriter:
    """Rewrites a kernel; ``indices`` and ``extents`` are those of its thread axes."""

    def __init__(self, kernel: LoopKernel, indices: Mapping[str, Var], extents: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.indices = indices
        self.extents = extents
        self.tags = [tag for tag in THREADS if extents.get(tag, 1) > 1]
        """Axes along which a thread is not alone."""
        self.differing: set[Var] = {indices[tag] for tag in self.tags}
        """Variables that differ from thread to thread."""
        self.fragments = Fragments(indices.get("threadIdx.x"))

    def block(self, stmt: Stmt) -> Stmt:
        """Return the loops over blocks as names of the block's place, and what is in them."""
        if isinstance(stmt, For) and is_block_axis(stmt.kind):
            return self._named(stmt, self.block(stmt.body))
        if isinstance(stmt, Let) and has_blocks(stmt):
            return Let(stmt.var, stmt.value, self.block(stmt.body))
        if isinstance(stmt, If) and has_blocks(stmt):
            return If(stmt.cond, self.block(stmt.then), None)
        return self._level(stmt, (), (), False)

    def _named(self, loop: For, body: Stmt) -> Stmt:
        """Return a loop over a thread axis as the thread's own iteration."""
        index = self.indices[loop.kind]
        body = Let(loop.var, index, body)
        if loop.extent < self.extents[loop.kind]:
            return If(Compare("<", index, const(loop.extent)), body, None)
        return body

    def _waits(self, stmt: Stmt) -> bool:
        """Return whether threads start, meet or work together in a statement."""
        return any(_meets(part) or is_warp_call(part) for part in walk(stmt))

    def _level(self, stmt: Stmt, opened: Sequence[str], guards: Sequence[Expr], followed: bool) -> Stmt:
        """Return a statement inside of the loops over ``opened`` axes, which runs where all ``guards`` hold.

        ``followed`` says that something comes after it in this level, which may read what it wrote.
        """
        if not self._waits(stmt) and not self.fragments.touched(stmt):
            return self._leaf(stmt, opened, guards, followed)
        if isinstance(stmt, Barrier):
            return stmt if self.tags or stmt.in_flight is not None else sequence([])
        if isinstance(stmt, Seq):
            last = len(stmt.stmts) - 1
            return sequence(
                [self._level(s, opened, guards, followed or n < last) for n, s in enumerate(stmt.stmts)]
            )
        if is_warp_call(stmt) or not self._waits(stmt):
            return self._by_warp(stmt, opened, guards, followed)
        if isinstance(stmt, For):
            return self._loop(stmt, opened, guards, followed)
        if isinstance(stmt, Let):
            if has_load(stmt.value):
                raise BuildError(
                    f"kernel {self.kernel.name}: value {stmt.var.name}, which memory has, is around a barrier; compute "
                    f"what waits outside of it"
                )
            if self._differs(stmt.value):
                self.differing.add(stmt.var)
            return Let(stmt.var, stmt.value, self._level(stmt.body, opened, guards, followed))
        if isinstance(stmt, If):
            return self._branch(stmt, opened, guards, followed)
        if isinstance(stmt, Allocate):
            return self._allocation(stmt, opened, guards, followed)
        raise BuildError(f"kernel {self.kernel.name}: threads wait inside of {type(stmt).__name__}")

    def _leaf(self, stmt: Stmt, opened: Sequence[str], guards: Sequence[Expr], followed: bool) -> Stmt:
        """Return code in which no thread waits: run by the threads that are open, and the first along the
        other axes."""
        if isinstance(stmt, Seq) and not stmt.stmts:
            return stmt
        closed = [tag for tag in self.tags if tag not in opened]
        first: list[Expr] = [Compare("==", self.indices[tag], const(0)) for tag in closed]
        for condition in reversed([*guards, *first]):
            stmt = If(condition, stmt, None)
        return sequence([stmt, Barrier()]) if closed and followed else stmt

    def _by_warp(self, stmt: Stmt, opened: Sequence[str], guards: Sequence[Expr], followed: bool) -> Stmt:
        """Return the joint work of the lanes of a warp: a product of tensor cores, or loops over its accumulators."""
        if "threadIdx.x" in opened:
            raise BuildError(
                f"kernel {self.kernel.name}: an instruction of tensor cores is inside of a loop bound to threadIdx.x, "
                f"but it takes all threads of a warp; bind that loop to threadIdx.y"
            )
        body = self.fragments.distributed(stmt)
        others = [tag for tag in self.tags if tag not in opened and tag != "threadIdx.x"]
        first: list[Expr] = [Compare("==", self.indices[tag], const(0)) for tag in others]
        for condition in reversed([*guards, *first]):
            body = If(condition, body, None)
        stores = [part for part in walk(stmt) if isinstance(part, Store)]
        seen = any(not self.fragments.holds(part.buffer) for part in stores)
        return sequence([body, Barrier()]) if seen and followed else body

    def _loop(self, loop: For, opened: Sequence[str], guards: Sequence[Expr], followed: bool) -> Stmt:
        if loop.kind in THREADS:
            index = self.indices[loop.kind]
            inner = list(guards)
            if loop.extent < self.extents[loop.kind]:
                inner.append(Compare("<", index, const(loop.extent)))
            self.differing.add(loop.var)
            body = Let(loop.var, index, self._level(loop.body, [*opened, loop.kind], inner, False))
            return sequence([body, Barrier()]) if followed and self.tags else body
        if is_block_axis(loop.kind):
            raise BuildError(
                f"kernel {self.kernel.name}: loop {loop.var.name} over blocks is inside of others"
            )
        kind = "unrolled" if loop.kind == "vectorized" else loop.kind
        more = followed or loop.extent > 1
        return For(loop.var, loop.extent, kind, self._level(loop.body, opened, guards, more), loop.note)

    def _branch(self, stmt: If, opened: Sequence[str], guards: Sequence[Expr], followed: bool) -> Stmt:
        """Return a condition around what waits: a jump where all threads agree, else part of the conditions inside."""
        if not self._differs(stmt.cond):
            return with_parts(stmt, lambda part: self._level(part, opened, guards, followed))
        if has_load(stmt.cond):
            raise BuildError(
                f"kernel {self.kernel.name}: a condition that memory decides for each thread is around a barrier; "
                f"compute what waits outside of it"
            )
        parts = [self._level(stmt.then, opened, [*guards, stmt.cond], followed or stmt.otherwise is not None)]
        if stmt.otherwise is not None:
            parts.append(self._level(stmt.otherwise, opened, [*guards, Not(stmt.cond)], followed))
        return sequence(parts)

    def _differs(self, expr: Expr) -> bool:
        """Return whether threads of a block may have different values of an expression."""
        if any(isinstance(node, Load) and node.buffer not in self.kernel.reads for node in nodes(expr)):
            return True
        return any(uses(expr, var) for var in self.differing)

    def _allocation(
        self, stmt: Allocate, opened: Sequence[str], guards: Sequence[Expr], followed: bool
    ) -> Stmt:
        """Return memory that threads start in: in registers of a warp, shared, or each thread's own."""
        buffer, body = stmt.buffer, stmt.body
        fragment = fragment_buffer(self.kernel.name, stmt)
        if fragment is not None:
            with self.fragments.of(buffer, fragment):
                return Allocate(fragment, self._level(body, opened, guards, followed), stmt.note)
        starting = any(isinstance(part, For) and part.kind in THREADS for part in walk(body))
        if buffer.scope == "local" and starting:
            shape = (*(self.extents[tag] for tag in opened), *buffer.shape)
            shared = Buffer(buffer.name, shape, buffer.dtype, "shared")
            places = tuple(self.indices[tag] for tag in opened)
            buffer, body = shared, moved(body, stmt.buffer, shared, lambda at: (*places, *at))
        return Allocate(buffer, self._level(body, opened, guards, followed), stmt.note)


__all__ = ["as_threads"]
