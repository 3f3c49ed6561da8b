"""Mutations of lowered programs: one statement, loop or operand changed, as a fault of lowering would change it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as with_fields

from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    If,
    Let,
    Load,
    LoopKernel,
    LoopProgram,
    Seq,
    Stmt,
    Store,
    expressions,
    kernel_of,
    nodes,
    sequence,
    walk,
)
from autotune.lower.rewrite import rewrite_expr, with_parts
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Select, Var, binary, const


@dataclass(frozen=True)
class Mutant:
    """A program with one mutation; ``kind`` names it, ``text`` says what was changed."""

    kind: str
    text: str
    program: LoopProgram


def random_mutant(rng: random.Random, program: LoopProgram) -> Mutant | None:
    """A mutant of a program; None where the mutation drawn has nothing to change."""
    if rng.random() < 0.03:
        return _kernels_swapped(rng, program)
    number = rng.randrange(len(program.kernels))
    kind = rng.choice([*_STATEMENTS, *_STORES, *_EXPRESSIONS])
    body = program.kernels[number].body
    how = _of_statement if kind in _STATEMENTS else _of_store if kind in _STORES else _of_expression
    change = how(rng, kind, body)
    if change is None:
        return None
    text, changed = change
    kernels = list(program.kernels)
    kernels[number] = with_body(kernels[number], changed)
    return Mutant(kind, text, with_fields(program, kernels=tuple(kernels)))


def with_body(kernel: LoopKernel, body: Stmt) -> LoopKernel:
    """A kernel of another body, which says of itself what is true of that."""
    made = kernel_of(kernel.name, body)
    return with_fields(made, hoisted=kernel.hoisted, in_order=kernel.in_order)


def _kernels_swapped(rng: random.Random, program: LoopProgram) -> Mutant | None:
    if len(program.kernels) < 2:
        return None
    kernels = list(program.kernels)
    at = rng.randrange(len(kernels) - 1)
    kernels[at : at + 2] = kernels[at + 1], kernels[at]
    return Mutant(
        "kernels swapped", f"{kernels[at].name} first", with_fields(program, kernels=tuple(kernels))
    )


# -- statements ----------------------------------------------------------------------------------------------

StatementChange = Callable[[random.Random, Stmt], Stmt | None]


def _of_statement(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
    seed = rng.random()
    found = [(s, new) for s in walk(body) if (new := _STATEMENTS[kind](random.Random(seed), s)) is not None]
    if not found:
        return None
    old, new = rng.choice(found)
    return f"{_title(old)} -> {_title(new)}", _replaced(body, old, new)


def _replaced(body: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if body is old else with_parts(body, lambda part: _replaced(part, old, new))


def _title(stmt: Stmt) -> str:
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


_STATEMENTS: dict[str, StatementChange] = {
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

# -- expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Around:
    """What the expressions of a kernel could use instead: its buffers and variables."""

    buffers: tuple[Buffer, ...]
    variables: tuple[Var, ...]


ExpressionChange = Callable[[random.Random, Expr, Around], Expr | None]


def _of_expression(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
    change, around = _EXPRESSIONS[kind], _around(body)
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
    return f"{old!r} -> {new!r} in {_title(stmt)}", _replaced(body, stmt, _with_node(stmt, old, new))


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


_STORES = ("index of a store", "buffer of a store")


def _of_store(rng: random.Random, kind: str, body: Stmt) -> tuple[str, Stmt] | None:
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
    return f"{_title(stmt)} -> {_title(new)}", _replaced(body, stmt, new)


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


_EXPRESSIONS: dict[str, ExpressionChange] = {
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

KINDS = (*_STATEMENTS, *_STORES, *_EXPRESSIONS, "kernels swapped")

__all__ = ["KINDS", "Mutant", "random_mutant", "with_body"]
