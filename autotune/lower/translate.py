"""Expressions of a stage as expressions of the loop IR: axes become loop values, tensor reads become loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.lower.ir import Buffer, Load
from autotune.lower.linear import Lin, Simplifier
from autotune.te.dtypes import INDEX_DTYPE
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Not, Read, Select, Var
from autotune.te.tensor import Tensor
from autotune.te.traversal import children, rebuild


@dataclass(frozen=True)
class StageBuffers:
    """The memory of a stage's values while its readers run: one buffer an output, from ``starts`` on.

    ``registers`` holds the accumulators of a running reduction, ``level`` counts the folds of partial sums between
    these values and the stage's own.
    """

    buffers: tuple[Buffer, ...]
    starts: tuple[Lin, ...]
    registers: StageBuffers | None = None
    level: int = 0

    def indices(self, index: list[Lin]) -> tuple[Expr, ...]:
        """Return the buffer indices of an element."""
        return tuple((i - s).expr() for i, s in zip(index, self.starts, strict=True))


class Translator:
    """Rewrites expressions; ``place_of`` finds where a tensor lives at this point."""

    def __init__(self, simplifier: Simplifier, place_of: Callable[[Tensor], StageBuffers]) -> None:
        self.simplifier = simplifier
        self.place_of = place_of

    def value(self, expr: Expr, values: Mapping[Expr, Lin], memo: dict[int, Expr] | None = None) -> Expr:
        """Return the expression with axes replaced by ``values`` and reads by loads; shared nodes stay shared."""
        return self._go(expr, values, {} if memo is None else memo)

    def index(self, expr: Expr, values: Mapping[Expr, Lin], memo: dict[int, Expr]) -> Lin:
        """Return an index expression in linear form."""
        if _is_arithmetic(expr):
            return self.simplifier.form(expr, values)
        return self.simplifier.form(self._go(expr, values, memo))

    def _go(self, node: Expr, values: Mapping[Expr, Lin], memo: dict[int, Expr]) -> Expr:
        done = memo.get(id(node))
        if done is None:
            done = memo[id(node)] = self._translate(node, values, memo)
        return done

    def _translate(self, node: Expr, values: Mapping[Expr, Lin], memo: dict[int, Expr]) -> Expr:
        if isinstance(node, Const):
            return node
        if isinstance(node, Var):
            known = values.get(node)
            return node if known is None else known.expr()
        if isinstance(node, Read):
            place = self.place_of(node.tensor)
            index = [self.index(i, values, memo) for i in node.indices]
            return Load(place.buffers[node.tensor.value_index], place.indices(index))
        if node.dtype == INDEX_DTYPE and isinstance(node, Binary) and _is_arithmetic(node):
            return self.simplifier.form(node, values).expr()
        if isinstance(node, Compare) and _is_arithmetic(node.a) and _is_arithmetic(node.b):
            return self.simplifier.condition(node, values)
        if isinstance(node, Select):
            cond = self._go(node.cond, values, memo)
            if isinstance(cond, Const):
                return self._go(node.a if cond.value else node.b, values, memo)
        return rebuild(node, tuple([self._go(c, values, memo) for c in children(node)]))


def _is_arithmetic(node: Expr) -> bool:
    """Return whether a node is index arithmetic over variables alone."""
    if isinstance(node, Var | Const):
        return node.dtype == INDEX_DTYPE
    if isinstance(node, Binary | Select):
        return node.dtype == INDEX_DTYPE and all(_is_arithmetic(c) for c in children(node))
    if isinstance(node, Compare | Not):
        return all(_is_arithmetic(c) for c in children(node))
    return isinstance(node, Cast) and node.dtype == INDEX_DTYPE and _is_arithmetic(node.a)
