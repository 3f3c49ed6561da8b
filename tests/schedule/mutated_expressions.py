"""Mutations of expressions: other indices, buffers, variables, operators, constants and conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as with_fields

from autotune.lower.ir import Buffer, For, If, Let, Load, Stmt, Store, expressions, nodes, walk
from autotune.lower.rewrite import rewrite_expr
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Select, Var, binary, const
from tests.schedule.mutated_statements import replaced, title


@dataclass(frozen=True)
class Around:
    """The surroundings of an expression, which could replace it: the kernel's buffers and variables."""

    buffers: tuple[Buffer, ...]
    variables: tuple[Var, ...]


ExpressionChange = Callable[[random.Random, Expr, Around], Expr | None]


def of_expression(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
    change, around = EXPRESSIONS[kind], _around(body)
    found = [
        (stmt, node, new)
        for stmt in walk(body)
        if isinstance(stmt, Store | Let | If)
        for node in nodes(*expressions(stmt))
        if (new := change(rng, node, around)) is not None
    ]
    if not found:
        return None
    stmt, old, new = rng.choice(found)
    return f"{old!r} -> {new!r} in {title(stmt)}", replaced(body, stmt, _with_node(stmt, old, new))


def _around(body: Stmt) -> Around:
    stmts = list(walk(body))
    buffers = dict.fromkeys(b for s in stmts for b in _buffers(s))
    variables = dict.fromkeys(s.var for s in stmts if isinstance(s, For))
    return Around(tuple(buffers), tuple(variables))


def _buffers(stmt: Stmt) -> Iterator[Buffer]:
    if isinstance(stmt, Store):
        yield stmt.buffer
    for node in nodes(*expressions(stmt)):
        if isinstance(node, Load):
            yield node.buffer


def _with_node(stmt: Stmt, old: Expr, new: Expr) -> Stmt:
    def go(expr: Expr) -> Expr:
        return rewrite_expr(expr, lambda node: new if node is old else None, {})

    if isinstance(stmt, Store):
        return with_fields(stmt, indices=tuple(map(go, stmt.indices)), value=go(stmt.value))
    if isinstance(stmt, Let):
        return with_fields(stmt, value=go(stmt.value))
    assert isinstance(stmt, If)
    return with_fields(stmt, cond=go(stmt.cond))


STORES = ("index of a store", "buffer of a store")


def of_store(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
    around = _around(body)
    stores = [s for s in walk(body) if isinstance(s, Store)]
    if not stores:
        return None
    stmt = rng.choice(stores)
    if kind == "buffer of a store":
        others = [b for b in around.buffers if _alike(b, stmt.buffer)]
        if not others:
            return None
        new = with_fields(stmt, buffer=rng.choice(others))
    else:
        indices = _changed_index(rng, stmt.indices, around)
        if indices is None:
            return None
        new = with_fields(stmt, indices=indices)
    return f"{title(stmt)} -> {title(new)}", replaced(body, stmt, new)


def _alike(one: Buffer, other: Buffer) -> bool:
    return one is not other and one.dtype == other.dtype and len(one.shape) == len(other.shape)


def _changed_index(rng: random.Random, indices: tuple[Expr, ...], around: Around) -> tuple[Expr, ...] | None:
    if not indices:
        return None
    new, at = list(indices), rng.randrange(len(indices))
    how = rng.random()
    if how < 0.6:
        new[at] = indices[at] + rng.choice((-2, -1, 1, 1, 2))
    elif how < 0.75 and around.variables:
        new[at] = rng.choice(around.variables)
    elif how < 0.85 and len(indices) > 1:
        other = (at + 1) % len(indices)
        new[at], new[other] = indices[other], indices[at]
    else:
        new[at] = rng.choice((const(0), indices[at] * 2, indices[at] % 2))
    return tuple(new)


def _index_of_load(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if not isinstance(node, Load):
        return None
    indices = _changed_index(rng, node.indices, around)
    return None if indices is None else Load(node.buffer, indices)


def _buffer_of_load(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    others = [b for b in around.buffers if isinstance(node, Load) and _alike(b, node.buffer)]
    return Load(rng.choice(others), node.indices) if others and isinstance(node, Load) else None


def _operator(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if not isinstance(node, Binary) or node.dtype == "bool":
        return None
    return Binary(
        rng.choice([op for op in ("+", "-", "*", "min", "max") if op != node.op]), node.a, node.b, node.dtype
    )


def _operand(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    """One of the operands in place of the operation."""
    if not isinstance(node, Binary):
        return None
    return rng.choice([part for part in (node.a, node.b) if part.dtype == node.dtype] or [None])


def _exchanged(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if isinstance(node, Binary) and node.op in ("-", "/", "//", "%") and node.a.dtype == node.b.dtype:
        return Binary(node.op, node.b, node.a, node.dtype)
    return Select(node.cond, node.b, node.a) if isinstance(node, Select) else None


def _constant(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if not isinstance(node, Const):
        return None
    if node.dtype == "bool":
        return const(not node.value)
    return const(node.value + rng.choice((-1, 1, 2)), node.dtype)


def _comparison(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if not isinstance(node, Compare):
        return None
    return Compare(
        rng.choice([op for op in ("<", "<=", ">", ">=", "==", "!=") if op != node.op]), node.a, node.b
    )


def _selected(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    return rng.choice((node.a, node.b)) if isinstance(node, Select) else None


def _variable(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    others = [v for v in around.variables if v is not node]
    return rng.choice(others) if isinstance(node, Var) and node in around.variables and others else None


def _converted(rng: random.Random, node: Expr, around: Around) -> Expr | None:
    if not isinstance(node, Cast) or node.dtype != "float32":
        return None
    return binary("+", node, const(1, "float32"))


EXPRESSIONS: dict[str, ExpressionChange] = {
    "index of a load": _index_of_load,
    "buffer of a load": _buffer_of_load,
    "operator": _operator,
    "operand": _operand,
    "operands exchanged": _exchanged,
    "constant": _constant,
    "comparison": _comparison,
    "branch of a select": _selected,
    "variable": _variable,
    "conversion": _converted,
}

__all__ = ["EXPRESSIONS", "STORES", "of_expression", "of_store"]
