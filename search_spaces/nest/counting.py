"""The arithmetic of a body whose iterations are written out: what they share is computed once.

An unrolled loop decides conditions over its variable when code is made, and what does not depend on it is one value
for all of its iterations, as in the sums of Winograd's transforms. Conditions over loops around the body are decided
there: padding costs nothing but at the borders (:mod:`autotune.lower.partition`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Compare, Const, Expr, IterVar, Not, Select
from autotune.te.folding import folded, holds
from autotune.te.traversal import children, nodes, ordered
from search_spaces.analysis import cost_of

_MOST = 64
"""Iterations that are looked at one by one."""


@dataclass(frozen=True)
class KnownIndex:
    """Known facts of an index when code is made: ``number`` and a multiple of ``step`` and less than ``width``.

    All of it is known if ``step`` is 0 and ``width`` 1.
    """

    number: Any
    step: int = 0
    width: int = 1


Written = Mapping[IterVar, Sequence[KnownIndex]]
"""The values of axes in the iterations of a body that are written out."""


def operations_of(exprs: Sequence[Expr], written: Written, inner: Collection[IterVar]) -> float:
    """Return the vector instructions of one iteration, on average over those ``written`` out.

    Conditions that no axis of the ``inner`` loop moves are decided outside of it.
    """
    every_node = {id(node): node for expr in exprs for node in nodes(expr)}.values()
    conditions = [node.cond for node in every_node if isinstance(node, Select)]
    if not conditions:
        return float(sum(map(cost_of, every_node)))
    tested = {id(node) for cond in conditions for node in nodes(cond)}
    deciding = [axis for axis in written if id(axis) in tested]
    if math.prod(len(written[axis]) for axis in deciding) > _MOST:
        deciding = []
    counter = _Counter(deciding, inner)
    every = list(itertools.product(*(written[axis] for axis in deciding)))
    for values in every:
        for expr in exprs:
            counter.visit(expr, dict(zip(deciding, values, strict=True)))
    return counter.total / len(every)


class _Counter:
    """Adds up the nodes that are computed, each once for the values of the axes that it depends on."""

    def __init__(self, axes: Sequence[IterVar], inner: Collection[IterVar]) -> None:
        self.total = 0
        self._axes = axes
        self._inner = inner
        self._moving: dict[int, tuple[IterVar, ...]] = {}
        self._seen: set[tuple[object, ...]] = set()

    def visit(self, node: Expr, values: Mapping[IterVar, KnownIndex]) -> None:
        """Count a node and what it needs where the axes have ``values``."""
        key = (id(node), *(values[axis] for axis in self._depends(node)))
        if key in self._seen:
            return
        self._seen.add(key)
        if isinstance(node, Select):
            known = _value(node.cond, values)
            if known is not None and not known.step and known.width == 1:
                self.visit(node.a if known.number else node.b, values)
                return
            if self._is_outside(node.cond):
                self.visit(node.a, values)
                self.visit(node.b, values)
                return
        self.total += cost_of(node)
        for part in children(node):
            self.visit(part, values)

    def _is_outside(self, cond: Expr) -> bool:
        """Return whether a condition is about loops around the inner one alone."""
        return not any(test is axis for test in nodes(cond) for axis in self._inner)

    def _depends(self, node: Expr) -> tuple[IterVar, ...]:
        if not self._axes:
            return ()
        if id(node) in self._moving:
            return self._moving[id(node)]
        for other in ordered([node], lambda node: () if id(node) in self._moving else children(node)):
            if id(other) not in self._moving:
                below = {id(axis) for part in children(other) for axis in self._moving[id(part)]} | {
                    id(other)
                }
                self._moving[id(other)] = tuple(axis for axis in self._axes if id(axis) in below)
        return self._moving[id(node)]


def _value(node: Expr, values: Mapping[IterVar, KnownIndex]) -> KnownIndex | None:
    """Return the known facts of an index or condition where some axes have values; None where there are none."""
    if isinstance(node, Const):
        return KnownIndex(node.value)
    if isinstance(node, IterVar):
        return values.get(node)
    if isinstance(node, Not):
        known = _value(node.a, values)
        return None if known is None else KnownIndex(not known.number)
    if isinstance(node, (Binary, Compare)) and not is_float(node.a.dtype):
        a, b = _value(node.a, values), _value(node.b, values)
        for one in (a, b):
            if one is not None and node.op in ("and", "or") and bool(one.number) == (node.op == "or"):
                return one
        return None if a is None or b is None else _combined(node, a, b)
    return None


def _combined(node: Binary | Compare, a: KnownIndex, b: KnownIndex) -> KnownIndex | None:
    """Return the known facts of two operands together."""
    op = node.op
    if isinstance(node, Compare):
        return (
            KnownIndex(holds(op, a.number, b.number), math.gcd(a.step, b.step))
            if a.width == b.width == 1
            else None
        )
    step, width = 0, 1
    if a.step or b.step or a.width > 1 or b.width > 1:
        if op == "+" or (op == "-" and b.width == 1):
            step, width = math.gcd(a.step, b.step), a.width + b.width - 1
        elif op == "*" and not (a.step and b.step) and a.width == b.width == 1:
            step = abs(a.step * b.number or b.step * a.number)
        elif op in ("//", "%") and b.step == 0 and b.width == 1 and b.number > 0:
            return _divided(op, a, b.number)
        else:
            return None
    return KnownIndex(folded(op, a.number, b.number, node.dtype), step, width)


def _divided(op: str, a: KnownIndex, divisor: int) -> KnownIndex | None:
    """Return a quotient or remainder: the multiples, if they are some of the divisor, go whole into the quotient."""
    rest = a.number % divisor
    if a.step % divisor or rest + a.width > divisor:
        return None
    return KnownIndex(a.number // divisor, a.step // divisor) if op == "//" else KnownIndex(rest, 0, a.width)


__all__ = ["KnownIndex", "Written", "operations_of"]
