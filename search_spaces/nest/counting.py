"""The arithmetic of a body whose iterations are written out: what they share is computed once.

An unrolled loop decides conditions over its variable when code is made, and what does not depend on it is one value
for all of its iterations, as in the sums of Winograd's transforms.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.te.expr import Binary, Compare, Const, Expr, IterVar, Not, Select
from autotune.te.traversal import children, nodes
from search_spaces.analysis import cost_of

_MOST = 64
"""Iterations that are looked at one by one."""
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def operations_of(exprs: Sequence[Expr], unrolled: Sequence[IterVar], inner: Sequence[IterVar]) -> float:
    """Vector instructions of one iteration, on average over those of the ``unrolled`` axes.

    Conditions that no axis of the ``inner`` loop moves are decided outside of it.
    """
    deciding = [axis for axis in unrolled if _decides(exprs, axis)]
    count = math.prod(axis.extent for axis in deciding)
    if not deciding or count > _MOST:
        found = {id(node): node for expr in exprs for node in nodes(expr)}
        for node in [node for node in found.values() if isinstance(node, Select)]:
            tests = list(nodes(node.cond))
            if not any(test is axis for test in tests for axis in inner):
                for decided in (node, *tests):
                    found.pop(id(decided), None)
        return float(sum(cost_of(node) for node in found.values()))
    counter = _Counter(deciding)
    for values in itertools.product(*(range(axis.start, axis.start + axis.extent) for axis in deciding)):
        for expr in exprs:
            counter.visit(expr, dict(zip(deciding, values, strict=True)))
    return counter.total / count


class _Counter:
    """Adds up the nodes that are computed, each once for the values of the axes that it depends on."""

    def __init__(self, axes: Sequence[IterVar]) -> None:
        self.total = 0
        self._axes = axes
        self._moving: dict[int, tuple[IterVar, ...]] = {}
        self._seen: set[tuple[object, ...]] = set()

    def visit(self, node: Expr, values: Mapping[IterVar, int]) -> None:
        """Count a node and what it needs where the axes have ``values``."""
        key = (id(node), *(values[axis] for axis in self._depends(node)))
        if key in self._seen:
            return
        self._seen.add(key)
        if isinstance(node, Select):
            known = _value(node.cond, values)
            if known is not None:
                self.visit(node.a if known else node.b, values)
                return
        self.total += cost_of(node)
        for part in children(node):
            self.visit(part, values)

    def _depends(self, node: Expr) -> tuple[IterVar, ...]:
        if id(node) not in self._moving:
            inside = {id(other) for other in nodes(node)}
            self._moving[id(node)] = tuple(axis for axis in self._axes if id(axis) in inside)
        return self._moving[id(node)]


def _decides(exprs: Sequence[Expr], axis: IterVar) -> bool:
    """Whether a condition is about an axis."""
    conditions = [node.cond for expr in exprs for node in nodes(expr) if isinstance(node, Select)]
    return any(node is axis for cond in conditions for node in nodes(cond))


def _value(node: Expr, values: Mapping[IterVar, int]) -> Any:
    """What an index or condition is where some axes have values; None where that is not enough to tell."""
    if isinstance(node, Const):
        return node.value
    if isinstance(node, IterVar):
        return values.get(node)
    if isinstance(node, Not):
        known = _value(node.a, values)
        return None if known is None else not known
    if isinstance(node, Binary | Compare) and node.op in _OPERATORS:
        a, b = _value(node.a, values), _value(node.b, values)
        if node.op == "and" and (a is False or b is False):
            return False
        if node.op == "or" and (a is True or b is True):
            return True
        return None if a is None or b is None else _OPERATORS[node.op](a, b)
    return None


__all__ = ["operations_of"]
