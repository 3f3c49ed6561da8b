"""Known facts about the loops of one stage while its code is generated."""

from __future__ import annotations

import math

from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.lower.regions import Box, Region
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.stage import Stage
from autotune.te.expr import Const, Expr, IterVar
from autotune.te.tensor import ComputeOp


class Frame:
    """Extents and values of loop variables at one point of a stage's nest.

    ``region`` is the box of the stage that this nest computes. ``values`` holds loops that are open (or follow
    from open ones), relative to their start; ``extents`` overrides what the split factors say, for remainders.
    """

    def __init__(self, stage: Stage, region: Region) -> None:
        assert isinstance(stage.op, ComputeOp)
        self.stage = stage
        self.op = stage.op
        self.region = region
        self.extents: dict[IterVar, int] = {}
        self.values: dict[IterVar, Lin] = {}
        self.bases: dict[Split, Lin] = {}
        self.decided: set[Split] = set()
        self.guarded: set[Split] = set()
        self.opened: set[IterVar] = set()
        self.conditions: list[tuple[Expr, bool]] = []
        self.bounded: set[IterVar] = set()
        """Axes of which the code around makes sure that they stay inside the tensor."""
        for axis, (_, extent) in zip(self.op.axis, region, strict=True):
            self.extents[axis] = extent
        for axis in self.op.reduce_axis:
            self.extents[axis] = axis.extent
        self._parents: dict[IterVar, Split | Fuse] = {}
        for relation in stage.relations:
            if isinstance(relation, Split):
                self._parents[relation.outer] = relation
                self._parents[relation.inner] = relation
            else:
                self._parents[relation.fused] = relation
        for loop in stage.all_iter_vars:
            if loop not in self._parents:  # the only loop of a stage without axes
                self.extents.setdefault(loop, loop.extent)

    def branch(self) -> Frame:
        """Return a copy to go on with, apart from this one."""
        new = object.__new__(Frame)
        new.stage, new.op, new.region, new._parents = self.stage, self.op, self.region, self._parents
        new.extents, new.values, new.bases = dict(self.extents), dict(self.values), dict(self.bases)
        new.decided, new.guarded, new.opened = set(self.decided), set(self.guarded), set(self.opened)
        new.conditions, new.bounded = list(self.conditions), set(self.bounded)
        return new

    # -- extents ---------------------------------------------------------------------------------------------

    def extent(self, iv: IterVar) -> int:
        """Return iterations of a loop, from what is known now."""
        known = self.extents.get(iv)
        if known is not None:
            return known
        relation = self._parents[iv]
        if isinstance(relation, Fuse):
            return self.extent(relation.outer) * self.extent(relation.inner)
        width = self.width(relation)
        return width if iv is relation.inner else -(-self.extent(relation.parent) // max(width, 1))

    def width(self, split: Split) -> int:
        """Return the distance of two neighbouring iterations of the outer loop of a split."""
        extent = self.extent(split.parent)
        return min(split.factor, extent) if split.factor else -(-extent // split.nparts)

    def rest(self, split: Split) -> int:
        """Return the extent of the inner loop in the last iteration of the outer one; 0 for an empty loop."""
        extent, width = self.extent(split.parent), self.width(split)
        return extent - (-(-extent // width) - 1) * width if extent else 0

    def undivided(self, iv: IterVar) -> IterVar:
        """Return the loop with the same iterations as ``iv``, before it was split or fused with others
        that do not repeat."""
        relation = self._parents.get(iv)
        if isinstance(relation, Split):
            other = relation.inner if iv is relation.outer else relation.outer
            return self.undivided(relation.parent) if self.extent(other) == 1 else iv
        if isinstance(relation, Fuse) and 1 in (self.extent(relation.outer), self.extent(relation.inner)):
            return self.undivided(relation.inner if self.extent(relation.outer) == 1 else relation.outer)
        return iv

    def first_update(self) -> int:
        """Return the number of the leaf from which on elements of a reduction are updated, not computed."""
        first = self.stage.first_reduction()
        if self.stage.init_at is not None:
            first = min(first, self.stage.leaf_iter_vars.index(self.stage.init_at))
        return first

    def leaves_of(self, loop: IterVar) -> list[int]:
        """Return the numbers of the leaves that a loop was split or fused to."""
        made_of = {loop}
        for relation in self.stage.relations:
            if isinstance(relation, Split) and relation.parent in made_of:
                made_of |= {relation.outer, relation.inner}
            elif isinstance(relation, Fuse) and (relation.outer in made_of or relation.inner in made_of):
                made_of.add(relation.fused)
        return [number for number, iv in enumerate(self.stage.leaf_iter_vars) if iv in made_of]

    def inside_reduction(self, split: Split) -> bool:
        """Return whether loops of a split run inside a reduction loop, where an element must not be updated twice."""
        return any(number >= self.first_update() for number in self.leaves_of(split.outer))

    # -- values ----------------------------------------------------------------------------------------------

    def touched(self, iv: IterVar) -> bool:
        """Return whether a loop that ``iv`` is made of is open already; one of a single iteration fixes nothing."""
        if iv in self.opened:
            return self.extent(iv) > 1
        for relation in self.stage.relations:
            if isinstance(relation, Split) and relation.parent is iv:
                return self.touched(relation.outer) or self.touched(relation.inner)
            if isinstance(relation, Fuse) and (relation.outer is iv or relation.inner is iv):
                return self.touched(relation.fused)
        return False

    def reach(self, iv: IterVar, simplifier: Simplifier) -> Box:
        """Return the interval of a variable while the loops that are not open yet run."""
        value = self.values.get(iv)
        if value is not None:
            return value, 1
        for relation in self.stage.relations:
            if isinstance(relation, Fuse) and iv in (relation.outer, relation.inner) and self.touched(iv):
                return self._part_of_fused(relation, iv, simplifier)
            if isinstance(relation, Split) and relation.parent is iv and self.touched(iv):
                outer = self.reach(relation.outer, simplifier)
                inner = self.reach(relation.inner, simplifier)
                base = self.bases.get(relation)
                if base is not None:
                    return base + inner[0], inner[1]
                width = self.width(relation)
                low, extent = outer[0].scaled(width) + inner[0], self.extent(iv)
                size = min((outer[1] - 1) * width + inner[1], extent)
                if relation.tail == "overlap" and relation not in self.decided and size < extent:
                    # Which iteration is the last is not known yet: any may start early by this much.
                    early = (width - self.rest(relation)) if extent >= width else 0
                    if size + early >= extent:
                        return constant_form(0), extent
                    return low + -early, size + early
                return low, size
        return constant_form(0), self.extent(iv)

    def _part_of_fused(self, relation: Fuse, iv: IterVar, simplifier: Simplifier) -> Box:
        """Return the interval of one of two loops while an interval of the loop that they were fused to runs.

        Where that one starts at multiples of ``step`` alone, at most ``row - step`` iterations of a row are before it.
        """
        low, size = self.reach(relation.fused, simplifier)
        row = self.extent(relation.inner)
        step = math.gcd(row, low.constant, *low.terms.values())
        if row < 1 or size < 1:
            return constant_form(0), self.extent(iv)
        rows = (row - step + size - 1) // row + 1
        if iv is relation.inner:
            return (simplifier.divide("%", low, row), size) if rows == 1 else (constant_form(0), row)
        extent = self.extent(iv)
        return (simplifier.divide("//", low, row), rows) if rows < extent else (constant_form(0), extent)

    def boxes(self, simplifier: Simplifier) -> dict[Expr, Box]:
        """Return the interval of each axis, absolute, for bound inference."""
        result: dict[Expr, Box] = {}
        for axis, (low, _) in zip(self.op.axis, self.region, strict=True):
            start, size = self.reach(axis, simplifier)
            result[axis] = (low + start, size)
        for axis in self.op.reduce_axis:
            start, size = self.reach(axis, simplifier)
            result[axis] = (start + axis.start, size)
        return result

    def axis_values(self) -> dict[Expr, Lin]:
        """Return the absolute value of each axis whose loops are all open."""
        result: dict[Expr, Lin] = {}
        for axis, (low, _) in zip(self.op.axis, self.region, strict=True):
            if axis in self.values:
                result[axis] = low + self.values[axis]
        for axis in self.op.reduce_axis:
            if axis in self.values:
                result[axis] = self.values[axis] + axis.start
        return result

    def bounds_conditions(self, simplifier: Simplifier) -> list[Expr]:
        """Return conditions that keep the axes whose loops are open inside the tensor, as far as nothing around does.

        Those that always hold are dropped.
        """
        result: list[Expr] = []
        values = self.axis_values()
        for axis in self.op.axis:
            if axis in self.bounded or axis not in values:
                continue
            value = values[axis]
            for condition in (
                simplifier.compared("<", value, constant_form(axis.extent)),
                simplifier.compared(">=", value, constant_form(0)),
            ):
                if not (isinstance(condition, Const) and condition.value):
                    result.append(condition)
        return result
