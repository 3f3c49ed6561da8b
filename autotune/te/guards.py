"""The conditions under which parts of an expression are evaluated.

A part that several others share may be needed under each of several conditions: it has a *case* for each. A case is a
set of facts, all of which hold where the part is needed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

from autotune.te.expr import Binary, Expr, Not, Read, Select, Var
from autotune.te.traversal import children, nodes, ordered

MOST_CASES = 16
"""More cases of one part are merged into one, of which only what they have in common is known."""


class Fact:
    """A condition that holds, or does not.

    One that is not ``enforced`` decides what becomes of a value that is computed all the same: the operands of "and".
    ``cond`` is None where nothing more is known than that there is some condition.
    """

    __slots__ = ("cond", "enforced", "holds")

    def __init__(self, cond: Expr | None, holds: bool, enforced: bool = True) -> None:
        self.cond = cond
        self.holds = holds
        self.enforced = enforced

    def _key(self) -> tuple[int, bool, bool]:
        return id(self.cond), self.holds, self.enforced

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def condition(self) -> Expr:
        """Return the condition that holds."""
        assert self.cond is not None
        return self.cond if self.holds else Not(self.cond)


SOME = Fact(None, True)
"""There is a condition, and nothing is known of it."""

Case: TypeAlias = frozenset[Fact]
Cases: TypeAlias = tuple[Case, ...]
ALWAYS: Cases = (frozenset(),)


def facts(cond: Expr, holds: bool, enforced: bool = True) -> list[Fact]:
    """Return the facts that a condition, or its negation, implies: conjunctions as their parts."""
    if isinstance(cond, Not):
        return facts(cond.a, not holds, enforced)
    if isinstance(cond, Binary) and cond.op == ("and" if holds else "or"):
        return [*facts(cond.a, holds, enforced), *facts(cond.b, holds, enforced)]
    return [Fact(cond, holds, enforced)]


def under(cases: Cases, more: Iterable[Fact]) -> Cases:
    """Return cases with further facts in each."""
    added = frozenset(more)
    return tuple(case | added for case in cases)


def cases_of(roots: Sequence[Expr], start: Cases = ALWAYS) -> dict[int, Cases]:
    """Return the cases of all parts of ``roots``, by their ids, where the roots are evaluated in those of ``start``."""
    found: dict[int, Cases] = {id(root): start for root in roots}
    for node in reversed(ordered(roots, children)):
        mine = found[id(node)]
        for part, cases in _passed_on(node, mine):
            known = found.get(id(part))
            if known is None:
                found[id(part)] = cases
            elif known is not cases:
                found[id(part)] = _merged(known, cases)
    return found


def _passed_on(node: Expr, cases: Cases) -> list[tuple[Expr, Cases]]:
    """Return the operands of a node, each with the cases in which the node needs it."""
    if isinstance(node, Select):
        return [
            (node.cond, cases),
            (node.a, under(cases, facts(node.cond, True))),
            (node.b, under(cases, facts(node.cond, False))),
        ]
    if isinstance(node, Binary) and node.op in ("and", "or"):
        return [(node.a, cases), (node.b, under(cases, facts(node.a, node.op == "and", enforced=False)))]
    return [(part, cases) for part in children(node)]


def _merged(a: Cases, b: Cases) -> Cases:
    """Return the cases of both, without those that others cover."""
    every = dict.fromkeys(a + b)
    least = [case for case in every if not any(other < case for other in every)]
    if len(least) > MOST_CASES:
        return (frozenset.intersection(*least) | {SOME},)
    return tuple(least)


def is_static(expr: Expr, names: Container[Expr]) -> bool:
    """Return whether an expression depends on variables of ``names`` alone, not on what is in memory."""
    return all(node in names if isinstance(node, Var) else not isinstance(node, Read) for node in nodes(expr))


__all__ = ["ALWAYS", "SOME", "Case", "Cases", "Fact", "cases_of", "facts", "is_static", "under"]
