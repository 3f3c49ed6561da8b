"""Loops cut where their conditions change, and conditions that a loop does not change taken out of it.

Padding becomes copies and fills without a branch in them. The first part is index-set splitting (Griebl, Feautrier
and Lengauer, 2000), the second loop unswitching; TVM calls the first LoopPartition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    expressions,
    loads,
    nodes,
    sequence,
    sub_statements,
    uses,
    walk,
)
from autotune.lower.linear import Simplifier
from autotune.lower.rewrite import rewrite_expr, rewrite_stmt, with_parts
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Compare, Const, Expr, Select, Var, const

MAX_CUTS = 4
"""A loop is cut in at most this many places; further conditions stay in its body."""

MAX_STATEMENTS = 12
"""Loops with larger bodies are not copied."""


class Inside(NamedTuple):
    """The contents of a statement: the number of statements, itself included, and conditions in program order."""

    size: int
    conditions: tuple[Expr, ...]


def partition(stmt: Stmt) -> Stmt:
    """Return the statement with its serial loops cut and unswitched, innermost loops first."""
    return _Partition().apply(stmt)


class _Partition:
    """One run of the pass; what is inside of a statement is found once for all loops around it."""

    def __init__(self) -> None:
        self._inside: dict[int, Inside] = {}
        self._seen: list[Stmt] = []  # an id is not reused while its statement lives

    def apply(self, stmt: Stmt) -> Stmt:
        """Return the statement with the loops in it cut and unswitched."""
        if isinstance(stmt, Intrinsic):
            return stmt  # its body is what the intrinsic does: never cut
        loop = with_parts(stmt, self.apply)
        if isinstance(loop, Allocate):
            return _without_idle_stores(loop)
        if not isinstance(loop, For) or loop.kind == "parallel":
            return loop
        size, conditions = self.inside(loop.body)
        if not conditions or size > MAX_STATEMENTS:
            return loop
        cuts = _cuts(loop, conditions) if loop.kind == "serial" else []
        if cuts:
            return sequence(
                [_segment(loop, a, b) for a, b in zip([0, *cuts], [*cuts, loop.extent], strict=True)]
            )
        return _unswitched(loop, conditions)

    def inside(self, stmt: Stmt) -> Inside:
        """Return statements and conditions in a statement."""
        done = self._inside.get(id(stmt))
        if done is None:
            parts = [self.inside(part) for part in sub_statements(stmt)]
            conditions = [*_own_conditions(stmt), *(cond for part in parts for cond in part.conditions)]
            done = self._inside[id(stmt)] = Inside(1 + sum(part.size for part in parts), tuple(conditions))
            self._seen.append(stmt)
        return done


def _without_idle_stores(stmt: Allocate) -> Stmt:
    """Return an allocation, unless nothing in its part of a cut loop reads the buffer: then its producer goes too."""
    if any(load.buffer is stmt.buffer for load in loads(stmt.body)):
        return stmt
    return _pruned(stmt.body, stmt.buffer)


def _pruned(stmt: Stmt, idle: Buffer | None = None) -> Stmt:
    """Return the statement without stores to ``idle``, allocations that nothing reads, and loops without a body."""
    if isinstance(stmt, Store):
        return sequence([]) if stmt.buffer is idle else stmt
    rest = with_parts(stmt, lambda part: _pruned(part, idle))
    if isinstance(rest, Seq):
        return sequence([part for part in rest.stmts if not _empty(part)])
    if isinstance(rest, If):
        other = None if rest.otherwise is None or _empty(rest.otherwise) else rest.otherwise
        empty = _empty(rest.then) and other is None
        return sequence([]) if empty else If(rest.cond, rest.then, other, rest.note)
    parts = sub_statements(rest)
    if parts and all(_empty(part) for part in parts):
        return sequence([])
    return _without_idle_stores(rest) if isinstance(rest, Allocate) else rest


def _conditions(stmt: Stmt) -> Iterator[Expr]:
    """Yield conditions of the branches and of the if_then_else expressions below."""
    for part in walk(stmt):
        yield from _own_conditions(part)


def _own_conditions(stmt: Stmt) -> Iterator[Expr]:
    if isinstance(stmt, If):
        yield stmt.cond
    for node in nodes(*expressions(stmt)):
        if isinstance(node, Select):
            yield node.cond


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        yield from _conjuncts(cond.a)
        yield from _conjuncts(cond.b)
    else:
        yield cond


def _is_index_compare(node: Expr) -> bool:
    return isinstance(node, Compare) and node.op not in ("==", "!=") and not is_float(node.a.dtype)


_AFTER = {1: ("<=", ">"), -1: ("<", ">=")}
"""By the coefficient of a variable, the comparisons with zero that change just after the root, not at it."""


def _cuts(loop: For, conditions: Iterable[Expr]) -> list[int]:
    """Return values of the loop variable at which a condition over it alone changes."""
    found: set[int] = set()
    simplifier = Simplifier()
    for cond in conditions:
        for part in _conjuncts(cond):
            if not isinstance(part, Compare) or not _is_index_compare(part):
                continue
            form = simplifier.form(part.a) - simplifier.form(part.b)
            c = form.terms.get(loop.var)
            if c in _AFTER and len(form.terms) == 1:
                # The condition compares c * v + constant with zero: it changes at the root or just after it.
                root = form.scaled(-c).constant
                found.add(root + 1 if part.op in _AFTER[c] else root)
    cuts = sorted(v for v in found if 0 < v < loop.extent)
    return cuts if len(cuts) <= MAX_CUTS else []


def _segment(loop: For, begin: int, end: int) -> Stmt:
    """Return iterations ``begin`` to ``end`` of a loop, conditions over its variable decided."""
    simplifier = Simplifier()
    var = Var(loop.var.name)
    simplifier.declare(var, 0, end - begin - 1)
    single = end - begin == 1
    value: Expr = const(begin) if single else var + begin

    def replace(node: Expr) -> Expr | None:
        if node is loop.var:
            return value
        if _is_index_compare(node) and uses(node, loop.var):
            assert isinstance(node, Compare)
            a, b = (_with(e, loop.var, value) for e in (node.a, node.b))
            return simplifier.condition(Compare(node.op, a, b))
        return None

    body = _pruned(rewrite_stmt(loop.body, replace))
    if single:
        return body
    return _unswitched(For(var, end - begin, loop.kind, body, loop.note), _conditions(body))


def _with(expr: Expr, var: Var, value: Expr) -> Expr:
    return rewrite_expr(expr, lambda node: value if node is var else None, {})


def _unswitched(loop: For, conditions: Iterable[Expr]) -> Stmt:
    """Return the loop with its first invariant condition outside of it."""
    inside = {loop.var} | {p.var for p in walk(loop.body) if isinstance(p, For | Let)}
    for cond in conditions:
        if isinstance(cond, Const) or not _invariant(cond, inside):
            continue
        branches = []
        for verdict in (True, False):
            known = const(verdict)
            body = rewrite_stmt(loop.body, lambda node, c=cond, k=known: k if node is c else None)  # type: ignore[misc]
            branches.append(
                sequence([]) if _empty(body) else For(loop.var, loop.extent, loop.kind, body, loop.note)
            )
        then, otherwise = branches
        return If(cond, then, None if _empty(otherwise) else otherwise)
    return loop


def _empty(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


def _invariant(cond: Expr, inside: set[Var]) -> bool:
    """Return whether a condition reads no variable of ``inside`` and no memory."""
    return not any(
        isinstance(node, Load) or (isinstance(node, Var) and node in inside) for node in nodes(cond)
    )


__all__ = ["partition"]
