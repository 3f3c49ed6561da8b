"""Memory of local buffers: SSA slots when every access is at a constant place, else stack or scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from autotune.lower.ir import Buffer, For, Load, Stmt, Store, expressions, nodes, sub_statements
from autotune.lower.linear import Lin
from autotune.te.expr import Expr, Var

MAX_SLOT_ACCESSES = 8192
"""Accesses beyond which a buffer is not worth registers (it has far more elements than a machine has)."""


class Chunk(NamedTuple):
    """Lanes of a vectorized loop that run together: ``active`` iterations from ``start`` on, in ``width`` lanes."""

    start: int
    active: int
    width: int


Cover = Callable[[int], Sequence[Chunk]]
"""The chunks of a vectorized loop, by its extent."""


def chunks(extent: int, lanes: int, masked: bool = False) -> list[Chunk]:
    """Return the vectors that cover a loop: full ones, then one with idle lanes where masks can switch them off,
    else powers of two.

    >>> [tuple(chunk) for chunk in chunks(29, 16)]
    [(0, 16, 16), (16, 8, 8), (24, 4, 4), (28, 1, 1)]
    >>> [tuple(chunk) for chunk in chunks(29, 16, masked=True)]
    [(0, 16, 16), (16, 13, 16)]
    """
    result: list[Chunk] = []
    start = 0
    width = lanes
    while start < extent:
        rest = extent - start
        if masked and rest < width and rest & (rest - 1):
            return [*result, Chunk(start, rest, 1 << rest.bit_length())]
        while width > rest:
            width //= 2
        result.append(Chunk(start, width, width))
        start += width
    return result


def slots_of(
    buffer: Buffer,
    body: Stmt,
    cover: Cover,
    known: Callable[[Expr], int | None],
    form: Callable[[object, Buffer, tuple[Expr, ...]], Lin],
) -> dict[int, int] | None:
    """Return ``{offset: width}`` of the slots of a buffer, or None when it must be memory.

    Every access in ``body`` must be at an offset that unrolled and vectorized loops determine, and two
    accesses must touch the same slot or disjoint ones. ``cover`` tells the vectors of a loop; single lanes for
    a buffer inside of a vectorized loop, where each lane has slots of its own.
    """
    found: set[Chunk] = set()
    for key, indices, loops in _accesses(buffer, body):
        places = _places(form(key, buffer, indices), loops, cover, known)
        if places is None or len(found) + len(places) > MAX_SLOT_ACCESSES:
            return None
        found |= places
    end = 0
    slots: dict[int, int] = {}
    for start, active, width in sorted(found):
        if start < end:
            return None
        slots[start] = width
        end = start + active
    return slots


def _accesses(buffer: Buffer, body: Stmt) -> list[tuple[object, tuple[Expr, ...], tuple[For, ...]]]:
    """Return each access with the loops around it inside of ``body``, outermost first."""
    result: list[tuple[object, tuple[Expr, ...], tuple[For, ...]]] = []

    def go(stmt: Stmt, loops: tuple[For, ...]) -> None:
        for node in nodes(*expressions(stmt)):
            if isinstance(node, Load) and node.buffer is buffer:
                result.append((node, node.indices, loops))
        if isinstance(stmt, Store) and stmt.buffer is buffer:
            result.append((stmt, stmt.indices, loops))
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        for part in sub_statements(stmt):
            go(part, inner)

    go(body, ())
    return result


def _places(
    form: Lin, loops: Sequence[For], cover: Cover, known: Callable[[Expr], int | None]
) -> set[Chunk] | None:
    """Return slots that one access touches; None when its offset is not constant."""
    by_var: dict[Expr, For] = {loop.var: loop for loop in loops}
    start = form.constant
    unrolled: list[tuple[int, int]] = []
    vector: tuple[int, int] | None = None
    for atom, c in form.terms.items():
        loop = by_var.get(atom)
        value = known(atom) if loop is None else None
        if value is not None:
            start += c * value
            continue
        if loop is None or not isinstance(atom, Var):
            return None
        if loop.kind == "unrolled":
            unrolled.append((c, loop.extent))
        elif loop.kind == "vectorized" and c == 1:
            vector = (c, loop.extent)
        else:
            return None
    count = 1
    for _, extent in unrolled:
        count *= extent
    if count > MAX_SLOT_ACCESSES:
        return None
    parts = [Chunk(0, 1, 1)] if vector is None else cover(vector[1])
    result: set[Chunk] = set()
    for numbers in product(*[range(extent) for _, extent in unrolled]):
        at = start + sum(c * n for (c, _), n in zip(unrolled, numbers, strict=True))
        result |= {part._replace(start=at + part.start) for part in parts}
    return result


__all__ = ["Chunk", "Cover", "chunks", "slots_of"]
