"""The axes of all stages of a kernel as those of few: what moves together is one axis.

Stages that are computed inside of each other read each other's elements. Where a stage is read element by element its
axes are those of its reader; else it has a place that the reader's loops move, and axes of its own within it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.schedule.relations import Fuse
from autotune.schedule.stage import Stage
from autotune.te.expr import Binary, Const, Expr, IterVar
from autotune.te.traversal import nodes
from search_spaces.nest.places import Places

Terms = Mapping[str, float]
"""Multiples of named axes that make up an index; a quotient moves by a part of one."""


class Axes:
    """Names of the axes of ``stages``, consumers first, of which ``main`` has the most work."""

    def __init__(self, places: Places, stages: Sequence[Stage], main: Stage) -> None:
        self._places = places
        self._stages = stages
        self._parts: dict[IterVar, tuple[IterVar, ...]] = {}
        self._terms: dict[IterVar, Terms] = {}
        self.names: dict[IterVar, str] = {}
        self._same: dict[str, str] = {}
        self._owners: dict[str, Stage] = {}
        self._sizes: dict[str, int] = {}
        self._found: dict[Expr, Terms] = {}
        """The axes that move an index, as far as they are known."""
        for stage in stages:
            self._join(stage)
        for stage in stages:
            self._place(stage)
        self._unite(main)

    def name(self, axis: IterVar) -> str:
        """Return the axis that the loops of a stage's own axis move."""
        return self._resolved(self.names[axis])

    def size(self, name: str) -> int:
        """Return the number of values of an axis."""
        return self._sizes[name]

    def terms(self, index: Expr) -> Terms:
        """Return an index of a read; remainders, look-ups and the like count as what moves them."""
        if index not in self._found:
            self._found[index] = self._terms_of(index)
        return self._found[index]

    def _terms_of(self, index: Expr) -> Terms:
        form = self._places.indexes.form(index)
        found: dict[str, float] = {}
        for atom, factor in form.terms.items():
            divisor = _divisor(atom)
            if divisor is not None and isinstance(atom, Binary):
                for name, step in self.terms(atom.a).items():
                    found[name] = found.get(name, 0) + factor * step / divisor
                continue
            for axis in [atom] if isinstance(atom, IterVar) else _variables(atom):
                parts = self._parts.get(axis, (axis,))
                if axis is not parts[-1] and parts[-1] in form.terms:
                    continue  # counted with its last part
                # Where the place of a stage and its own axis are one, it counts once.
                moved: dict[str, float] = {}
                for name, step in self._terms.get(axis, {}).items():
                    name = self._resolved(name)
                    moved[name] = max(step, moved.get(name, step))
                for name, step in moved.items():
                    step = factor * step if isinstance(atom, IterVar) else 1
                    found[name] = found.get(name, 0) + step
        return found

    def is_exact(self, index: Expr) -> bool:
        """Return whether an index is a sum of multiples of axes."""
        return all(isinstance(atom, IterVar) for atom in self._places.indexes.form(index).terms)

    def rename(self, names: Mapping[str, str]) -> None:
        """Call axes otherwise."""
        self._found.clear()
        for old, new in names.items():
            self._same[old] = new
            self._sizes[new], self._owners[new] = self._sizes[old], self._owners[old]

    def _resolved(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def _join(self, stage: Stage) -> None:
        """Join axes that are always the digits of one number to parts of one axis, the last digit last."""
        form_of = self._places.indexes.form
        forms = [form_of(i).terms for read in self._places.reads[stage] for i in read.indices]
        axes = [*stage.op.axis, *stage.op.reduce_axis]
        pieces = self._places.replayed.panels.get(stage.op.name, ())
        panels = {axis: old for axis, (old, _, _) in zip(stage.op.axis, pieces, strict=False)}
        for inner in axes:
            for outer in axes:
                with_inner = [f for f in forms if inner in f]
                with_outer = [f for f in forms if outer in f]
                if outer is inner or not with_outer or len(with_inner) != len(with_outer):
                    continue
                # A single place says nothing, but in panels, which have more with other values of knobs.
                parts = inner.extent > 1 or (inner in panels and panels[inner] == panels.get(outer))
                if parts and all(f.get(outer) == f[inner] * inner.extent for f in with_inner):
                    self._put_together(outer, inner)

    def _place(self, stage: Stage) -> None:
        """Name the axes of a stage whose readers have theirs."""
        self._found.clear()
        uses = [(reader, read) for reader, read in self._places.uses[stage] if reader in self._stages]
        for dimension, axis in enumerate(stage.op.axis):
            indices = [read.indices[dimension] for _, read in uses]
            moved = [self.terms(index) for index in indices]
            (name, *others) = {n for terms in moved for n in terms} or {""}
            exact = all(self.is_exact(index) for index in indices)
            if name and not others and exact and all(terms == {name: 1} for terms in moved):
                self._take_apart(axis)  # its readers' loops say where it is
                self.names[axis], self._terms[axis] = name, {name: 1}
                self._found.clear()
            else:
                self._own(stage, axis, indices)
        for axis in stage.op.reduce_axis:
            self._own(stage, axis, [])

    def _put_together(self, outer: IterVar, inner: IterVar) -> None:
        """Note that two axes, and what they are parts of with others, are digits of one number."""
        before, after = (self._parts.get(axis, (axis,)) for axis in (outer, inner))
        if before is after:  # of one place each, found in the other order before
            before, after = tuple(part for part in before if part is not inner), (inner,)
        whole = before + after
        self._parts.update(dict.fromkeys(whole, whole))

    def _take_apart(self, axis: IterVar) -> None:
        """Separate an axis from another; the digits behind the first one are still those of one number."""
        parts = self._parts.get(axis, ())
        for part in parts:
            del self._parts[part]
        if len(parts) > 2 and axis is parts[0]:
            self._parts.update(dict.fromkeys(parts[1:], parts[1:]))

    def _own(self, stage: Stage, axis: IterVar, indices: Sequence[Expr]) -> None:
        """Add an axis of its own, at the place that what is outside of the stage moves."""
        parts = self._parts.get(axis, (axis,))
        name = self.names[axis] = f"{stage.op.name}.{parts[-1].name}"
        self._owners[name], self._sizes[name] = stage, math.prod(part.extent for part in parts)
        moved = self._outside(stage)
        place: dict[str, float] = {}
        for index in indices[:1]:
            place = {name: step for name, step in self.terms(index).items() if name in moved}
        self._terms[axis] = {**place, self.names[axis]: 1}
        self._found.clear()

    def _outside(self, stage: Stage) -> set[str]:
        """Return the axes that loops around a stage move."""
        found: set[str] = set()
        at = stage
        while at.attach_stage is not None and at.attach_ivar is not None:
            parent = at.attach_stage
            around = parent.leaf_iter_vars[: parent.leaf("derive", at.attach_ivar) + 1]
            for loop in around:
                found |= {self.names[axis] for axis in roots(parent, loop) if axis in self.names}
            at = parent
        return found

    def _unite(self, main: Stage) -> None:
        """Give one axis to stages that go through the same elements one after another."""
        seen: dict[tuple[object, int], str] = {}
        for stage in (main, *(s for s in self._stages if s is not main)):
            for read in self._places.reads[stage]:
                producer = self._places.replayed.schedule[read.tensor]
                inside = producer in self._stages
                for dimension, index in enumerate(read.indices):
                    terms = self.terms(index)
                    if len(terms) == 1 and set(terms.values()) == {1}:
                        (name,) = terms
                        known = self.name(producer.op.axis[dimension]) if inside else name
                        key = (producer if inside else read.tensor, dimension)
                        self._same_as(name, self._resolved(seen.setdefault(key, known)))

    def _same_as(self, name: str, known: str) -> None:
        apart = name != known and self._owners[name] is not self._owners[known]
        if apart and self._sizes[name] == self._sizes[known]:
            self._same[name] = known
            self._found.clear()


def roots(stage: Stage, loop: IterVar) -> list[IterVar]:
    """Return the axes that a loop is made of."""
    for relation in stage.relations:
        if isinstance(relation, Fuse):
            if relation.fused is loop:
                return roots(stage, relation.outer) + roots(stage, relation.inner)
        elif relation.outer is loop or relation.inner is loop:
            return roots(stage, relation.parent)
    return [loop]


def _divisor(atom: Expr) -> int | None:
    """Return the divisor of a quotient."""
    quotient = isinstance(atom, Binary) and atom.op == "//" and isinstance(atom.b, Const)
    return int(atom.b.value) if quotient else None  # type: ignore[attr-defined]


def _variables(atom: Expr) -> list[IterVar]:
    return [node for node in nodes(atom) if isinstance(node, IterVar)]


__all__ = ["Axes", "Terms", "roots"]
