"""Rewriting statements and expressions of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replace_fields

from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    External,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    operands,
    sequence,
    sub_statements,
)
from autotune.te.expr import Const, Expr, Var
from autotune.te.traversal import rebuild


def rewrite_expr(expr: Expr, replace: Callable[[Expr], Expr | None], memo: dict[int, Expr]) -> Expr:
    """Rewrite an expression top-down: ``replace`` gives another node for one, or None to go on with its operands.

    ``memo`` keeps shared nodes shared; the expressions it was filled from must stay alive while it is used.
    """
    done = memo.get(id(expr))
    if done is not None:
        return done
    result = replace(expr)
    if result is None:
        parts = operands(expr)
        new = tuple([rewrite_expr(p, replace, memo) for p in parts])
        if all(a is b for a, b in zip(parts, new, strict=True)):
            result = expr
        elif isinstance(expr, Load):
            result = Load(expr.buffer, new)
        else:
            result = rebuild(expr, new)
    memo[id(expr)] = result
    return result


def with_parts(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """Return the statement over changed direct parts; itself when all of them stay what they are."""
    old = sub_statements(stmt)
    new = [change(part) for part in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return stmt
    if isinstance(stmt, Seq):
        return sequence(new)
    if isinstance(stmt, If):
        return If(stmt.cond, new[0], new[1] if stmt.otherwise is not None else None, stmt.note)
    assert isinstance(stmt, For | While | Let | Allocate | Intrinsic)
    return replace_fields(stmt, body=new[0])


def rewrite_stmt(stmt: Stmt, replace: Callable[[Expr], Expr | None]) -> Stmt:
    """Return the statement with its expressions rewritten; branches that became constant are taken or dropped."""
    if isinstance(stmt, Seq | For | Allocate):
        return with_parts(stmt, lambda part: rewrite_stmt(part, replace))
    if isinstance(stmt, While):
        return While(rewrite_expr(stmt.cond, replace, {}), rewrite_stmt(stmt.body, replace))
    if isinstance(stmt, Let):
        return Let(stmt.var, rewrite_expr(stmt.value, replace, {}), rewrite_stmt(stmt.body, replace))
    if isinstance(stmt, If):
        cond = rewrite_expr(stmt.cond, replace, {})
        if isinstance(cond, Const):
            branch = stmt.then if cond.value else stmt.otherwise
            return sequence([]) if branch is None else rewrite_stmt(branch, replace)
        otherwise = None if stmt.otherwise is None else rewrite_stmt(stmt.otherwise, replace)
        return If(cond, rewrite_stmt(stmt.then, replace), otherwise, stmt.note)
    if isinstance(stmt, Barrier | External):
        return stmt
    memo: dict[int, Expr] = {}
    if isinstance(stmt, Intrinsic):
        operands = tuple(
            Load(o.buffer, tuple(rewrite_expr(i, replace, memo) for i in o.indices)) for o in stmt.operands
        )
        return replace_fields(stmt, operands=operands, body=rewrite_stmt(stmt.body, replace))
    assert isinstance(stmt, Store | Prefetch)
    indices = tuple(rewrite_expr(i, replace, memo) for i in stmt.indices)
    if isinstance(stmt, Prefetch):
        return replace_fields(stmt, indices=indices)
    origin = stmt.origin
    if origin is not None:
        instance = tuple(rewrite_expr(i, replace, memo) for i in origin.instance)
        origin = replace_fields(origin, instance=instance)
    return Store(stmt.buffer, indices, rewrite_expr(stmt.value, replace, memo), origin)


def substituted(stmt: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    """Return the statement with variables replaced."""
    return rewrite_stmt(stmt, lambda node: values.get(node) if isinstance(node, Var) else None)


def moved(
    stmt: Stmt, old: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
) -> Stmt:
    """Return the statement with accesses to ``old`` at some indices going to ``new`` at what ``place``
    makes of these."""

    def replace(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer is not old:
            return None
        return Load(new, place(tuple(rewrite_expr(i, replace, {}) for i in node.indices)))

    def go(part: Stmt) -> Stmt:
        part = with_parts(part, go)
        if isinstance(part, Store | Prefetch) and part.buffer is old:
            return replace_fields(part, buffer=new, indices=place(part.indices))
        if isinstance(part, Intrinsic):
            operands = tuple(o if o.buffer is not old else Load(new, place(o.indices)) for o in part.operands)
            return replace_fields(part, operands=operands)
        return part

    return go(rewrite_stmt(stmt, replace))


__all__ = ["moved", "rewrite_expr", "rewrite_stmt", "substituted", "with_parts"]
