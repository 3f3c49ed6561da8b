"""The distance of two targets, as what is expected to be lost by it.

Instructions and the width of vectors are walls (:func:`autotune.database.near.compatible`). Threads, cores, caches and
processors are a matter of degree: the farther they are, the less is known of a schedule that was measured there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.target import Target


@dataclass(frozen=True)
class LogVariance:
    """The variance of the log of what was measured over what was expected: of the same target, and for each octave of
    threads, and of the machine, by which the target of a measurement differs."""

    same: float
    thread: float
    machine: float

    def of(self, distance: TargetDistance) -> float:
        """Return the variance that the distance of two targets adds to that of the same one."""
        return self.thread * distance.threads + self.machine * distance.machine


RATIO = LogVariance(0.003, 0.078, 0.011)
"""Of the ratio of a schedule to the default. Threads: 24 schedules of squeezenet tuned with two threads and timed with
one (root mean square 0.22). The rest: candidates that both the pack of a Zen 5 and a recording have, 16 of such a
machine again and 143 of a Zen 4, whose first cache is smaller (results/packs, results/runs/avx2*; a test fits them)."""
LATENCY = LogVariance(0.024, 0.23, 0.17)
"""Of the latency that was measured there, times what the analytic model predicts of the two targets: of 7 defaults of
the same recordings and 18 of a Zen 4; of those schedules with one thread, less what the same target has."""


@dataclass(frozen=True)
class TargetDistance:
    """The distance of two targets in octaves: of the number of ``threads``, and of all else that is a matter of degree.

    The latter are cores and caches; another processor, of which none of another vendor was recorded, and more
    instructions than the schedule needs count as an octave each.
    """

    threads: float = 0.0
    machine: float = 0.0

    @staticmethod
    def of(asked: Target, found: Target) -> TargetDistance:
        """Return the distance of two targets between which there is no wall."""

        def octaves(name: str) -> float:
            return abs(math.log2((1 + getattr(asked, name)) / (1 + getattr(found, name))))

        sizes = sum(map(octaves, ("cores", "l1_bytes", "l2_bytes", "l3_bytes")))
        processor = (asked.device, asked.cpu) != (found.device, found.cpu)
        return TargetDistance(octaves("threads"), sizes + processor + (asked.features != found.features))

    @property
    def loss(self) -> float:
        """Return the expected loss of the log of a schedule's latency: the mean of a log-normal ratio is above its
        median by half the variance."""
        return RATIO.of(self) / 2


__all__ = ["LATENCY", "RATIO", "LogVariance", "TargetDistance"]
