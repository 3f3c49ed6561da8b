"""Comparison of what a store computes with what its tensor expression says, operand for operand.

Lowering puts loop values in place of axes, loads in place of reads, and drops branches that are never taken. None of it
is trusted: isl decides whether indices and conditions are the same in every iteration of the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import LoweringError
from autotune.lower.cells import Cells
from autotune.lower.intervals import decided
from autotune.lower.ir import Load, operands
from autotune.lower.polyhedra import (
    ALWAYS,
    WHOLE,
    Access,
    NotAffine,
    ProgramPoint,
    StoreInstances,
    Test,
    affine,
    condition,
)
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Read, Reduce, Select, Var, const
from autotune.te.traversal import substitute, transform


@dataclass(frozen=True)
class Needed:
    """A read by a store, when it happens, and the cell that must be found there; None for inputs, compared by index."""

    access: Access
    time: tuple[str, ...]
    cell: str | None
    accumulates: bool = False
    """True if the store goes on with a reduction that it finds there."""


class Different(Exception):
    """A store that computes something else than its expression."""


@dataclass
class StoreFacts:
    """Facts that isl knows of the iterations of one store."""

    isl: Any
    context: Any
    at: ProgramPoint
    known: dict[str, bool] = field(default_factory=dict)

    def never(self, text: str) -> bool:
        """Return whether a condition holds in no iteration."""
        if text not in self.known:
            loops = ", ".join(name for name, _ in self.at.loops)
            found = self.isl.Set(f"{{ [{loops}] : {self.at.domain} and {text} }}", context=self.context)
            self.known[text] = found.is_empty()
        return self.known[text]


class StoreCheck:
    """One store and its expression; ``needed`` are its reads afterwards, ``skipped`` what could not be compared."""

    def __init__(self, facts: StoreFacts, cells: Cells, instance: StoreInstances) -> None:
        self.facts = facts
        self.cells = cells
        self.instance = instance
        self.names = instance.at.names
        self.needed: dict[Needed, None] = {}
        self.skipped: list[str] = []
        self.markers: dict[Expr, int] = {}
        """Accumulators in the expression, and the level of each."""
        self._done: set[tuple[int, int, Test, bool]] = set()
        self._kept: list[Expr] = []
        self._integers = 0

    def run(self) -> None:
        """Compare; raise LoweringError where the store computes something else."""
        store, origin = self.instance.store, self.instance.origin
        if store.value.dtype != store.buffer.dtype:
            raise LoweringError(
                f"verify: a value of type {store.value.dtype} is stored to {store.buffer.name}"
            )
        wanted = self._expected()
        try:
            try:
                self._value(store.value, wanted, ALWAYS, self.instance.at)
            except Different:
                self._restart()
                self._value(self._folded(store.value), self._folded(wanted), ALWAYS, self.instance.at)
        except NotAffine as error:
            self._restart()
            self.skipped.append(f"a value of {origin.stage}: {error}")
        except Different as error:
            raise LoweringError(
                f"verify: another value is stored than the expression names: {error}"
            ) from error

        self._add_unneeded()

    def _add_unneeded(self) -> None:
        """Add reads that decide nothing and are made all the same: operands of a product with zero, or of
        ``a or true``."""
        known = {(needed.access.buffer, needed.access.index) for needed in self.needed}
        for load, test in self._made():
            try:
                access = self.instance.at.access(load.buffer, load.indices, test)
            except NotAffine:
                self.skipped.append(f"a read of {load.buffer.name} at an index that is not affine")
                continue
            if (access.buffer, access.index) not in known:
                self.needed[Needed(access, self.instance.at.time, None)] = None

    def _made(self) -> Iterator[tuple[Load, Test]]:
        """Yield all loads of the store, each with where it is evaluated."""
        stack, seen = [(self.instance.store.value, ALWAYS)], set[tuple[int, Test]]()
        while stack:
            node, test = stack.pop()
            if (id(node), test) in seen or self.facts.never(test.text):
                continue
            seen.add((id(node), test))
            if isinstance(node, Load):
                yield node, test
            if not isinstance(node, Select):
                stack += [(part, test) for part in operands(node)]
                continue
            stack.append((node.cond, test))
            cond = self._undecided(node.cond, test)
            for side, taken in ((node.a, True), (node.b, False)):
                stack.append((side, test.branch(cond, self.names, taken=taken)))

    def _restart(self) -> None:
        self.needed.clear()
        self.skipped.clear()
        self._done.clear()
        self._integers = 0

    # -- the expression --------------------------------------------------------------------------------------

    def _expected(self) -> Expr:
        """Return the expected value of the store, over the loops around it."""
        origin = self.instance.origin
        stage = self.cells.schedule.stage_named(origin.stage)
        wanted = self._part(origin.part, self.cells.bodies[stage], self.cells.epilogues.get(stage))
        axes = (*stage.op.axis, *stage.op.reduce_axis)
        return substitute(wanted, dict(zip(axes, origin.instance, strict=False)))

    def _part(self, part: str, body: Sequence[Expr], epilogue: Expr | None) -> Expr:
        origin, first = self.instance.origin, body[0]
        stage = self.cells.schedule.stage_named(origin.stage)
        if part == "store" and epilogue is not None:
            last = stage.op.epilogue  # type: ignore[attr-defined]
            return substitute(epilogue, {last.accumulator: self._accumulators(first, 0)[0]})
        if part in ("load", "store"):
            return self._accumulators(first, origin.level)[origin.component]
        if part == "all" and not isinstance(first, Reduce):
            return body[origin.component]
        if not isinstance(first, Reduce) or part not in ("init", "update", "fold"):
            raise LoweringError(f"verify: {origin.stage} has no part {part!r}")
        if part == "init":
            return first.reducer.identity(tuple(s.dtype for s in first.sources))[origin.component]
        more = first.sources if part == "update" else self._accumulators(first, origin.level + 1)
        return first.reducer.combine(self._accumulators(first, origin.level), more)[origin.component]

    def _accumulators(self, first: Expr, level: int) -> tuple[Expr, ...]:
        sources = first.sources if isinstance(first, Reduce) else (first,)
        found = tuple(Var(f"{number}", source.dtype) for number, source in enumerate(sources))
        self.markers |= dict.fromkeys(found, level)
        return found

    def _folded(self, expr: Expr) -> Expr:
        """Return the expression with branches taken that are always taken, and what follows from them for integers."""

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, Select):
                return self._taken(node, ALWAYS)
            return None

        return transform(expr, replace)

    # -- comparing -------------------------------------------------------------------------------------------

    def _value(self, a: Expr, e: Expr, test: Test, at: ProgramPoint) -> None:
        if self.facts.never(test.text):
            return
        a, at = self._settled(a, test, at)
        e, _ = self._settled(e, test, at)
        key = (id(a), id(e), test, self._integers > 0)
        if key in self._done:
            return
        self._done.add(key)
        self._kept += (a, e)
        if e.dtype == a.dtype == "bool" and not isinstance(a, Load):
            self._boolean(a, e, test, at)
        elif not self._same_index(a, e, test):
            self._node(a, e, test, at)

    def _settled(self, node: Expr, test: Test, at: ProgramPoint) -> tuple[Expr, ProgramPoint]:
        """Return names replaced by values, branches that are always taken by what they lead to."""
        while True:
            if node in self.instance.at.bound:
                node, at = self.instance.at.bound[node]
            elif self._integers and isinstance(node, Cast) and node.dtype in WHOLE and node.a.dtype in WHOLE:
                node = node.a  # comparisons may be made in either type
            elif isinstance(node, Select) and (taken := self._taken(node, test)) is not None:
                node = taken
            else:
                return node, at

    def _taken(self, node: Select, test: Test) -> Expr | None:
        cond = self._undecided(node.cond, test)
        return (node.a if cond.value else node.b) if isinstance(cond, Const) else None

    def _verdict(self, cond: Expr, test: Test) -> bool | None:
        """Return the value of a condition in every iteration; None where it varies or is not affine."""
        if isinstance(cond, Const):
            return bool(cond.value)
        try:
            text = condition(cond, self.names)
        except NotAffine:
            return decided(cond) if isinstance(cond, Compare) else None
        if self.facts.never(f"{test.text} and (not {text})"):
            return True
        return False if self.facts.never(f"{test.text} and {text}") else None

    def _same_index(self, a: Expr, e: Expr, test: Test) -> bool:
        """Return whether both are index arithmetic and agree; raises where they are and differ."""
        if not self._same_type(a, e) or is_float(a.dtype):
            return False
        try:
            one, two = affine(a, self.names), affine(e, self.names)
        except NotAffine:
            return False
        if one != two and not self.facts.never(f"{test.text} and {one} != {two}"):
            self._fail(a, e, test)
        return True

    def _boolean(self, a: Expr, e: Expr, test: Test, at: ProgramPoint) -> None:
        a, e = self._undecided(a, test), self._undecided(e, test)
        try:
            one, two = condition(a, self.names), condition(e, self.names)
        except NotAffine:
            self._node(a, e, test, at)
            return
        if one != two and not self.facts.never(
            f"{test.text} and (({one} and not {two}) or ({two} and not {one}))"
        ):
            self._fail(a, e, test)

    def _undecided(self, node: Expr, test: Test) -> Expr:
        """Return a condition without the parts that hold, or do not, in every iteration."""
        verdict = self._verdict(node, test)
        if verdict is not None:
            return const(verdict)
        if isinstance(node, Binary) and node.op in ("and", "or"):
            for part, other in ((node.a, node.b), (node.b, node.a)):
                known = self._verdict(part, test)
                if known is not None:
                    return self._undecided(other, test) if known == (node.op == "and") else const(known)
        return node

    def _node(self, a: Expr, e: Expr, test: Test, at: ProgramPoint) -> None:
        if isinstance(a, Load):
            self._load(a, e, test, at)
            return
        alike = type(a) is type(e) and self._same_type(a, e)
        if alike and isinstance(a, Binary | Compare):
            alike = a.op == e.op  # type: ignore[attr-defined]
        if alike and isinstance(a, Call):
            alike = a.name == e.name  # type: ignore[attr-defined]
        if alike and isinstance(a, Const):
            alike = repr(a.value) == repr(e.value)  # type: ignore[attr-defined]
        if alike and isinstance(a, Var):
            alike = a is e
        if not alike or len(operands(a)) != len(operands(e)):
            self._fail(a, e, test)
        if isinstance(a, Select) and isinstance(e, Select):
            self._boolean(a.cond, e.cond, test, at)
            self._value(a.a, e.a, test.branch(a.cond, self.names, taken=True), at)
            self._value(a.b, e.b, test.branch(a.cond, self.names, taken=False), at)
            return
        whole = isinstance(a, Binary | Compare) and not is_float(operands(a)[0].dtype)
        self._integers += whole
        for one, two in zip(operands(a), operands(e), strict=True):
            self._value(one, two, test, at)
        self._integers -= whole

    def _same_type(self, a: Expr, e: Expr) -> bool:
        return a.dtype == e.dtype or (self._integers > 0 and a.dtype in WHOLE and e.dtype in WHOLE)

    def _load(self, a: Load, e: Expr, test: Test, at: ProgramPoint) -> None:
        try:
            access = self.instance.at.access(a.buffer, a.indices, test)
        except NotAffine:
            if not isinstance(e, Read) or a.dtype != e.dtype:
                self._fail(a, e, test)
            self.skipped.append(f"a read of {a.buffer.name} at an index that is not affine")
            return
        if a.dtype != e.dtype:
            self._fail(a, e, test)
        if e in self.markers:
            cell = self.cells.accumulator(self.instance, int(e.name), self.markers[e])  # type: ignore[attr-defined]
            self.needed[Needed(access, at.time, cell, accumulates=not self._finishes(e))] = None
        elif not isinstance(e, Read):
            self._fail(a, e, test)
        elif self.cells.is_input(e.tensor):
            if a.buffer is not self.cells.input_of(e.tensor):
                self._fail(a, e, test)
            for one, two in zip(a.indices, e.indices, strict=True):
                if not self._same_index(one, two, test):
                    raise NotAffine(f"a read of {a.buffer.name} where an index that is not affine is meant")
            self.needed[Needed(access, at.time, None)] = None
        else:
            try:
                index = [affine(i, self.names) for i in e.indices]
            except NotAffine:
                raise NotAffine(
                    f"a read of {a.buffer.name} where an index that is not affine is meant"
                ) from None
            self.needed[Needed(access, at.time, self.cells.finished(e.tensor, index))] = None

    def _finishes(self, marker: Expr) -> bool:
        """Return whether a reduction is read that must be complete: by an epilogue, or a partial sum that is folded."""
        origin = self.instance.origin
        stage = self.cells.schedule.stage_named(origin.stage)
        last = origin.part == "store" and stage in self.cells.epilogues
        return last or self.markers[marker] > origin.level

    def _fail(self, a: Expr, e: Expr, test: Test) -> None:
        """Raise the error; integers may have been rearranged, and what is not evaluated may differ."""
        origin = self.instance.origin
        if self._integers or not test.exact:
            raise NotAffine("it is not compared with the expression, whose integers were rearranged")
        raise Different(f"{origin.stage}.{origin.part} has {a!r} for {e!r}")


def compare(isl: Any, context: Any, cells: Cells, instance: StoreInstances) -> StoreCheck:
    """Return the comparison of a store with its expression; raises LoweringError where they differ."""
    made = StoreCheck(StoreFacts(isl, context, instance.at), cells, instance)
    made.run()
    return made


__all__ = ["Needed", "StoreCheck", "StoreFacts", "compare"]
