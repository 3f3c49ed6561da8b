"""The estimate of a run from several in-model measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autotune.database.pooled import NOTHING, Pooled
from autotune.database.posterior import (
    ROUNDS,
    Posterior,
    Seen,
    pairs,
    scatter_of,
    schedule_posterior,
)
from autotune.database.records import Comparison, Ratio, Reading, Run

ALONE_NOISE, INSIDE_NOISE = 0.1, 0.05
"""Standard deviations of the logarithm of a ratio: of readings alone, minutes apart, in processes of their own (the
same code reads 10 to 20 % apart there); and of rounds inside a model interleaved with the default, in one process."""


@dataclass(frozen=True)
class Estimate:
    """All in-model measurements of a run pooled: of how many ``rounds`` in how many ``processes``."""

    pool: Pooled = NOTHING
    rounds: int = 0
    processes: int = 0
    seen: tuple[Seen, ...] = ()

    def __add__(self, measured: Reading | Comparison) -> Estimate:
        seen = Seen.of(measured)
        if seen is None:
            return self
        rounds, processes = _counted(measured)
        return Estimate(
            seen.pooled_with(self.pool),
            self.rounds + rounds,
            self.processes + processes,
            (*self.seen, seen),
        )

    @property
    def weight(self) -> float:
        """The inverse of the variance of what was measured; 0 of nothing."""
        return self.pool.weight

    @cached_property
    def posterior(self) -> Posterior:
        """The log of the latency over the default's, that of an unmeasured schedule being that of most candidates with
        their spread. What other work adds to all measurements beside it is not averaged out. Errors are as large as
        is usual, or as the repeated measurements say."""
        if not self.weight:
            return schedule_posterior(())
        scatter = max(1.0, scatter_of([self.pool]))
        found = schedule_posterior([replace(one, variance=scatter * one.variance) for one in self.seen])
        shared = scatter * (1 / self.weight - 1 / self.pool.ones)
        return replace(found, error=math.sqrt(found.error**2 + shared))

    @property
    def ratio(self) -> float:
        """The expected latency over the default's: the fewer rounds were measured, the nearer to 1."""
        return math.exp(self.posterior.mean)

    @property
    def mean(self) -> float:
        """The latency over the default's as it was measured, without regard to how often."""
        return math.exp(self.pool.mean)


def _counted(measured: Reading | Comparison) -> tuple[int, int]:
    """Return the rounds and the processes of a measurement."""
    if isinstance(measured, Reading):
        return measured.rounds, 1
    assert measured.latency is not None
    return measured.latency.n, max(1, round(measured.latency.n / ROUNDS))


def estimates(readings: Iterable[Reading], compared: Iterable[Comparison] = ()) -> dict[str, Estimate]:
    """Return the estimate of each run by its readings and by the comparisons of schedules, by trace key."""
    found: dict[str, Estimate] = {}
    for reading in readings:
        found[reading.trace_key] = found.get(reading.trace_key, Estimate()) + reading
    for _, row in pairs([*compared]):
        found[row.name] = found.get(row.name, Estimate()) + row
    return found


def claim_of(comparisons: Iterable[Comparison], trace: str) -> Ratio | None:
    """Return the ratio of a run by its comparisons alone, if there are any: what a search measured inside the model is
    the luck of the best of many too."""
    measured = [row for row in comparisons if row.latency is not None and row.part is None]
    own = Estimate()
    for row in measured:
        if row.name == trace:
            own += row
    looks = sum(row.ratio is not None for row in measured)
    return own.posterior.claim(looks) if own.weight else None


def latencies(readings: Sequence[Reading], run: Run) -> tuple[float, float] | None:
    """Return the latencies in ns of the default and of a run; None if the run is not among the measurements."""
    mine = [reading for reading in readings if reading.trace_key == run.trace_key]
    if not mine:
        return None
    return mine[-1].default_ns, mine[-1].default_ns * estimates(mine)[run.trace_key].ratio


__all__ = ["ALONE_NOISE", "INSIDE_NOISE", "Estimate", "claim_of", "estimates", "latencies"]
