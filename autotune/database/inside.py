"""The estimate of a run from several in-model measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.database.records import Reading, Run

_DOUBT = 2.0
"""So many rounds at the default's latency count beside those that were read: the least of many is the luckiest."""

ALONE_NOISE, INSIDE_NOISE = 0.1, 0.05
"""Standard deviations of the logarithm of a ratio: of readings alone, minutes apart, in processes of their own (the
same code reads 10 to 20 % apart there); and of rounds inside a model interleaved with the default, in one process."""


@dataclass(frozen=True)
class Estimate:
    """All readings of a run: ``total`` is the sum of log(ratio) over all ``rounds``; in how many ``processes``."""

    total: float = 0.0
    rounds: int = 0
    processes: int = 0

    def __add__(self, reading: Reading) -> Estimate:
        total = self.total + reading.rounds * math.log(reading.ratio)
        return Estimate(total, self.rounds + reading.rounds, self.processes + 1)

    @property
    def ratio(self) -> float:
        """The expected latency over the default's: the fewer rounds were read, the nearer to 1."""
        return math.exp(self.total / (self.rounds + _DOUBT))

    @property
    def mean(self) -> float:
        """The latency over the default's as it was read, without regard to how often."""
        return math.exp(self.total / self.rounds) if self.rounds else 1.0


def estimates(readings: Iterable[Reading]) -> dict[str, Estimate]:
    """Return the estimate of each run, by trace key."""
    found: dict[str, Estimate] = {}
    for reading in readings:
        found[reading.trace_key] = found.get(reading.trace_key, Estimate()) + reading
    return found


def latencies(readings: Sequence[Reading], run: Run) -> tuple[float, float] | None:
    """Return the latencies in ns of the default and of a run; None if the run is not among the measurements."""
    mine = [reading for reading in readings if reading.trace_key == run.trace_key]
    if not mine:
        return None
    return mine[-1].default_ns, mine[-1].default_ns * estimates(mine)[run.trace_key].ratio


__all__ = ["ALONE_NOISE", "INSIDE_NOISE", "Estimate", "estimates", "latencies"]
