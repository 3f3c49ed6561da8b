"""Decisions as steps: what a sampler chose is in the trace, and later steps refer to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.encoding import Choice, Decision
from autotune.schedule.legality import legal_loops
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage


MAX_SIZES = 8
"""Tile sizes that one decision holds; each way to factor an extent is listed to draw one."""


class SamplingPrimitives:
    """sample_perfect_tile, sample_categorical, sample_compute_location."""

    rng: random.Random
    decisions: dict[str, tuple[Any, ...]]
    decided: dict[str, Any]

    def seed(self, seed: int) -> None:
        """Start the random numbers of the sampling steps anew; schedules start with seed 0."""
        self.rng = random.Random(seed)

    def decision(self, name: str, index: int) -> Any:
        """Value ``index`` of a decision made before; raises ScheduleError."""
        if name not in self.decisions:
            raise ScheduleError(f"the decision {name!r} is used, but no step made it")
        values = self.decisions[name]
        if index == -1 and len(values) == 1:
            return values[0]
        if not 0 <= index < len(values):
            raise ScheduleError(f"the decision {name!r} has {len(values)} values, number {index} is used")
        return values[index]

    def take_decided(self) -> dict[str, Any]:
        """Arguments to record for the sampling step that just ran."""
        decided, self.decided = self.decided, {}
        return decided

    def _decide(
        self, name: str | None, values: Sequence[int | str], recorded: Any, *, single: bool = False
    ) -> list[Any]:
        if name is not None and (not name.isidentifier() or name in self.decisions):
            raise ScheduleError(f"the name of a decision must be a new identifier, got {name!r}")
        number = len(self.decisions)
        while name is None or name in self.decisions:
            name, number = f"d{number}", number + 1
        numbers = [-1] if single else range(len(values))
        made = [
            Choice(v, name, i) if isinstance(v, str) else Decision(v, name, i)
            for i, v in zip(numbers, values, strict=True)
        ]
        self.decisions[name] = tuple(made)
        self.decided = {"decision": recorded, "name": name}
        return made

    @primitive
    def sample_perfect_tile(
        self,
        loop: IterVar,
        n: int,
        max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
        name: str | None = None,
    ) -> list[Decision]:
        """Choose ``n`` tile sizes whose product is the extent of a loop.

        TVM MetaSchedule: sample_perfect_tile.

        Args:
            loop: a loop of any stage.
            n: how many sizes, 1 to 8, outermost first.
            max_innermost_factor: the largest last size.
            decision: the sizes, if they are to be these; else drawn at random.
            name: of the decision in the trace; "d0", "d1", ... by default.

        Returns:
            The sizes. Pass them to other steps as they are: the trace then refers to the decision, and
            ``trace.with_decision(name, sizes)`` changes those steps too.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(16)
            >>> outer, inner = s.sample_perfect_tile(s[C].op.axis[0], n=2, decision=[4, 4])
            >>> _ = s[C].split(s[C].op.axis[0], factor=inner)
            >>> print(s.trace.to_python())
            d0 = s.sample_perfect_tile(loop=s["C"].loop_named("i"), n=2, decision=[4, 4], name='d0')
            i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=d0[1])

        After:
            >>> trace = s.trace.with_decision("d0", [2, 8])
            >>> s, A, B, C = chain(16)
            >>> print(loops(trace.apply(s), "C"))
            for (i.outer, 0, 2) {
              for (i.inner, 0, 8) {
                C[i.outer * 8 + i.inner] = B[i.outer * 8 + i.inner] * 2f
              }
            }

        Raises:
            >>> s.sample_perfect_tile(s[C].op.axis[0], n=2, decision=[3, 4])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: sample_perfect_tile: the decision must be 2 positive sizes with the product 16, the extent of i; got [3, 4]
        """
        step = "sample_perfect_tile"
        if not 1 <= n <= MAX_SIZES:
            raise ScheduleError(f"{step}: n must be in 1..{MAX_SIZES}, got {n!r}")
        if decision is None:
            options = [t for t in _factorizations(loop.extent, n) if t[-1] <= max_innermost_factor]
            sizes = list(self.rng.choice(options or [(*[1] * (n - 1), loop.extent)]))
        else:
            sizes = list(decision)
            product = 1
            for size in sizes:
                product *= size
            if len(sizes) != n or min(sizes) < 1 or product != loop.extent:
                raise ScheduleError(
                    f"{step}: the decision must be {n} positive sizes with the product {loop.extent}, the extent of "
                    f"{loop.name}; got {sizes}"
                )
        return self._decide(name, sizes, ("list", *sizes))

    @primitive
    def sample_categorical(
        self,
        candidates: Sequence[int | str],
        probs: Sequence[float] | None = None,
        decision: int | None = None,
        name: str | None = None,
    ) -> Any:
        """Choose one of some values.

        TVM MetaSchedule: sample_categorical.

        Args:
            candidates: numbers or texts.
            probs: a weight for each; equal ones by default.
            decision: the number of the candidate, if it is to be that; else drawn at random.
            name: of the decision in the trace.

        Returns:
            The candidate; pass it to other steps as it is.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(16)
            >>> width = s.sample_categorical([2, 4, 8], decision=1)
            >>> _ = s[C].split(s[C].op.axis[0], factor=width)
            >>> print(loops(s, C))
            for (i.outer, 0, 4) {
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.outer * 4 + i.inner] * 2f
              }
            }

        After:
            >>> trace = s.trace.with_decision("d0", 2)
            >>> print(trace.to_python())
            d0 = s.sample_categorical(candidates=[2, 4, 8], decision=2, name='d0')
            i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=d0)
            >>> s, A, B, C = chain(16)
            >>> print(loops(trace.apply(s), "C"))
            for (i.outer, 0, 2) {
              for (i.inner, 0, 8) {
                C[i.outer * 8 + i.inner] = B[i.outer * 8 + i.inner] * 2f
              }
            }

        Raises:
            >>> s.sample_categorical([2, 4, 8], decision=3)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: sample_categorical: the decision must be in 0..2, got 3
        """
        step = "sample_categorical"
        values = list(candidates)
        if not values:
            raise ScheduleError(f"{step}: candidates must have at least one value")
        if probs is not None and (len(probs) != len(values) or min(probs) < 0 or sum(probs) <= 0):
            raise ScheduleError(
                f"{step}: probs must be {len(values)} weights of at least 0, got {list(probs)!r}"
            )
        if decision is None:
            decision = self.rng.choices(range(len(values)), probs)[0]
        if not 0 <= decision < len(values):
            raise ScheduleError(f"{step}: the decision must be in 0..{len(values) - 1}, got {decision!r}")
        return self._decide(name, [values[decision]], int(decision), single=True)[0]

    @primitive
    def sample_compute_location(
        self, stage: Any, decision: str | None = None, name: str | None = None
    ) -> Choice:
        """Choose where a stage is computed, and compute it there.

        TVM MetaSchedule: sample_compute_location, followed by compute_at.

        Args:
            stage: a stage or its tensor.
            decision: "root", "inline" (where that is legal) or "STAGE, LOOP"; drawn among the legal ones by default.
            name: of the decision in the trace.

        Returns:
            The place, as in ``decision``.

        Before:
            >>> from autotune.lower.examples import blur, loops
            >>> s, A, B, C = blur(8)
            >>> print(loops(s))
            for (i, 0, 10) {
              B[i] = A[i] * 2f
            }
            for (i, 0, 8) {
              C[i] = B[i] + B[i + 1] + B[i + 2]
            }

        After:
            >>> place = s.sample_compute_location(B, decision="C, i")
            >>> print(loops(s))
            for (i, 0, 8) {
              allocate B: float32[3]
              for (i_1, 0, 3) {
                B[i_1] = A[i + i_1] * 2f
              }
              C[i] = B[0] + B[1] + B[2]
            }

        Raises:
            >>> s.sample_compute_location(B, decision="C, j")
            Traceback (most recent call last):
            autotune.errors.ScheduleError: sample_compute_location: B cannot be computed at 'C, j'; its places are: root; inline; C, i
        """
        step = "sample_compute_location"
        schedule: Schedule = self  # type: ignore[assignment]  # of which this is a part
        target: Stage = schedule[stage]
        op = target.computed(step)
        options = ["root"]
        if op.reduction is None and not target.is_output:
            options.append("inline")
        options += [f"{parent.op.name}, {iv.name}" for parent, iv in legal_loops(schedule, target)]
        place = self.rng.choice(options) if decision is None else decision
        if place not in options:
            raise ScheduleError(
                f"{step}: {op.name} cannot be computed at {place!r}; its places are: {'; '.join(options)}"
            )
        if place == "root":
            target.compute_root()
        elif place == "inline":
            target.compute_inline()
        else:
            parent_name, loop = place.split(", ", 1)
            parent = schedule.stage_named(parent_name)
            target.compute_at(parent, parent.loop_named(loop))
        made: Choice = self._decide(name, [str(place)], str(place), single=True)[0]
        return made


def _factorizations(extent: int, n: int) -> list[tuple[int, ...]]:
    if n == 1:
        return [(extent,)]
    return [
        (factor, *rest)
        for factor in range(1, extent + 1)
        if extent % factor == 0
        for rest in _factorizations(extent // factor, n - 1)
    ]


__all__ = ["SamplingPrimitives"]
