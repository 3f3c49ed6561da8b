"""What several readings inside a model say together of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.database.records import Reading

_DOUBT = 2.0
"""So many rounds at the default's latency count beside those that were read: the least of many is the luckiest."""


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
        """The latency to expect, in parts of the default's: nearer to it the less was read."""
        return math.exp(self.total / (self.rounds + _DOUBT))


def estimates(readings: Iterable[Reading]) -> dict[str, Estimate]:
    """What readings say of each run, by trace key."""
    found: dict[str, Estimate] = {}
    for reading in readings:
        found[reading.trace_key] = found.get(reading.trace_key, Estimate()) + reading
    return found


__all__ = ["Estimate", "estimates"]
