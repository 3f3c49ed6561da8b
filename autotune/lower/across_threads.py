"""Reductions by all threads of a block: each folds its own part, and a tree in shared memory folds the parts.

Half of the threads fold what the other half found, then half of those, with a barrier in between (Harris, "Optimizing
Parallel Reduction in CUDA", 2007). The first thread stores the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from autotune.lower.elements import stores
from autotune.lower.ir import Allocate, Barrier, Buffer, For, If, Load, Stmt, is_block_axis, sequence
from autotune.lower.linear import Lin
from autotune.te.expr import Compare, Expr, Reduce, Var, binary, const

Threads = Mapping[str, tuple[Var, int]]
"""Open thread axes: variable and extent."""


class Parts(NamedTuple):
    """Partial results of threads: ``buffers`` of the threads ``around``, of the ``together`` that fold, and of a tile.

    ``number`` is that of this thread among those.
    """

    buffers: tuple[Buffer, ...]
    around: tuple[Expr, ...]
    number: Expr
    together: int
    tile: tuple[int, ...]

    def indices(self, far: int, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the place of a result of the thread that is ``far`` from this one."""
        return (*self.around, binary("+", self.number, const(far)), *at)


def folded_by_all(
    reduction: Reduce, own: Sequence[Buffer], axes: Sequence[str], threads: Threads, first: Stmt
) -> Stmt:
    """Fold the results that each thread has of its ``own`` to those of all threads of ``axes``, in the first thread.

    That runs ``first`` with the results in its buffers.
    """
    parts = _parts(own, axes, threads)
    stmts: list[Stmt] = [Barrier(), _over(parts.tile, lambda at: _kept(parts, own, at)), Barrier()]
    reach = 1 << (parts.together - 1).bit_length() >> 1
    while reach:
        stmts += [_halved(reduction, parts, reach), Barrier()]
        reach >>= 1
    stmts.pop()  # the first thread has written what it reads
    found = _over(parts.tile, lambda at: _fetched(parts, own, at))
    stmt = sequence([*stmts, If(Compare("==", parts.number, const(0)), sequence([found, first]), None)])
    for buffer in reversed(parts.buffers):
        stmt = Allocate(buffer, stmt)
    return stmt


def _parts(own: Sequence[Buffer], axes: Sequence[str], threads: Threads) -> Parts:
    others = [pair for tag, pair in threads.items() if tag not in axes and not is_block_axis(tag)]
    number, count = Lin({}, 0), 1
    for var, size in (threads[tag] for tag in axes):
        number, count = number.scaled(size) + Lin({var: 1}, 0), count * size
    sizes = (*(size for _, size in others), count)
    buffers = tuple(Buffer(f"{b.name}.parts", (*sizes, *b.shape), b.dtype, "shared") for b in own)
    return Parts(buffers, tuple(var for var, _ in others), number.expr(), count, own[0].shape)


def _kept(parts: Parts, own: Sequence[Buffer], at: tuple[Expr, ...]) -> Stmt:
    return stores(parts.buffers, parts.indices(0, at), [Load(b, at) for b in own])


def _fetched(parts: Parts, own: Sequence[Buffer], at: tuple[Expr, ...]) -> Stmt:
    return stores(own, at, [Load(b, parts.indices(0, at)) for b in parts.buffers])


def _halved(reduction: Reduce, parts: Parts, reach: int) -> Stmt:
    """Fold by the first ``reach`` threads what those beyond have."""

    def fold(at: tuple[Expr, ...]) -> Stmt:
        here, there = parts.indices(0, at), parts.indices(reach, at)
        a, b = (tuple(Load(buffer, place) for buffer in parts.buffers) for place in (here, there))
        return stores(parts.buffers, here, list(reduction.reducer.combine(a, b)))

    near = Compare("<", parts.number, const(min(reach, parts.together - reach)))
    return If(near, _over(parts.tile, fold), None)


def _over(tile: tuple[int, ...], body: Callable[[tuple[Expr, ...]], Stmt]) -> Stmt:
    """Return loops over a tile."""
    variables = [Var(f"t{n}") for n, _ in enumerate(tile)]
    stmt = body(tuple(v if size > 1 else const(0) for v, size in zip(variables, tile, strict=True)))
    for var, size in reversed(list(zip(variables, tile, strict=True))):
        if size > 1:
            stmt = For(var, size, "serial", stmt)
    return stmt


__all__ = ["folded_by_all"]
