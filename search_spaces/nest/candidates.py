"""The loops of one stage for a population: the frame of lowering with extents of all candidates at once.

Where an interval starts is known as far as a number that it is a multiple of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeAlias

from autotune.lower.frame import Frame
from autotune.lower.ir import is_thread_axis
from autotune.schedule.arithmetic import Value, both, common_divisor, either, is_one, negated, where
from autotune.schedule.knob_expression import evaluate
from autotune.schedule.relations import Split
from autotune.schedule.stage import Stage
from autotune.te.expr import IterVar
from search_spaces.nest.replay import Replayed

Knobs: TypeAlias = Mapping[str, Value]
"""The values of knobs by name."""


class Grains:
    """Starts of intervals, of which only a number is known that each is a multiple of; 0 of the number 0."""

    zero = 0

    def plus(self, a: Value, b: Value) -> Value:
        """Return the grain of a sum."""
        return common_divisor(a, b)

    def scaled(self, start: Value, factor: Value) -> Value:
        """Return the grain of a multiple."""
        return start * factor

    def moved(self, start: Value, distance: Value) -> Value:
        """Return the grain of the start plus a number."""
        return common_divisor(start, distance)

    def grain(self, start: Value) -> Value:
        """Return the grain itself."""
        return start

    def quotient(self, start: Value, divisor: Value) -> Value:
        """Return the grain of the quotient."""
        return 1 if is_one(start) else where(start % divisor == 0, start // divisor, 1)

    def remainder(self, start: Value, divisor: Value) -> Value:
        """Return the grain of the remainder."""
        return 1 if is_one(start) else where(start % divisor == 0, 0, common_divisor(start, divisor))

    def where(self, condition: Any, a: Value, b: Value) -> Value:
        """Return the grain of one of two starts for each candidate."""
        return where(condition, a, b)


class CandidateFrame(Frame[Value]):
    """Extents of a stage's loops where it computes ``sizes`` of its axes, one number or an array [n] each."""

    starts = Grains()

    def __init__(
        self,
        replayed: Replayed,
        stage: Stage,
        knobs: Knobs,
        sizes: Mapping[IterVar, Value],
        *,
        finishes: bool = False,
    ) -> None:
        super().__init__(stage, sizes, finishes=finishes)
        self.sizes = sizes
        self._replayed = replayed
        self._knobs = knobs
        self._kinds: dict[tuple[IterVar, str], Any] = {}
        self._overlaps: dict[Split, Any] = {}
        self._known: dict[IterVar, Any] = {}

    def resized(self, sizes: Mapping[IterVar, Value]) -> CandidateFrame:
        """Return the loops where other numbers of some axes are computed."""
        sizes = {**self.sizes, **sizes}
        return CandidateFrame(self._replayed, self.stage, self._knobs, sizes, finishes=self.finishes)

    def inside(self, opened: Iterable[IterVar]) -> Self:
        """Return the same loops where these and no others are open."""
        new = self.branch()
        new.opened = set(opened)
        new._known = {}
        return new

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

    def peels(self, split: Split) -> Any:
        """Return whether the rest of a split has code of its own: asked for, or for want of an overlap."""
        guarded = self.tail(split, "guard")
        return both(negated(guarded), negated(self.overlaps(split)))

    # -- what the steps say ----------------------------------------------------------------------------------

    def given(self, split: Split) -> Value:
        """Return the factor of a split, or its number of parts."""
        return evaluate(split.given, self._knobs)

    def tail(self, split: Split, tail: str) -> Any:
        """Return whether a split asks for this treatment of its rest."""
        return evaluate(self._replayed.tail(split), self._knobs) == tail

    def is_kind(self, iv: IterVar, kind: str) -> Any:
        """Return whether a loop is parallel, unrolled or vectorized."""
        if (iv, kind) not in self._kinds:
            self._kinds[iv, kind] = evaluate(self._replayed.is_kind(self.stage, iv, kind), self._knobs)
        return self._kinds[iv, kind]

    @property
    def on_threads(self) -> bool:
        """True if the loops run in a thread of a GPU."""
        stages = [self.stage]
        while stages[-1].attach_stage is not None:
            stages.append(stages[-1].attach_stage)
        return any(is_thread_axis(kind) for stage in stages for kind in stage.kinds.values())

    # -- values ----------------------------------------------------------------------------------------------

    def overlaps(self, split: Split) -> Any:
        """Return whether the last tile of a split starts early, as it is decided once its outer loop is open."""
        if split not in self._overlaps:
            self._overlaps[split] = False  # how many elements a tile has does not depend on where it starts
            last = max(self.leaves_of(split.outer))
            decided = self.inside(self.stage.leaf_iter_vars[: last + 1])
            self._overlaps[split] = Frame.overlaps(decided, split)
        return self._overlaps[split]

    def start_of(self, iv: IterVar) -> Value | None:
        """Return the grain of an open loop: its only iteration is number 0."""
        if iv not in self.opened:
            return None
        extent = self.extent(iv)
        return 1 if not isinstance(extent, int) else min(extent - 1, 1)

    def reach(self, iv: IterVar) -> tuple[Value, Value]:
        """Return the interval of a variable; where it has one value, that is known before the arithmetic is done."""
        start, size = super().reach(iv)
        return start, where(self._is_known(iv), 1, size)

    def is_decided(self, split: Split) -> Any:
        """Return whether the outer loop of a split has a value, so that its rest is dealt with."""
        return self._is_known(split.outer)

    def base(self, split: Split) -> Value | None:
        """Return nothing: a start is known no better than by its grain."""
        return None

    def _of_parts(self, split: Split) -> tuple[Value, Value]:
        """Return the interval of a loop that was split; a tile that may start early starts anywhere."""
        start, size = super()._of_parts(split)
        decided = both(self.tail(split, "overlap"), self.is_decided(split))
        if decided is False or is_one(start):
            return start, size
        early = both(decided, self.rest(split) != self.width(split))
        return where(both(early, self.overlaps(split)), 1, start), size

    def _is_known(self, iv: IterVar) -> Any:
        """Return whether a variable has one value now."""
        if iv in self.opened:
            return True
        if iv not in self._known:
            split, fuse = self.splits.get(iv), self.fuses.get(iv)
            found = self.extent(iv) == 1
            if split is not None and found is not True:
                found = either(found, both(self._is_known(split.outer), self._is_known(split.inner)))
            elif fuse is not None and found is not True:
                found = either(found, self._is_known(fuse.fused))
            self._known[iv] = found
        return self._known[iv]


__all__ = ["CandidateFrame", "Grains", "Knobs"]
