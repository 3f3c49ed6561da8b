"""Accesses of the statements of a sequential kernel, checked once: every index inside of its tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from autotune.te.accesses import Reads, boxes_of, settled
from autotune.te.bounds import IndexAccess
from autotune.te.expr import Expr, Var, binary, cast, compare, const, select
from autotune.te.guards import ALWAYS, SOME, Cases, facts, is_static, under
from autotune.te.intervals import Interval
from autotune.te.sequential import SequentialOp
from autotune.te.statements import Assign, Branch, External, Named, Repeat, RepeatWhile, Statement
from autotune.te.traversal import substitute

_KNOWN: WeakKeyDictionary[SequentialOp, tuple[Statement, ...]] = WeakKeyDictionary()


def checked_statements(op: SequentialOp) -> tuple[Statement, ...]:
    """Return the statements with their indices settled; raises LoweringError for one that leaves its tensor.

    A store outside changes nothing. Statements of a kernel that vouches for its indices stay what they are.
    """
    known = _KNOWN.get(op)
    if known is None:
        box = {var: side for var, side in boxes_of(op).items() if var in op.axis}
        empty = any(axis.extent == 0 for axis in op.axis)
        made = op.statements if empty else _Block(op, box, {}, ALWAYS).checked(op.statements)
        known = _KNOWN[op] = op.statements if op.keeps_inside else made
    return known


class _Block:
    """Statements that run in some cases; ``names`` has the values of names that depend on loops alone."""

    def __init__(
        self, op: SequentialOp, boxes: Mapping[Expr, Interval], names: Mapping[Expr, Expr], cases: Cases
    ) -> None:
        self.op = op
        self.boxes = dict(boxes)
        self.names = dict(names)
        self.cases = cases

    def checked(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(made for statement in statements for made in self._statement(statement))

    def _inside(self, cases: Cases) -> _Block:
        return _Block(self.op, self.boxes, self.names, cases)

    def _statement(self, node: Statement) -> list[Statement]:
        if isinstance(node, Assign):
            return self._stored(
                replace(node, indices=self._settled(node.indices), value=self._settled([node.value])[0])
            )
        if isinstance(node, Named):
            value = self._resolved(node.value)
            if is_static(value, self.boxes):
                self.names[node.var] = value
            return [replace(node, value=self._settled([node.value])[0])]
        if isinstance(node, Repeat):
            inside = self._inside(self.cases)
            inside.boxes[node.var] = (0, node.extent - 1)
            return [replace(node, body=inside.checked(node.body))]
        if isinstance(node, RepeatWhile):
            cond = self._settled([node.cond])[0]
            return [replace(node, cond=cond, body=self._inside(under(self.cases, [SOME])).checked(node.body))]
        if isinstance(node, External):
            return [node]
        assert isinstance(node, Branch), type(node)
        cond = self._resolved(node.cond)
        then, otherwise = (
            self._inside(under(self.cases, facts(cond, holds))).checked(block)
            for holds, block in ((True, node.then), (False, node.otherwise))
        )
        return [Branch(self._settled([node.cond])[0], then, otherwise)]

    def _resolved(self, expr: Expr) -> Expr:
        """Return the expression with names in it replaced by what they stand for."""
        return substitute(expr, self.names) if self.names else expr

    def _settled(self, roots: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return expressions with the indices of their reads settled."""
        resolved = tuple(self._resolved(root) for root in roots)
        found = Reads(self.op.name, self.boxes).unsettled(resolved, self.cases)
        return settled(resolved, found) if found else tuple(roots)

    def _stored(self, node: Assign) -> list[Statement]:
        """Return a store whose indices are settled: where data decide them, under the condition that
        they are inside."""
        doubtful = [dim for dim in range(len(node.indices)) if not self._stays(node, dim)]
        if not doubtful:
            return [node]
        made: list[Statement] = []
        indices, inside = list(node.indices), const(True)
        for dim in doubtful:
            extent, chosen = node.tensor.shape[dim], cast(node.indices[dim], "int64")
            place = Var(f"{node.tensor.name}.place{dim}")
            made.append(Named(place, select(chosen < 0, chosen + extent, chosen)))
            inside = binary("and", inside, binary("and", place >= 0, compare("<", place, extent)))
            indices[dim] = place
        return [*made, Branch(inside, (replace(node, indices=tuple(indices)),), ())]

    def _stays(self, node: Assign, dim: int) -> bool:
        index = self._resolved(node.indices[dim])
        access = IndexAccess(self.op.name, "stores to", node.tensor, node.indices, dim, index)
        return access.verdict(self.cases, self.boxes) == "inside"


__all__ = ["checked_statements"]
