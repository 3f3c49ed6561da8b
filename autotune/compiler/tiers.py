"""Schedules of a workload that was not measured for exactly this target: found elsewhere, projected on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

from autotune.database.query import Hit, Miss
from autotune.database.records import SAME_CODE, Ratio, WorkloadRow
from autotune.graph.region import Workload
from autotune.schedule.knob import Config, Value
from autotune.target import Target
from cost_models.interval import around

if TYPE_CHECKING:
    from autotune.database.near import Neighbour
    from autotune.database.store import Database
    from search_spaces.space import Space

EXPECTED = 0.95
"""A transferred schedule is used if it is expected to take no more than this of what the analytic default takes."""
LIKED = 1.2
"""The limit of a schedule found for another size, over the default's time by the analytic model: of 1,037 candidates
recorded for two sizes (results/predictions-recorded.md) expectations of those that it likes as well are off by 0.11,
those of others by 0.47, and these take 1.35 of the default's time."""
_TRIED = 2
"""So many neighbours are looked at closer, of the same workload and of other sizes each."""
_KNOWN_KNOBS = 0.5
"""A configuration that names a smaller share of a space's knobs says nothing there."""


class Tier(StrEnum):
    """The source of a schedule, the best source first."""

    GIVEN = "given"
    """By the caller."""
    LOCKED = "locked"
    """By a lock file."""
    EXACT = "exact"
    """Measured for this workload, target and search space."""
    STALE = "stale"
    """Measured for this workload, target and search space with other code than is generated now."""
    TARGET = "compatible target"
    """Measured for this workload with other threads, cores, similar caches or fewer instructions of the same width."""
    SHAPE = "nearest shape"
    """Measured for a workload of other sizes."""
    ANALYTIC = "analytic"
    """The analytic cost model's pick; nothing measured was of use."""


ERRORS = {Tier.STALE: 0.22, Tier.TARGET: 0.22, Tier.SHAPE: 0.29}
"""Root mean square of the logarithm of a real ratio over the expected one. Of the same workload: over 24 schedules of a
model tuned with two threads, timed beside the default with one (without bias; squeezenet on a Zen 4). Of other sizes:
0.19 over the 17 candidates of results/runs that are faster than the default for one size and recorded for another
(`python -m results.bench predictions --from results/runs/avx512`); so few leave room up to the value here (95 %)."""
LATENCY_ERRORS = {Tier.STALE: 0.40, Tier.TARGET: 0.40, Tier.SHAPE: 0.71}
"""The same of latencies, in which the model's error for the default counts too: over 16 of those 24 schedules, and for
other sizes over the 20 dispatches of results/transfer.md. Stale runs count as of another target."""


def listed_tiers(tiers: Iterable[Tier]) -> str:
    """Return the number of each tier, the best source first, e.g. ``40 exact, 3 analytic``."""
    count = Counter(tiers)
    return ", ".join(f"{count[tier]} {tier}" for tier in Tier if count[tier])


@dataclass(frozen=True)
class Transfer:
    """A configuration found elsewhere, as it is in this space, and what is expected of it here.

    ``ratio`` is the expected latency over that of the analytic default: the ratio measured there, times what the
    analytic model predicts of the two here. ``latency_ns`` is that ratio times what it predicts of the default.
    """

    source: Neighbour
    hit: Hit
    config: Mapping[str, Value]
    ratio: Ratio
    latency_ns: float

    @property
    def tier(self) -> Tier:
        """Return the tier of the neighbour."""
        return _tier_of(self.source)

    @property
    def interval_ns(self) -> tuple[float, float]:
        """Of the expected latency: 95 %."""
        return around(self.latency_ns, LATENCY_ERRORS[self.tier])

    @property
    def speed(self) -> str:
        """The expected speed over the analytic default's, with its interval, or that it is the default."""
        if self.ratio == SAME_CODE:
            return f"the default (there {self.hit.evidence})"
        low, high = self.ratio.interval or (self.ratio.median, self.ratio.median)
        return f"expected {1 / self.ratio.median:.2f}× ({1 / high:.2f}× to {1 / low:.2f}×)"

    def __str__(self) -> str:
        known = "" if self.ratio == SAME_CODE else f"; there {self.hit.evidence}"
        return f"{self.speed}{known}; {self.source.what}"

    def to_json(self) -> dict[str, Any]:
        """Return its origin, as plain values."""
        return {
            "expected_ns": self.latency_ns,
            "expected_interval_ns": self.interval_ns,
            "expected_ratio": self.ratio.median,
            "expected_ratio_interval": self.ratio.interval,
            "workload": self.source.key.workload,
            "target": vars(self.source.target),
            "differences": [vars(difference) for difference in self.source.differences],
            "run": self.hit.best.id,
            "runs": self.hit.runs,
            "evidence": self.hit.evidence.to_json(),
        }


