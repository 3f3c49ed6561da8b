"""Mutations of statements: left out, run twice, in another order, other iterations, other memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace as with_fields

from autotune.lower.ir import Allocate, For, If, Seq, Stmt, Store, sequence, walk
from autotune.lower.rewrite import with_parts

StatementChange = Callable[[random.Random, Stmt], Stmt | None]


def of_statement(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
    seed = rng.random()
    found = [(s, new) for s in walk(body) if (new := STATEMENTS[kind](random.Random(seed), s)) is not None]
    if not found:
        return None
    old, new = rng.choice(found)
    return f"{title(old)} -> {title(new)}", replaced(body, old, new)


def replaced(body: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if body is old else with_parts(body, lambda part: replaced(part, old, new))


def title(stmt: Stmt) -> str:
    if isinstance(stmt, Store):
        part = "" if stmt.origin is None else f"{stmt.origin.part} "
        return f"{part}{stmt.buffer.name}{list(stmt.indices)} = {stmt.value!r}"
    if isinstance(stmt, For):
        return f"{stmt.kind} {stmt.var.name} < {stmt.extent}"
    return f"if {stmt.cond!r}" if isinstance(stmt, If) else type(stmt).__name__


def _deleted(rng: random.Random, stmt: Stmt) -> Stmt | None:
    return sequence([]) if isinstance(stmt, Store | For) else None


def _part_deleted(rng: random.Random, stmt: Stmt) -> Stmt | None:
    """A start value, a load, a write-back or a fold that is left out."""
    marked = isinstance(stmt, Store) and stmt.origin is not None and stmt.origin.part not in ("all", "update")
    return sequence([]) if marked else None


def _twice(rng: random.Random, stmt: Stmt) -> Stmt | None:
    return Seq((stmt, stmt)) if isinstance(stmt, Store | For) else None


def _extent(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For):
        return None
    return with_fields(stmt, extent=max(0, stmt.extent + rng.choice((-2, -1, -1, 1, 1, 2))))


def _swapped(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Seq) or len(stmt.stmts) < 2:
        return None
    parts = list(stmt.stmts)
    one, two = rng.sample(range(len(parts)), 2)
    parts[one], parts[two] = parts[two], parts[one]
    return Seq(tuple(parts))


def _interchanged(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or not isinstance(stmt.body, For):
        return None
    inner = stmt.body
    return with_fields(inner, body=with_fields(stmt, body=inner.body))


def _extents_exchanged(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or not isinstance(stmt.body, For) or stmt.extent == stmt.body.extent:
        return None
    return with_fields(stmt, extent=stmt.body.extent, body=with_fields(stmt.body, extent=stmt.extent))


def _guard_dropped(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, If):
        return None
    return stmt.then if stmt.otherwise is None else rng.choice((stmt.then, stmt.otherwise))


def _branch_dropped(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, If) or stmt.otherwise is None:
        return None
    return If(stmt.cond, stmt.then, None)


def _kind(rng: random.Random, stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For):
        return None
    return with_fields(
        stmt, kind=rng.choice([k for k in ("serial", "parallel", "vectorized") if k != stmt.kind])
    )


def _allocated_outside(rng: random.Random, stmt: Stmt) -> Stmt | None:
    """Memory of an iteration that all iterations share: what one leaves there, the next one finds."""
    if not isinstance(stmt, For) or not isinstance(stmt.body, Allocate):
        return None
    return with_fields(stmt.body, body=with_fields(stmt, body=stmt.body.body))


def _stored_elsewhere(rng: random.Random, stmt: Stmt) -> Stmt | None:
    """A store moved into the loop before it, or the accumulator's store made into its own load."""
    if not isinstance(stmt, Seq):
        return None
    pairs = [k for k in range(len(stmt.stmts) - 1) if isinstance(stmt.stmts[k], For)]
    if not pairs:
        return None
    at = rng.choice(pairs)
    loop = stmt.stmts[at]
    assert isinstance(loop, For)
    moved = with_fields(loop, body=Seq((loop.body, stmt.stmts[at + 1])))
    return Seq((*stmt.stmts[:at], moved, *stmt.stmts[at + 2 :]))


STATEMENTS: dict[str, StatementChange] = {
    "statement deleted": _deleted,
    "part of a reduction deleted": _part_deleted,
    "statement twice": _twice,
    "extent": _extent,
    "statements swapped": _swapped,
    "loops interchanged": _interchanged,
    "extents exchanged": _extents_exchanged,
    "guard dropped": _guard_dropped,
    "branch dropped": _branch_dropped,
    "kind of a loop": _kind,
    "allocated outside": _allocated_outside,
    "moved into a loop": _stored_elsewhere,
}

__all__ = ["STATEMENTS", "of_statement", "replaced", "title"]
