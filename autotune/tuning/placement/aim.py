"""The objective of a placement: that one run takes as little as possible, or that as many requests as possible are
answered in a second."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.tuning.placement.costs import PlacementCosts, Placing
from autotune.tuning.placement.stages import staged

AIMS = ("latency", "throughput")
"""Names of aims."""
_ALONE = 1e-3
"""Share of what a request takes alone, beside the time between answers: of two placements with the same bottleneck the
one with less to do is better, and a search sees where that goes down."""
_SUBMISSION = 0.05
"""The required gain of a further submission. No part knows what its cut costs: what was fused across it, and caches
that another core filled. Without this a search trades ever smaller pieces for promises of a percent: eleven parts of
inception_v1 took a third longer than five, by estimates that differed by a thousandth."""


@dataclass(frozen=True)
class PlacementAim:
    """``in_flight`` requests at a time; 0: runs follow each other, and one is to be as short as possible."""

    in_flight: int = 0

    @property
    def name(self) -> str:
        """One of :data:`AIMS`."""
        return AIMS[bool(self.in_flight)]

    def key(self, placement_key: str) -> str:
        """Return the key by which the database has what is found: a placement for throughput is none for one run."""
        if not self.in_flight:
            return placement_key
        return hashlib.sha256(f"{placement_key} {self.in_flight} in flight".encode()).hexdigest()

    def seconds(self, costs: PlacementCosts, placing: Placing) -> float:
        """Return the expected seconds of a placement: of a run, or from one result to the next."""
        if not self.in_flight:
            return costs.seconds(placing)
        found = costs.throughput(placing, self.in_flight)
        return math.inf if found is None else found.period

    def score(self, costs: PlacementCosts, placing: Placing) -> float:
        """Return the value that a search minimises."""
        if not self.in_flight:
            return costs.seconds(placing)
        found = costs.throughput(placing, self.in_flight)
        if found is None:
            return math.inf
        return found.period * (1.0 + _SUBMISSION * found.submissions) + _ALONE * found.alone

    def starts(self, costs: PlacementCosts) -> list[Placing]:
        """Return the placements with which a search begins beside all of the model on each device."""
        return [staged(costs)] if self.in_flight else []


LATENCY = PlacementAim()


def aim_of(name: str, in_flight: int | None, devices: int) -> PlacementAim:
    """Return an aim by name; by default one request more than there are ``devices`` is in flight.

    Raises UsageError for another name, and for a number of requests that does not fit.
    """
    if name not in AIMS:
        raise UsageError(f"the aim of a placement is {' or '.join(AIMS)}, got {name!r}")
    if name == "latency":
        if in_flight is not None:
            raise UsageError(
                f"requests in flight ({in_flight}) are of the aim throughput: for latency runs follow each other"
            )
        return LATENCY
    if in_flight is not None and in_flight < 2:
        raise UsageError(f"the aim throughput takes 2 requests in flight or more, got {in_flight}")
    return PlacementAim(devices + 1 if in_flight is None else in_flight)


__all__ = ["AIMS", "LATENCY", "PlacementAim", "aim_of"]
