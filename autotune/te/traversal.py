"""Walks over expressions: operands, rebuilt nodes, rewriting with sharing kept, substitution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, is_
from typing import Any, TypeVar

from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    IterVar,
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

N = TypeVar("N")


def ordered(roots: Sequence[N], below: Callable[[N], Sequence[N]]) -> list[N]:
    """Return all nodes that ``roots`` lead to, what is below a node before it; graphs may be of any depth.

    >>> ordered(["c"], lambda n: {"c": "ba", "b": "a", "a": ""}[n])
    ['a', 'b', 'c']
    """
    order: list[N] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((other, False) for other in reversed(below(node)))
    return order


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of a node, in evaluation order."""
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
"""A function to the operands of a node for each kind that has any."""


def rebuild(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """Return the same node over other operands; the node itself when they are unchanged."""
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
    # The memo's nodes live as long as the list that they are in: an id is not reused before.
    for node in ordered([expr], lambda node: () if id(node) in memo else children(node)):
        if id(node) not in memo:
            parts = children(node)
            others = tuple([memo[id(p)] for p in parts])
            new = node if all(map(is_, others, parts)) else rebuild(node, others)
            other = replace(new)
            memo[id(node)] = new if other is None else other
    return memo[id(expr)]


def nodes(expr: Expr) -> Iterator[Expr]:
    """Yield each distinct node of an expression once, operands after the node itself."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            below = _CHILDREN.get(type(node))
            if below is not None:
                stack.extend(below(node)[::-1])


def reads(expr: Expr) -> list[Read]:
    """Return all tensor reads below ``expr``, reads in index expressions included."""
    return [node for node in nodes(expr) if isinstance(node, Read)]


def axes_of(expr: Expr) -> set[Expr]:
    """Return the axes that an expression depends on."""
    return {node for node in nodes(expr) if isinstance(node, IterVar)}


def substitute(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """Replace variables by expressions."""
    return transform(expr, lambda node: values.get(node) if isinstance(node, Var) else None)


__all__ = ["axes_of", "children", "nodes", "ordered", "reads", "rebuild", "substitute", "transform"]
