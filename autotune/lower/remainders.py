"""Values of loops that follow from open ones, and what becomes of the remainder of each split."""

from __future__ import annotations

from collections.abc import Callable

from autotune.lower.ir import If, Let, Stmt
from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.lower.opened import OpenFrame
from autotune.schedule.relations import Fuse, Split
from autotune.te.expr import Const, Expr, IterVar, Var, binary


class Remainders:
    """Decides splits as soon as their outer loop is open: peeled, overlapped or guarded."""

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier
        self.named: dict[Expr, Lin] = {}
        """Values that got a name of their own."""

    def follow(self, frame: OpenFrame, then: Callable[[OpenFrame], Stmt]) -> Stmt:
        """Give values to all loops that follow from open ones; ``then`` makes the code inside, for each case."""
        # A loop of one iteration has its value before it is opened: regions inferred outside of it are exact.
        for iv in frame.stage.leaf_iter_vars:
            if iv not in frame.values and frame.extent(iv) == 1:
                frame.values[iv] = constant_form(0)
                frame.opened.add(iv)
        for relation in reversed(frame.stage.relations):
            if isinstance(relation, Fuse):
                if relation.fused in frame.values and relation.outer not in frame.values:
                    return self._unfuse(frame, relation, then)
            elif relation.outer in frame.values or relation.inner in frame.values:
                wrap = self._decide_split(frame, relation, then)
                if wrap is not None:
                    return wrap
        return then(frame)

    def _unfuse(self, frame: OpenFrame, fuse: Fuse, then: Callable[[OpenFrame], Stmt]) -> Stmt:
        fused = frame.values[fuse.fused]
        inner_extent = frame.extent(fuse.inner)
        frame = frame.branch()
        frame.opened |= {fuse.outer, fuse.inner}
        outer = self.simplifier.divide("//", fused, inner_extent)
        inner = self.simplifier.divide("%", fused, inner_extent)
        return self._named(
            frame,
            [(fuse.outer, outer), (fuse.inner, inner)],
            lambda: self.follow(frame, then),
        )

    def _named(self, frame: OpenFrame, values: list[tuple[IterVar, Lin]], body: Callable[[], Stmt]) -> Stmt:
        """Give values to loops, each under a name of its own unless it is simple."""
        names: list[tuple[Var, Lin]] = []
        for iv, value in values:
            frame.values[iv] = self._name(iv.name, value, names)
        return _lets(names, body())

    def _name(self, name: str, value: Lin, names: list[tuple[Var, Lin]]) -> Lin:
        if value.is_constant or all(isinstance(a, Var) for a in value.terms):
            return value
        return self._give_name(name, value, names)

    def _give_name(self, name: str, value: Lin, names: list[tuple[Var, Lin]]) -> Lin:
        var = Var(name)
        self.simplifier.declare(var, *self.simplifier.range_of(value))
        self.named[var] = value
        names.append((var, value))
        return Lin({var: 1}, 0)

    def _decide_split(self, frame: OpenFrame, split: Split, then: Callable[[OpenFrame], Stmt]) -> Stmt | None:
        """Advance one split; None when there is nothing to do, else the code from here on."""
        if split.parent in frame.values:
            return None
        width, rest = frame.width(split), frame.rest(split)
        if split.outer in frame.values and split.inner not in frame.values:
            if split in frame.decided:
                return None
            frame.decided.add(split)
            if rest == width:
                return None
            if not frame.touched(split.inner):
                return self._decide_tail(frame, split, width, rest, then)
            frame.guarded.add(split)
            frame.resize(split.inner, width)
            return None
        if split.outer not in frame.values:
            return None
        base = frame.bases.get(split)
        inner = frame.values[split.inner]
        value = frame.values[split.outer].scaled(width) + inner if base is None else base + inner
        if split in frame.guarded or (split not in frame.decided and rest != width):
            condition = self.simplifier.compared("<", value, constant_form(frame.extent(split.parent)))
            if not (isinstance(condition, Const) and condition.value):
                frame.conditions.append((condition, split.parent.kind == "reduce"))
        frame.values[split.parent] = value
        frame.opened.add(split.parent)
        return self.follow(frame, then)

    def _decide_tail(
        self, frame: OpenFrame, split: Split, width: int, rest: int, then: Callable[[OpenFrame], Stmt]
    ) -> Stmt:
        outer = frame.values[split.outer]
        extent = frame.extent(split.parent)
        last = extent // width
        names: list[tuple[Var, Lin]] = []
        if frame.overlaps(split):
            low = self.simplifier.form(binary("min", outer.scaled(width).expr(), extent - width))
            frame.bases[split] = self._name(split.parent.name + ".base", low, names)
            frame.resize(split.inner, width)
            return _lets(names, self.follow(frame, then))
        if split.tail == "guard":
            frame.guarded.add(split)
            frame.resize(split.inner, width)
            return self.follow(frame, then)
        condition = self.simplifier.compared("<", outer, constant_form(last))
        main, tail = frame.branch(), frame.branch()
        main.resize(split.inner, width)
        tail.resize(split.inner, rest)
        if isinstance(condition, Const):
            return self.follow(main if condition.value else tail, then)
        tail.values[split.outer] = constant_form(last)
        names = []
        if len(outer.terms) > 1 or outer.constant:
            # A name of its own, so that the branch knows its range.
            outer = main.values[split.outer] = self._give_name(split.outer.name, outer, names)
            condition = self.simplifier.compared("<", outer, constant_form(last))
        with self.simplifier.narrowed(outer, last - 1):
            body = self.follow(main, then)
        return _lets(names, If(condition, body, self.follow(tail, then)))


def _lets(names: list[tuple[Var, Lin]], body: Stmt) -> Stmt:
    for var, value in reversed(names):
        body = Let(var, value.expr(), body)
    return body


__all__ = ["Remainders"]
