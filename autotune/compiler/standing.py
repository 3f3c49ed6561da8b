"""How the ways to compute a workload fare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autotune.passes.alternatives import Alternative


class Source(StrEnum):
    """Where the latency of an alternative comes from, best source first."""

    TOGETHER = "measured"
    """Whole alternatives were timed taking turns."""
    APART = "measured apart"
    """The sum over its dispatches, each the fastest that the database has."""
    ESTIMATED = "estimated"
    """The analytic model's time of the default schedules."""
    AT_LEAST = "estimated at least"
    """In part what arithmetic and traffic need at the machine's rates: too much to look closer."""
    FLOOR = "at least, for tuning to try"
    """The same of a speculative one, which only tuning looks at: it says nothing of which is faster."""


@dataclass(frozen=True)
class Standing:
    """How an alternative fares, in ns for one execution."""

    alternative: Alternative
    latency_ns: float
    source: Source

    def __str__(self) -> str:
        text = f"{self.alternative.name}: {self.latency_ns / 1e3:.1f} µs {self.source}"
        if self.alternative.growth == 1:
            return text
        return f"{text} (inputs to {np.finfo(np.float32).max / self.alternative.growth:.0e})"


__all__ = ["Source", "Standing"]
