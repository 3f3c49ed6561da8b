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
        self._widths: dict[Split, Value] = {}
        self._kinds: dict[tuple[IterVar, str], Any] = {}
        self.parents: dict[IterVar, Split | Fuse] = {}
        """The origin of each loop that is no axis."""
        self.splits: dict[IterVar, Split] = {}
        self._fused: dict[IterVar, Fuse] = {}
        for relation in stage.relations:
            if isinstance(relation, Split):
                self.parents[relation.outer] = self.parents[relation.inner] = relation
                self.splits[relation.parent] = relation
            else:
                self.parents[relation.fused] = relation
                self._fused[relation.outer] = self._fused[relation.inner] = relation
        for loop in stage.all_iter_vars:
            if loop not in self.parents:  # the only loop of a stage without axes
                self._extents.setdefault(loop, loop.extent)

    def resized(self, sizes: Mapping[IterVar, Value]) -> Frame:
        """Return the loops where other numbers of some axes are computed."""
        return Frame(self._replayed, self.stage, self._knobs, {**self.sizes, **sizes})

    @property
    def filled(self) -> Value:
        """The share of a reduction's steps that there are: the last ones of a split that does not divide are fewer."""
        share: Value = 1
        for split in self.splits.values():
            if split.parent.kind == "reduce":
                extent, product = (
                    self.extent(split.parent),
                    self.extent(split.outer) * self.extent(split.inner),
                )
                share = share * (1 if extent is product else extent / product)
        return share

    def extent(self, iv: IterVar) -> Value:
        """Return iterations of a loop."""
        known = self._extents.get(iv)
        if known is None:
            known = self._extents[iv] = self._extent(iv)
        return known

    def _extent(self, iv: IterVar) -> Value:
        relation = self.parents[iv]
        if isinstance(relation, Fuse):
            return self.extent(relation.outer) * self.extent(relation.inner)
        width = self.width(relation)
        return width if iv is relation.inner else ceil_div(self.extent(relation.parent), width)

    def width(self, split: Split) -> Value:
        """Return the distance of neighbouring iterations of the outer loop of a split: the extent of
        whole inner loops."""
        if split not in self._widths:
            extent = self.extent(split.parent)
            part = least(evaluate(self._replayed.width(split), self._knobs), extent)
            self._widths[split] = part if split.factor else ceil_div(extent, part)
        return self._widths[split]

    def rest(self, split: Split) -> Value:
        """Return the extent of the inner loop in the last iteration of the outer one."""
        extent, width = self.extent(split.parent), self.width(split)
        return extent - (ceil_div(extent, width) - 1) * width

    def whole(self, iv: IterVar) -> Value:
        """Return iterations of a loop that share code: neither peeled ones nor the rest of a split with
        a nest of its own."""
        count = self._full(iv, iv)
        first, last = self.stage.peeled.get(iv, (0, 0))
        return most(count - first - last, 1) if first + last else count

    def _full(self, iv: IterVar, leaf: IterVar) -> Value:
        """Return the same of a loop with the iterations of ``leaf``, before it was split or fused with
        others of one."""
        found, split = self.extent(iv), self.parents.get(iv)
        if isinstance(split, Fuse):
            outer, inner = split.outer, split.inner
            found = where(self.extent(inner) == 1, self._full(outer, leaf), found)
            return where(self.extent(outer) == 1, self._full(inner, leaf), found)
        if split is None:
            return found
        if split.outer is iv:
            found = where(
                self.apart(split, leaf), self.extent(split.parent) // most(self.width(split), 1), found
            )
        single = self.extent(split.inner if iv is split.outer else split.outer) == 1
        return found if single is False else where(single, self._full(split.parent, leaf), found)

    def apart(self, split: Split, leaf: IterVar) -> Any:
        """Return whether what a split leaves over, of which ``leaf`` is the outer loop, has a nest of its own."""
        peels = self.tail(split, "peel")
        if peels is False:
            return False
        before = set(self.stage.leaf_iter_vars[: self.stage.leaf("derive", leaf)])
        shared = either(self.is_kind(leaf, "parallel"), self.is_kind(leaf, "vectorized"))
        larger = both(peels, self.extent(split.parent) > self.width(split))
        return both(both(larger, negated(self.touched(split.inner, before))), negated(shared))

    def tail(self, split: Split, tail: str) -> Any:
        """Return whether a split does this with its rest: a bool, or an array of them [n]."""
        return evaluate(self._replayed.tail(split), self._knobs) == tail

    def is_kind(self, iv: IterVar, kind: str) -> Any:
        """Return whether a loop is parallel, unrolled or vectorized: a bool, or an array of them [n]."""
        if (iv, kind) not in self._kinds:
            self._kinds[iv, kind] = evaluate(self._replayed.is_kind(self.stage, iv, kind), self._knobs)
        return self._kinds[iv, kind]

    def is_written_out(self, iv: IterVar) -> Any:
        """Return whether the iterations of a loop are one piece of code: a bool, or an array of them [n]."""
        return either(self.is_kind(iv, "unrolled"), self.is_kind(iv, "vectorized"))

    def reach(self, iv: IterVar, opened: Collection[IterVar]) -> Value:
        """Return the number of values of a variable while the loops that are not ``opened`` run."""
        known = self.known(iv, opened)
        split = self.splits.get(iv)
        inside = self.extent(iv)
        if known is True:
            return 1
        if split is not None and self.touched(iv, opened) is not False:
            inside = self._reach(split, opened)
        return where(known, 1, inside)

    def _reach(self, split: Split, opened: Collection[IterVar]) -> Value:
        outer, inner = self.reach(split.outer, opened), self.reach(split.inner, opened)
        extent, width = self.extent(split.parent), self.width(split)
        size = least((outer - 1) * width + inner, extent)
        overlaps = self.tail(split, "overlap")
        if overlaps is False or self.known(split.outer, opened) is True:
            return size
        # Which iteration is the last is not known yet: any may start early by so much.
        early = where(extent >= width, width - self.rest(split), 0)
        early = where(both(overlaps, negated(self.known(split.outer, opened))), early, 0)
        return where(size < extent, least(size + early, extent), size)

    def known(self, iv: IterVar, opened: Collection[IterVar]) -> Any:
        """Return whether a variable has one value once the loops ``opened`` are: a bool, or an array of them."""
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
        """Return the number of which the first of those values is a multiple; 0 where it is always 0."""
        if self.touched(iv, opened) is False:
            return 0
        split = self.splits.get(iv)
        if split is None or split.inner in opened:
            return 1
        inner = self.grain(split.inner, opened)
        grain = np.gcd(self.width(split) * self.grain(split.outer, opened), inner)
        return where(self.tail(split, "overlap"), 1, grain)

    def touched(self, iv: IterVar, opened: Collection[IterVar]) -> Any:
        """Return whether a loop that a variable is made of is open and runs more than once."""
        if iv in opened:
            return self.extent(iv) > 1
        split, fuse = self.splits.get(iv), self._fused.get(iv)
        if split is not None:
            return either(self.touched(split.outer, opened), self.touched(split.inner, opened))
        return False if fuse is None else self.touched(fuse.fused, opened)


__all__ = ["Frame"]
