"""Walks over expressions: operands, rebuilt nodes, rewriting with sharing kept, substitution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    binary,
    cast,
    negate,
    select,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct operands of a node, in evaluation order."""
    found = _CHILDREN.get(type(expr))
    return () if found is None else found(expr)


_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Binary: attrgetter("a", "b"),
    Compare: attrgetter("a", "b"),
    Select: attrgetter("cond", "a", "b"),
    Not: lambda node: (node.a,),
    Cast: lambda node: (node.a,),
    Call: attrgetter("args"),
    Read: attrgetter("indices"),
    Reduce: attrgetter("sources"),
}
"""How to find the operands of a node; the other kinds have none."""


def rebuild(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The same node over other operands; the node itself when they are unchanged."""
    if all(x is y for x, y in zip(parts, children(expr), strict=True)):
        return expr
    if isinstance(expr, Binary):
        return binary(expr.op, parts[0], parts[1])
    if isinstance(expr, Compare):
        return Compare(expr.op, parts[0], parts[1])
    if isinstance(expr, Select):
        return select(parts[0], parts[1], parts[2])
    if isinstance(expr, Not):
        return negate(parts[0])
    if isinstance(expr, Cast):
        return cast(parts[0], expr.dtype)
    if isinstance(expr, Call):
        return Call(expr.name, parts, expr.dtype)
    if isinstance(expr, Read):
        return Read(expr.tensor, parts)
    if isinstance(expr, Reduce):
        return Reduce(expr.reducer, parts, expr.axis, expr.index)
    raise TypeError(f"node without operands: {type(expr).__name__}")


def transform(
    expr: Expr, replace: Callable[[Expr], Expr | None], memo: dict[int, Expr] | None = None
) -> Expr:
    """Rewrite bottom-up; ``replace`` sees each rebuilt node and returns another one, or None to keep it.

    Shared nodes are visited once, so that a DAG stays a DAG.
    """
    memo = {} if memo is None else memo
    # The memo holds the nodes it is keyed by: an id is not reused while its entry lives.
    keep: list[Expr] = []

    def go(node: Expr) -> Expr:
        done = memo.get(id(node))
        if done is not None:
            return done
        keep.append(node)
        parts = children(node)
        new = rebuild(node, tuple([go(p) for p in parts])) if parts else node
        other = replace(new)
        result = new if other is None else other
        memo[id(node)] = result
        return result

    return go(expr)


def nodes(expr: Expr) -> Iterator[Expr]:
    """Each distinct node of an expression once, operands after the node itself."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(reversed(children(node)))


def reads(expr: Expr) -> list[Read]:
    """All tensor reads below ``expr``, reads in index expressions included."""
    return [node for node in nodes(expr) if isinstance(node, Read)]


def substitute(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """Replace variables by expressions."""
    return transform(expr, lambda node: values.get(node) if isinstance(node, Var) else None)


__all__ = ["children", "nodes", "reads", "rebuild", "substitute", "transform"]
