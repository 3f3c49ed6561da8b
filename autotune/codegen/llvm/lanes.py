"""Vectorized loops that run in lanes: settled before code is emitted, so that all parts agree.

The lanes of a loop can run together when each local buffer inside of it has a register a lane (it is not indexed by
a serial loop), and when lanes that a condition switches off have elements of their own to leave alone. Other loops
are unrolled, and so are vectorized loops inside of one that runs in lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.codegen.llvm.locals import Chunk, chunks, slots_of
from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Stmt,
    Store,
    expressions,
    nodes,
    uses,
    walk,
)
from autotune.lower.linear import Lin
from autotune.lower.rewrite import with_parts
from autotune.target import ITEM_BYTES, Target
from autotune.te.expr import Expr, Var

FormOf = Callable[[object, Buffer, tuple[Expr, ...]], Lin]
"""Element offset of an access as a linear form."""


def settle_lanes(
    stmt: Stmt, form: FormOf, inside: bool = False, unrolled: frozenset[Expr] = frozenset()
) -> Stmt:
    """Return the statement with every vectorized loop that cannot run in lanes unrolled instead.

    ``inside`` says that a loop around runs in lanes; ``unrolled`` are the variables of unrolled loops around.
    """
    if not isinstance(stmt, For):
        return with_parts(stmt, lambda part: settle_lanes(part, form, inside, unrolled))
    if stmt.kind == "vectorized" and not inside:
        body = settle_lanes(stmt.body, form, True, unrolled)
        if _together(stmt, body, form, unrolled):
            return For(stmt.var, stmt.extent, stmt.kind, body, stmt.note)
    kind = "unrolled" if stmt.kind == "vectorized" else stmt.kind
    if kind == "unrolled":
        unrolled = unrolled | {stmt.var}
    return For(stmt.var, stmt.extent, kind, settle_lanes(stmt.body, form, inside, unrolled), stmt.note)


def _together(loop: For, body: Stmt, form: FormOf, unrolled: frozenset[Expr]) -> bool:
    lane_values = _lane_values(loop.var, body)
    known = unrolled | {part.var for part in walk(body) if isinstance(part, For) and part.kind == "unrolled"}
    for part in walk(body):
        if isinstance(part, Allocate):
            # Any number will do for a variable that is a number when code is emitted.
            slots = slots_of(
                part.buffer, part.body, _single_lanes, lambda atom: 0 if atom in known else None, form
            )
            if slots is None:
                return False
        elif (
            isinstance(part, If) and _differs(part.cond, lane_values) and not _own_elements(part, lane_values)
        ):
            return False
    return True


def _single_lanes(extent: int) -> list[Chunk]:
    return chunks(extent, 1)


def masks_fit(stmt: Stmt, form: FormOf, target: Target) -> bool:
    """Return whether the rests of all vectorized loops may run in one vector with idle lanes, under a mask.

    ``stmt`` is settled. The target must have masked loads and stores of the elements, which have to be neighbours in
    all lanes. Either all loops use masks or none does: they share
    registers.
    """
    if any(isinstance(part, Intrinsic) and part.instructions for part in walk(stmt)):
        return False
    loops = [part for part in walk(stmt) if isinstance(part, For) and part.kind == "vectorized"]
    return all(_masks_fit(loop, form, _masked_bytes(target)) for loop in loops)


def _masked_bytes(target: Target) -> frozenset[int]:
    """Return sizes of the elements that masked vector instructions know."""
    if {"avx512f", "avx512bw", "avx512vl"} <= set(target.features):
        return frozenset({1, 2, 4, 8})
    return frozenset({4, 8}) if "avx2" in target.features else frozenset()


def _masks_fit(loop: For, form: FormOf, sizes: frozenset[int]) -> bool:
    for part in walk(loop.body):
        if isinstance(part, Let) and uses(part.value, loop.var):
            return False
        accesses: list[Load | Store] = [part] if isinstance(part, Store) else []
        for node in nodes(*expressions(part)):
            if isinstance(node, Load):
                accesses.append(node)
        if not all(_neighbours(access, loop.var, form, sizes) for access in accesses):
            return False
    return True


def _neighbours(access: Load | Store, var: Var, form: FormOf, sizes: frozenset[int]) -> bool:
    """Return whether the lanes access one element, or neighbours of a size that masks know."""
    terms = form(access, access.buffer, access.indices).terms
    if any(atom is not var and uses(atom, var) for atom in terms):
        return False
    step = terms.get(var, 0)
    return step == 0 or (step == 1 and ITEM_BYTES[access.buffer.dtype] in sizes)


def _lane_values(var: Var, body: Stmt) -> set[Var]:
    """Return the variable of a vectorized loop and the names for values that follow from it."""
    found = {var}
    for part in walk(body):  # in program order: a name comes after those in its value
        if isinstance(part, Let) and _differs(part.value, found):
            found.add(part.var)
    return found


def _differs(expr: Expr, lane_values: set[Var]) -> bool:
    return any(uses(expr, var) for var in lane_values)


def _own_elements(branch: If, lane_values: set[Var]) -> bool:
    """Return whether each store under a condition goes to an element of its lane's own."""
    for part in walk(branch):
        if isinstance(part, Allocate):
            return False
        if isinstance(part, Store) and not any(_differs(index, lane_values) for index in part.indices):
            return False
    return True


__all__ = ["masks_fit", "settle_lanes"]
