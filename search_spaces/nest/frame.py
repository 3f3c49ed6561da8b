"""The loops of one stage for a population: what :mod:`autotune.lower.frame` knows of one candidate, as arrays.

Where a loop has a narrower last iteration, these are the extents of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from autotune.schedule.knob_expression import evaluate
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.stage import Stage
from autotune.te.expr import IterVar
from search_spaces.nest.arithmetic import Knobs, Value, both, ceil_div, either, least, most, negated, where
from search_spaces.nest.replay import Replayed


class Frame:
    """Extents of a stage's loops where it computes ``sizes`` of its axes, one number or an array [n] each."""

    def __init__(
        self, replayed: Replayed, stage: Stage, knobs: Knobs, sizes: Mapping[IterVar, Value]
    ) -> None:
        self.stage = stage
        self.sizes = sizes
        self._replayed = replayed
        self._knobs = knobs
        self._extents: dict[IterVar, Value] = dict(sizes)
        self._parents: dict[IterVar, Split | Fuse] = {}
        self.splits: dict[IterVar, Split] = {}
        self._fused: dict[IterVar, Fuse] = {}
        for relation in stage.relations:
            if isinstance(relation, Split):
                self._parents[relation.outer] = self._parents[relation.inner] = relation
                self.splits[relation.parent] = relation
            else:
                self._parents[relation.fused] = relation
                self._fused[relation.outer] = self._fused[relation.inner] = relation

    def extent(self, iv: IterVar) -> Value:
        """Iterations of a loop."""
        known = self._extents.get(iv)
        if known is None:
            known = self._extents[iv] = self._extent(iv)
        return known

    def _extent(self, iv: IterVar) -> Value:
        relation = self._parents[iv]
        if isinstance(relation, Fuse):
            return self.extent(relation.outer) * self.extent(relation.inner)
        width = self.width(relation)
        return width if iv is relation.inner else ceil_div(self.extent(relation.parent), width)

    def width(self, split: Split) -> Value:
        """Distance of neighbouring iterations of the outer loop of a split: the extent of whole inner loops."""
        extent = self.extent(split.parent)
        given = evaluate(self._replayed.width(split), self._knobs)
        return least(given, extent) if split.factor else ceil_div(extent, least(given, extent))

    def rest(self, split: Split) -> Value:
        """Extent of the inner loop in the last iteration of the outer one."""
        extent, width = self.extent(split.parent), self.width(split)
        return extent - (ceil_div(extent, width) - 1) * width

    def whole(self, iv: IterVar) -> Value:
        """Iterations of a loop that share code: neither peeled ones nor the rest of a split with a nest of its own."""
        count = self._full(iv)
        first, last = self.stage.peeled.get(iv, (0, 0))
        return most(count - first - last, 1) if first + last else count

    def _full(self, iv: IterVar) -> Value:
        extent, split = self.extent(iv), self._parents.get(iv)
        if not isinstance(split, Split) or split.outer is not iv or split.tail != "peel":
            return extent
        before = set(self.stage.leaf_iter_vars[: self.stage.leaf("derive", iv)])
        shared = either(self.is_kind(iv, "parallel"), self.is_kind(iv, "vectorized"))
        inner, parent = self.width(split), self.extent(split.parent)
        apart = both(both(parent > inner, negated(self.touched(split.inner, before))), negated(shared))
        return where(apart, parent // most(inner, 1), extent)

    def is_kind(self, iv: IterVar, kind: str) -> Any:
        """Whether a loop is parallel, unrolled or vectorized: a bool, or an array of them [n]."""
        return evaluate(self._replayed.is_kind(self.stage, iv, kind), self._knobs)

    def reach(self, iv: IterVar, opened: Collection[IterVar]) -> Value:
        """How many values a variable takes while the loops that are not ``opened`` run."""
        known = self.known(iv, opened)
        split = self.splits.get(iv)
        inside = self.extent(iv)
        if known is True:
            return 1
        if split is not None:
            inside = where(self.touched(iv, opened), self._reach(split, opened), inside)
        return where(known, 1, inside)

    def _reach(self, split: Split, opened: Collection[IterVar]) -> Value:
        outer, inner = self.reach(split.outer, opened), self.reach(split.inner, opened)
        extent, width = self.extent(split.parent), self.width(split)
        size = least((outer - 1) * width + inner, extent)
        if split.tail != "overlap" or self.known(split.outer, opened) is True:
            return size
        # Which iteration is the last is not known yet: any may start early by so much.
        early = where(extent >= width, width - self.rest(split), 0)
        early = where(self.known(split.outer, opened), 0, early)
        return where(size < extent, least(size + early, extent), size)

    def known(self, iv: IterVar, opened: Collection[IterVar]) -> Any:
        """Whether a variable has one value once the loops ``opened`` are: a bool, or an array of them."""
        if iv in opened:
            return True
        single = self.extent(iv) == 1
        if single is True:
            return True
        split, fuse = self.splits.get(iv), self._fused.get(iv)
        found: Any = False
        if split is not None:
            found = both(self.known(split.outer, opened), self.known(split.inner, opened))
        elif fuse is not None:
            found = self.known(fuse.fused, opened)
        return either(single, found)

    def grain(self, iv: IterVar, opened: Collection[IterVar]) -> Value:
        """What number the first of those values is a multiple of; 0 where it is always 0."""
        if self.touched(iv, opened) is False:
            return 0
        split = self.splits.get(iv)
        if split is None or split.tail == "overlap" or split.inner in opened:
            return 1
        inner = self.grain(split.inner, opened)
        return np.gcd(self.width(split) * self.grain(split.outer, opened), inner)

    def touched(self, iv: IterVar, opened: Collection[IterVar]) -> Any:
        """Whether a loop that a variable is made of is open and runs more than once."""
        if iv in opened:
            return self.extent(iv) > 1
        split, fuse = self.splits.get(iv), self._fused.get(iv)
        if split is not None:
            return either(self.touched(split.outer, opened), self.touched(split.inner, opened))
        return False if fuse is None else self.touched(fuse.fused, opened)


__all__ = ["Frame"]
