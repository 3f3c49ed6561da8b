"""Schedules of a workload that was not measured for exactly this target: found elsewhere, projected on it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

from autotune.database.distance import LATENCY, RATIO
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
    """Measured for this workload with other threads, cores or caches, on another processor, or with fewer instructions
    of the same width."""
    SHAPE = "nearest shape"
    """Measured for a workload of other sizes."""
    ANALYTIC = "analytic"
    """The analytic cost model's pick; nothing measured was of use."""


ERRORS = {Tier.STALE: 0.22, Tier.TARGET: math.sqrt(RATIO.same), Tier.SHAPE: 0.29}
"""Root mean square of the logarithm of a real ratio over the expected one, on the target of the measurement: the
distance of another one adds its variance (:data:`autotune.database.distance.RATIO`). Stale: as of another number of
threads. Of other sizes: 0.19 over the 17 candidates of results/runs that are faster than the default for one size and
recorded for another (`python -m results.bench predictions --from results/runs/avx512`); so few leave room up to the
value here (95 %)."""
LATENCY_ERRORS = {Tier.STALE: 0.40, Tier.TARGET: math.sqrt(LATENCY.same), Tier.SHAPE: 0.71}
"""The same of latencies. For other sizes the model's error for the default counts too, over the 20 dispatches of
results/transfer.md; for stale runs over 16 schedules of squeezenet."""


def listed_tiers(tiers: Iterable[Tier]) -> str:
    """Return the number of each tier, the best source first, e.g. ``40 exact, 3 analytic``."""
    count = Counter(tiers)
    return ", ".join(f"{count[tier]} {tier}" for tier in Tier if count[tier])


@dataclass(frozen=True)
class Transfer:
    """A configuration found elsewhere, as it is in this space, and what is expected of it here.

    ``ratio`` is the expected latency over that of the analytic default: the ratio measured there, times what the
    analytic model predicts of the two here. ``latency_ns`` is, for the same workload, what was measured there times
    what the model predicts of the two targets; for other sizes that ratio times what it predicts of the default.
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
        return around(self.latency_ns, self.latency_error)

    @property
    def latency_error(self) -> float:
        """The root mean square of the logarithm of a latency over the expected one."""
        return math.sqrt(LATENCY_ERRORS[self.tier] ** 2 + LATENCY.of(self.source.apart))

    @property
    def speed(self) -> str:
        """The expected speed over the analytic default's, with its interval, or that it is the default."""
        if self.ratio == SAME_CODE:
            fewest, most = (_three_digits(1e-3 * ns) for ns in self.interval_ns)
            return f"the default, {fewest} to {most} µs (there {self.hit.evidence})"
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


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _tier_of(source: Neighbour) -> Tier:
    if source.stale:
        return Tier.STALE
    return Tier.TARGET if source.distance == 0 else Tier.SHAPE


def _expected(value: float, source: Neighbour) -> Ratio:
    """Return an expected ratio with its interval."""
    error = math.sqrt(ERRORS[_tier_of(source)] ** 2 + RATIO.of(source.apart))
    return Ratio(value, around(value, error))


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
    the nearest sizes. Only what a search tried is of use for another schedule than the default. Where the default won
    there it is taken as confirmed if it is the default here too. Where nothing is expected to beat it, the default has
    the latency that is expected of a measurement of the workload on the nearest of these targets.
    """
    near = database.near(WorkloadRow.of(workload), target, space.key)
    same = [n for n in near if n.distance == 0]
    reason = ""
    searched = [n for n in near if n.runs > 1]
    groups = ([n for n in searched if n.distance == 0], [n for n in searched if n.distance > 0])
    for group in (own, *(_searched(group, database) for group in groups)):
        for source, hit in islice(group, _TRIED):
            found = _projected(space, source, hit)
            if found is not None:
                own_default = found.tier is Tier.SHAPE and found.ratio == SAME_CODE
                return (_measured_default(space, same, database) if own_default else None) or found, ""
            reason = reason or f"no gain here is expected of what was found for {source.what}"
    return _measured_default(space, same, database), reason


def _measured_default(space: Space, same: Sequence[Neighbour], database: Database) -> Transfer | None:
    """Return the analytic default, as far as its workload was measured elsewhere."""
    from cost_models import analytic

    for source in same:
        hit = database.lookup(source.key.workload, source.key.target, source.key.space)
        if not isinstance(hit, Miss):
            config = analytic.default_config(space)
            return Transfer(source, hit, config, SAME_CODE, _latency_ns(space, source, hit, config))
    return None


def _latency_ns(space: Space, source: Neighbour, hit: Hit, config: Config) -> float:
    """Return the latency that is expected here of a configuration by the best run of its workload on another target."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    assert isinstance(space.workload, Workload)  # what is looked up is a region of a graph
    there = space_for(space.workload, source.target)
    measured = carried(there, hit.best.config, analytic.default_config(there))
    if measured is None:
        measured = analytic.default_config(there)
    here_s, there_s = (float(analytic.predict(s, [c])[0]) for s, c in ((space, config), (there, measured)))
    return hit.latencies[1] * here_s / there_s


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

    def latency(ratio: float, config: Config) -> float:
        if _tier_of(source) is Tier.TARGET:
            return _latency_ns(space, source, hit, config)
        return 1e9 * ratio * default_s

    if found == default:
        return Transfer(source, hit, found, SAME_CODE, latency(1.0, found))
    if gain > EXPECTED:
        return None  # the model likes nothing better than its default
    # Of the same schedules here the model has nothing to add to what was measured.
    predicted = 1.0 if source.stale else float(analytic.predict(space, [found])[0]) / default_s
    ratio = gain * predicted
    if ratio * math.exp(source.apart.loss) > EXPECTED or (source.distance > 0 and predicted > LIKED):
        return None
    return Transfer(source, hit, found, _expected(ratio, source), latency(ratio, found))


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
