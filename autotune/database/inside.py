"""The estimate of a run from several in-model measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.database.posterior import ROUNDS, Posterior, schedule_posterior, variance_of, variance_of_row
from autotune.database.records import Comparison, Reading, Run

ALONE_NOISE, INSIDE_NOISE = 0.1, 0.05
"""Standard deviations of the logarithm of a ratio: of readings alone, minutes apart, in processes of their own (the
same code reads 10 to 20 % apart there); and of rounds inside a model interleaved with the default, in one process."""


@dataclass(frozen=True)
class Estimate:
    """All in-model measurements of a run pooled: ``total`` is the sum of log(ratio) over the variances, ``weight``
    that of their inverses; of how many ``rounds`` in how many ``processes``."""

    total: float = 0.0
    weight: float = 0.0
    rounds: int = 0
    processes: int = 0

    def __add__(self, seen: Reading | Comparison) -> Estimate:
        if isinstance(seen, Reading):
            ratio, rounds, processes, variance = seen.ratio, seen.rounds, 1, variance_of(seen.rounds)
        elif seen.ratio is None or seen.latency is None:
            return self
        else:
            ratio, rounds, variance = seen.ratio.median, seen.latency.n, variance_of_row(seen)
            processes = max(1, round(rounds / ROUNDS))
        return Estimate(
            self.total + math.log(ratio) / variance,
            self.weight + 1 / variance,
            self.rounds + rounds,
            self.processes + processes,
        )

    @property
    def posterior(self) -> Posterior:
        """The log of the latency over the default's, that of an unmeasured schedule being 0 with its spread."""
        return schedule_posterior(self.total, self.weight)

    @property
    def ratio(self) -> float:
        """The expected latency over the default's: the fewer rounds were measured, the nearer to 1."""
        return math.exp(self.posterior.mean)

    @property
    def mean(self) -> float:
        """The latency over the default's as it was measured, without regard to how often."""
        return math.exp(self.total / self.weight) if self.weight else 1.0


def estimates(readings: Iterable[Reading], compared: Iterable[Comparison] = ()) -> dict[str, Estimate]:
    """Return the estimate of each run by its readings and by the comparisons of schedules, by trace key."""
    found: dict[str, Estimate] = {}
    for reading in readings:
        found[reading.trace_key] = found.get(reading.trace_key, Estimate()) + reading
    for row in compared:
        found[row.name] = found.get(row.name, Estimate()) + row
    return found


def latencies(readings: Sequence[Reading], run: Run) -> tuple[float, float] | None:
    """Return the latencies in ns of the default and of a run; None if the run is not among the measurements."""
    mine = [reading for reading in readings if reading.trace_key == run.trace_key]
    if not mine:
        return None
    return mine[-1].default_ns, mine[-1].default_ns * estimates(mine)[run.trace_key].ratio


__all__ = ["ALONE_NOISE", "INSIDE_NOISE", "Estimate", "estimates", "latencies"]
