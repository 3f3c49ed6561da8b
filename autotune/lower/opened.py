"""Loops of one stage while its code is generated: which are open, with which values, and what was decided of splits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from autotune.lower.frame import Frame
from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.lower.regions import Box, Region
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.stage import Stage
from autotune.te.expr import Const, Expr, IterVar, Var


class Forms:
    """Starts of intervals as linear forms of the loop variables around."""

    zero = constant_form(0)

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier

    def plus(self, a: Lin, b: Lin) -> Lin:
        """Return the sum."""
        return a + b

    def scaled(self, start: Lin, factor: int) -> Lin:
        """Return a multiple."""
        return start.scaled(factor)

    def moved(self, start: Lin, distance: int) -> Lin:
        """Return the start plus a number."""
        return start + distance

    def grain(self, start: Lin) -> int:
        """Return the largest number that all values are a multiple of; 0 where that is 0."""
        return math.gcd(start.constant, *start.terms.values())

    def quotient(self, start: Lin, divisor: int) -> Lin:
        """Return the start divided by a number, rounded down."""
        return self.simplifier.divide("//", start, divisor)

    def remainder(self, start: Lin, divisor: int) -> Lin:
        """Return what the division by a number leaves."""
        return self.simplifier.divide("%", start, divisor)

    def where(self, condition: Any, a: Lin, b: Lin) -> Lin:
        """Return one of two starts."""
        return a if condition else b


class OpenFrame(Frame[Lin]):
    """Extents and values of loop variables at one point of a stage's nest.

    ``region`` is the box of the stage that this nest computes, ``threads`` the thread axes whose loops are open.
    ``values`` holds loops that are open (or follow from open ones), relative to their start.
    """

    def __init__(
        self,
        stage: Stage,
        region: Region,
        simplifier: Simplifier,
        threads: Mapping[str, tuple[Var, int]],
        *,
        finishes: bool,
    ) -> None:
        extents = {axis: extent for axis, (_, extent) in zip(stage.op.axis, region, strict=True)}
        extents |= {axis: axis.extent for axis in stage.op.reduce_axis}
        super().__init__(stage, extents, finishes=finishes)
        self.starts = Forms(simplifier)
        self.simplifier = simplifier
        self.region = region
        self.threads = threads
        self.values: dict[IterVar, Lin] = {}
        self.bases: dict[Split, Lin] = {}
        self.decided: set[Split] = set()
        self.guarded: set[Split] = set()
        self.conditions: list[tuple[Expr, bool]] = []
        self.bounded: set[IterVar] = set()
        """Axes of which the code around makes sure that they stay inside the tensor."""

    def branch(self) -> Self:
        """Return a copy to go on with, apart from this one."""
        new = super().branch()
        new.values, new.bases = dict(self.values), dict(self.bases)
        new.decided, new.guarded = set(self.decided), set(self.guarded)
        new.conditions, new.bounded = list(self.conditions), set(self.bounded)
        return new

    @property
    def on_threads(self) -> bool:
        """True if the loops run in a thread of a GPU."""
        return bool(self.threads)

    def start_of(self, iv: IterVar) -> Lin | None:
        """Return the value of a loop that has one now."""
        return self.values.get(iv)

    def is_decided(self, split: Split) -> bool:
        """Return whether the rest of a split is dealt with."""
        return split in self.decided

    def base(self, split: Split) -> Lin | None:
        """Return the start of the current tile of a split where that is no multiple of its width."""
        return self.bases.get(split)

    def undivided(self, iv: IterVar) -> IterVar:
        """Return the loop with the same iterations as ``iv``, before it was split or fused with others
        that do not repeat."""
        relation = self.parents.get(iv)
        if isinstance(relation, Split):
            other = relation.inner if iv is relation.outer else relation.outer
            return self.undivided(relation.parent) if self.extent(other) == 1 else iv
        if isinstance(relation, Fuse) and 1 in (self.extent(relation.outer), self.extent(relation.inner)):
            return self.undivided(relation.inner if self.extent(relation.outer) == 1 else relation.outer)
        return iv

    def peeled_after(self, iv: IterVar) -> Split | None:
        """Return the split whose remainder becomes a second loop nest after loop ``iv``, if there is one."""
        loop = self.undivided(iv)
        split = self.parents.get(loop)
        if not isinstance(split, Split) or split.outer is not loop or split in self.decided:
            return None
        return split if self.rest(split) != self.width(split) and self.is_apart(split, iv) else None

    def boxes(self) -> dict[Expr, Box]:
        """Return the interval of each axis, absolute, for bound inference."""
        result: dict[Expr, Box] = {}
        for axis, (low, _) in zip(self.op.axis, self.region, strict=True):
            start, size = self.reach(axis)
            result[axis] = (low + start, size)
        for axis in self.op.reduce_axis:
            start, size = self.reach(axis)
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

    def bounds_conditions(self) -> list[Expr]:
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
                self.simplifier.compared("<", value, constant_form(axis.extent)),
                self.simplifier.compared(">=", value, constant_form(0)),
            ):
                if not (isinstance(condition, Const) and condition.value):
                    result.append(condition)
        return result


__all__ = ["OpenFrame"]
