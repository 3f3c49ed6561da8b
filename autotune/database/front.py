"""Runs by what they take of everything: latency, memory, bytes of the artifact; and those that none beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autotune.database.records import Comparison, Footprint, Origin, Ratio, Reading, Run

PRECISION = "precision"
"""The site of a whole model whose options are precisions of its products."""


class FrontReading(StrEnum):
    """The measurement from which the latency of a point comes."""

    COMPARED = "compared"
    """Beside the default schedule, by a comparison inside a model."""
    INSIDE = "inside a model"
    """Beside it, by a search."""
    ALONE = "alone"
    """Without a model: counts as no faster than the default, as readings alone say little about use."""


@dataclass(frozen=True)
class FrontPoint:
    """A run of known footprint; ``ratio`` is its latency over that of the default schedule."""

    run: Run
    footprint: Footprint
    ratio: Ratio
    read: FrontReading

    @property
    def values(self) -> tuple[float, int, int]:
        """Return the values to minimise: the ratio, bytes of memory, bytes of the artifact."""
        return self.ratio.median, self.footprint.memory_bytes, self.footprint.artifact_bytes

    def dominates(self, other: FrontPoint) -> bool:
        """Return whether it is nowhere worse than the other, and somewhere better."""
        pairs = zip(self.values, other.values, strict=True)
        return self.values != other.values and all(mine <= its for mine, its in pairs)

    def to_json(self) -> dict[str, Any]:
        """Return the three figures, where the latency was read, and the schedule by its configuration."""
        return {
            "ratio": self.ratio.median,
            "interval": self.ratio.interval,
            "read": self.read.value,
            **vars(self.footprint),
            "trace_key": self.run.trace_key,
            "config": self.run.config,
        }


def points(
    runs: Iterable[Run], compared: Mapping[int, Comparison], readings: Iterable[Reading]
) -> list[FrontPoint]:
    """Return the runs of a key that worked and have a known footprint; ``compared`` has the newest row of each run.

    A run that was not read beside the default counts by its reading alone, over the default's.
    """
    from autotune.database.inside import estimates

    timed = [run for run in runs if run.latency is not None and not run.crashed]
    default = next((run for run in timed if run.origin is Origin.DEFAULT), None)
    inside = {trace: estimate.mean for trace, estimate in estimates(readings).items()}
    found = []
    for run in timed:
        row = compared.get(run.id or 0)
        if run is default:
            ratio, read = Ratio(1.0, (1.0, 1.0)), FrontReading.COMPARED
        elif row is not None and row.ratio is not None:
            ratio, read = row.ratio, FrontReading.COMPARED
        elif run.trace_key in inside:
            ratio, read = Ratio(inside[run.trace_key]), FrontReading.INSIDE
        elif default is not None:
            ratio, read = Ratio(max(1.0, run.latency_ns / default.latency_ns)), FrontReading.ALONE
        else:
            continue
        if run.footprint is not None:
            found.append(FrontPoint(run, run.footprint, ratio, read))
    return found


def front(candidates: Iterable[FrontPoint]) -> list[FrontPoint]:
    """Return the Pareto front: the points that no other dominates, the fastest first; of equal ones the
    first measured."""
    found: list[FrontPoint] = []
    for point in sorted(candidates, key=lambda point: (point.values, point.run.id or 0)):
        if not any(other.dominates(point) or other.values == point.values for other in found):
            found.append(point)
    return found


__all__ = ["PRECISION", "FrontPoint", "FrontReading", "front", "points"]