def _tier_of(source: Neighbour) -> Tier:
    if source.stale:
        return Tier.STALE
    return Tier.TARGET if source.distance == 0 else Tier.SHAPE


def expected(value: float, tier: Tier) -> Ratio:
    """Return an expected ratio with its interval."""
    return Ratio(value, around(value, ERRORS[tier]))


def transferred(
    workload: Workload,
    target: Target,
    space: Space,
    database: Database,
    own: Sequence[tuple[Neighbour, Hit]] = (),
) -> tuple[Transfer | None, str]:
    """Return a schedule from elsewhere that is expected to beat the analytic default here, and why not if there is
    none.

    What is known of the workload's ``own`` schedules with other code comes first, then it on compatible targets, then
    the nearest sizes. Only what a search tried is of use:
    the default, where nothing else was measured beside it, says nothing. Where the default won there it is taken as
    confirmed if it is the default here too.
    """
    near = [n for n in database.near(WorkloadRow.of(workload), target, space.key) if n.runs > 1]
    reason = ""
    groups = ([n for n in near if n.distance == 0], [n for n in near if n.distance > 0])
    for group in (own, *(_searched(group, database) for group in groups)):
        for source, hit in islice(group, _TRIED):
            found = _projected(space, source, hit)
            if found is not None:
                return found, ""
            reason = reason or f"no gain here is expected of what was found for {source.what}"
    return None, reason


def _searched(near: Iterable[Neighbour], database: Database) -> Iterator[tuple[Neighbour, Hit]]:
    """Yield those that were searched, with what was found there."""
    for source in near:
        hit = database.lookup(source.key.workload, source.key.target, source.key.space)
        if not isinstance(hit, Miss) and hit.evidence.searched:
            yield source, hit


def carried(space: Space, config: Config, otherwise: Config) -> dict[str, Value] | None:
    """Return a configuration of another space in this one, knobs that the other lacks as in ``otherwise``; None
    where it names too few of this one's to say anything."""
    from search_spaces.projection import projected

    if len(config.keys() & {*space.names}) < _KNOWN_KNOBS * len(space.names):
        return None
    return projected(space, config, otherwise)


def _projected(space: Space, source: Neighbour, hit: Hit) -> Transfer | None:
    """Return the best configuration of a neighbour in this space; None where it is not expected to be of use."""
    from cost_models import analytic

    default = analytic.default_config(space)
    found = carried(space, hit.best.config, default)
    if found is None:
        return None
    default_ns, best_ns = hit.latencies
    gain = 1.0 if default_ns is None else best_ns / default_ns
    default_s = analytic.default_seconds(space)
    if found == default:
        return Transfer(source, hit, found, SAME_CODE, 1e9 * default_s)
    if gain > EXPECTED:
        return None  # the model likes nothing better than its default
    # Of the same schedules here the model has nothing to add to what was measured.
    predicted = 1.0 if source.stale else float(analytic.predict(space, [found])[0]) / default_s
    ratio = gain * predicted
    if ratio > EXPECTED or (source.distance > 0 and predicted > LIKED):
        return None
    return Transfer(source, hit, found, expected(ratio, _tier_of(source)), 1e9 * ratio * default_s)


__all__ = [
    "ERRORS",
    "EXPECTED",
    "LATENCY_ERRORS",
    "Tier",
    "Transfer",
    "carried",
    "listed_tiers",
    "transferred",
]
