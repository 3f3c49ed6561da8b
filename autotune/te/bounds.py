"""Indices of tensors: those that leave a tensor are errors, those that data decide are settled where they are read.

An index of loop variables alone is decided for every point of the loops, under the conditions that the read stands
under. It is an error where some point reads outside. Any other index, and one that is too much to decide
(:mod:`autotune.te.witness`), counts from the end where it is negative, as that of ONNX's Gather, and reads the nearest
element where it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.errors import LoweringError
from autotune.te.dtypes import INDEX_DTYPE
from autotune.te.expr import Expr, Var, binary, cast, compare, const, select
from autotune.te.guards import Case, Cases, Fact, is_static
from autotune.te.intervals import Boxes, Interval, interval
from autotune.te.tensor import Tensor
from autotune.te.traversal import nodes
from autotune.te.witness import Point, Undecided, witness

Verdict = Literal["inside", "outside", "unknown"]


def settled_index(index: Expr, extent: int) -> Expr:
    """Return an index that data decide as a place in [0, extent): negative ones from the end, wrong ones
    at the nearest."""
    chosen = cast(index, INDEX_DTYPE)
    wrapped = select(chosen < 0, chosen + extent, chosen)
    return binary("max", binary("min", wrapped, extent - 1), 0)


@dataclass(frozen=True)
class IndexAccess:
    """The index at which a stage reads or stores, along a dimension; it may have been resolved to another one."""

    stage: str
    verb: str
    tensor: Tensor
    indices: tuple[Expr, ...]
    dim: int
    index: Expr

    @property
    def extent(self) -> int:
        """Return the number of elements."""
        return self.tensor.op.shape[self.dim]

    def verdict(self, cases: Cases, boxes: Boxes) -> Verdict:
        """Return whether the index stays inside in all cases; raises LoweringError where it does not."""
        low, high = interval(self.index, boxes)
        if low >= 0 and high < self.extent:
            return "inside"
        verdicts = [self._in_case(case, boxes) for case in cases]
        return "unknown" if "unknown" in verdicts else "inside"

    def _in_case(self, case: Case, boxes: Boxes) -> Verdict:
        found = self._where([fact for fact in case if fact.enforced], boxes)
        if found != "inside" and not all(fact.enforced for fact in case):
            found = self._where(list(case), boxes) if found == "outside" else found
            found = "unknown" if found == "inside" else found
        if found == "outside" or (found == "unknown" and not self.extent):
            raise self._error([fact for fact in case if _is_known(fact, boxes)], boxes)
        return found

    def _where(self, facts: Sequence[Fact], boxes: Boxes) -> Verdict:
        """Return the place of the index while facts hold."""
        bad = self._leaves()
        if not is_static(bad, boxes):
            return "unknown"
        known = [fact.condition() for fact in facts if _is_known(fact, boxes)]
        related, others = _related(known, bad, boxes)
        try:
            if _search([*related, bad], boxes) is None:
                return "inside"
            if len(known) < len(facts):
                return "unknown"
            return "outside" if _search(others, boxes) is not None else "inside"
        except Undecided:
            return "unknown"

    def _leaves(self) -> Expr:
        """Return the condition that the index is outside."""
        if not self.extent:
            return const(True)
        chosen = cast(self.index, INDEX_DTYPE)
        return binary("or", compare("<", chosen, 0), compare(">=", chosen, self.extent))

    def _error(self, facts: Sequence[Fact], boxes: Boxes) -> LoweringError:
        conditions = [fact.condition() for fact in facts]
        low, high = _range(self.index, conditions, boxes)
        span = f"is from {low} to {high}" if low < high else f"is {low}"
        there = f"indices from 0 to {self.extent - 1}" if self.extent else "no elements"
        where = _point_text([*conditions, self._leaves()], boxes)
        place = f"{self.tensor.name}[{', '.join(map(repr, self.indices))}]"
        return LoweringError(
            f"stage {self.stage} {self.verb} {place} out of bounds: index {self.dim}, {self.index!r}, {span}, and "
            f"{self.tensor.name} has {there}{f', as for {where}' if where else ''}\n"
            f"  a read under te.if_then_else is not made where the condition does not hold; only an index that data "
            f"decide counts from the end where it is negative"
        )


def _is_known(fact: Fact, boxes: Boxes) -> bool:
    return fact.cond is not None and is_static(fact.cond, boxes)


def _point_text(conditions: Sequence[Expr], boxes: Boxes) -> str:
    """Return a point where conditions hold: ``i = 6``; empty where the search found none, or there is one
    point only."""
    try:
        point = _search(conditions, boxes) or {}
    except Undecided:
        return ""
    return ", ".join(f"{var!r} = {at}" for var, at in point.items() if boxes[var][0] < boxes[var][1])


def _variables(expr: Expr) -> set[Expr]:
    return {node for node in nodes(expr) if isinstance(node, Var)}


def _related(conditions: Sequence[Expr], to: Expr, boxes: Boxes) -> tuple[list[Expr], list[Expr]]:
    """Return the conditions that share variables with ``to``, directly or through one another, and the others."""
    related, others, seen = list[Expr](), list(conditions), _variables(to)
    while True:
        more = [condition for condition in others if _variables(condition) & seen]
        if not more:
            return related, others
        related += more
        others = [condition for condition in others if not any(condition is one for one in more)]
        seen = seen.union(*map(_variables, more))


def _search(conditions: Sequence[Expr], boxes: Boxes) -> Point | None:
    """Return a witness among the variables that the conditions have."""
    used = set[Expr]().union(*map(_variables, conditions))
    return witness(conditions, {var: box for var, box in boxes.items() if var in used})


def _range(index: Expr, conditions: Sequence[Expr], boxes: Boxes) -> Interval:
    """Return the smallest and largest index where conditions hold."""
    low, high = interval(index, boxes)
    if not is_static(index, boxes):
        return low, high
    chosen = cast(index, INDEX_DTYPE)
    try:
        low = _least(lambda limit: _search([*conditions, compare("<=", chosen, limit)], boxes), low, high)
        high = -_least(
            lambda limit: _search([*conditions, compare(">=", chosen, -limit)], boxes), -high, -low
        )
    except Undecided:
        pass
    return low, high


def _least(holds: Callable[[int], object], low: int, high: int) -> int:
    """Return the smallest limit from ``low`` to ``high`` of which something holds, as it then does of
    all larger ones."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


__all__ = ["IndexAccess", "Verdict", "settled_index"]
