"""Which alternative computes a workload: the fastest measured one, else the one estimated fastest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.compiler.build_workers import BuildWorkers
from autotune.compiler.estimate import EstimateTask
from autotune.compiler.standing import Source, Standing
from autotune.graph.region import Workload
from autotune.passes.alternatives import Alternative, allowed
from autotune.passes.preference import Preference
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.records import ContestRow
    from autotune.database.store import Database


PROMISING = 2.0
"""The analytic model is rarely further off than this when it compares alternatives."""


DOUBT = 1.02
"""By how much an estimate must be better than that of the direct way: it is one dispatch, and as exact as a sum is."""


@dataclass(frozen=True)
class Decision:
    """The alternatives of a workload with several, fastest first (estimates: unless :data:`DOUBT` decides)."""

    workload: Workload
    standings: tuple[Standing, ...]

    @property
    def chosen(self) -> Alternative:
        """The fastest."""
        return self.standings[0].alternative

    @property
    def promising(self) -> tuple[Alternative, ...]:
        """The alternatives that are worth measuring: the direct one, and those that take at most
        :data:`PROMISING` times as long as the fastest."""
        limit = PROMISING * min(s.latency_ns for s in self.standings)
        return tuple(
            s.alternative for s in self.standings if s.latency_ns <= limit or s.alternative.steps is None
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self.standings))

    def to_json(self) -> dict[str, Any]:
        """The standings by name."""
        return {
            "workload": self.workload.key,
            "chosen": self.chosen.name,
            "alternatives": [
                {
                    "name": s.alternative.name,
                    "latency_ns": s.latency_ns,
                    "source": s.source.value,
                    "declared_error": s.alternative.error,
                    "growth": s.alternative.growth,
                }
                for s in self.standings
            ],
        }


def decide(
    workload: Workload,
    target: Target,
    database: Database | None,
    preference: Preference,
    within: float = 1.0,
) -> Decision | None:
    """The decision for a workload; None where there is only one way.

    Estimates are complete for alternatives of up to ``within`` times the time of the fastest (1: for it alone).
    """
    return decide_all([workload], target, database, preference, within=within).get(workload.key)


def decide_all(
    workloads: Iterable[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    *,
    within: float = 1.0,
    workers: BuildWorkers | None = None,
) -> dict[str, Decision]:
    """The decisions by workload key, for workloads with several alternatives; ``workers`` share the estimating."""
    forks = [(w, found) for w in workloads if _several(found := allowed(w, preference))]
    known = {
        w.key: _together(found, target, database) or _apart(found, target, database) for w, found in forks
    }
    unknown = [(w, found) for w, found in forks if not known[w.key]]
    tasks = [EstimateTask(found, target, max(within, DOUBT), within > DOUBT) for _, found in unknown]
    for (workload, _), standings in zip(unknown, (workers or BuildWorkers()).run(tasks), strict=True):
        known[workload.key] = standings
    return {w.key: Decision(w, tuple(sorted(known[w.key], key=_rank))) for w, _ in forks}


def _several(found: Sequence[Alternative]) -> bool:
    """Whether there is something to decide, or the only one allowed is not the direct way."""
    return len(found) > 1 or found[0].steps is not None


def _rank(standing: Standing) -> tuple[bool, float]:
    """The latency that counts: measured ones as they are, what was not looked at last."""
    sure = standing.alternative.steps is None or standing.source in (Source.TOGETHER, Source.APART)
    return standing.source is Source.FLOOR, standing.latency_ns * (1.0 if sure else DOUBT)


def chosen(decisions: Mapping[str, Decision]) -> dict[str, Alternative]:
    """The chosen alternatives by workload key."""
    return {key: decision.chosen for key, decision in decisions.items()}


def executed(workloads: Iterable[Workload], chosen: Mapping[str, Alternative]) -> list[Workload]:
    """What runs: the workloads, or the dispatches of what was chosen in their place, each once."""
    regions = [chosen[w.key].regions if w.key in chosen else (w,) for w in workloads]
    return list({region.key: region for found in regions for region in found}.values())


def alternative_key(alternative: Alternative, target: Target) -> str:
    """SHA-256 (hex) of everything that gives a measured alternative its meaning: regions and spaces."""
    from search_spaces.spaces import space_for

    parts = [(region.key, space_for(region, target).key) for region in alternative.regions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _together(allowed: Sequence[Alternative], target: Target, database: Database | None) -> list[Standing]:
    """The newest contest, as far as its entries are allowed, exact enough and up to date.

    What it did not have and has been measured since, dispatch by dispatch, is compared with it: the contest of
    a short job knows few alternatives. Such a sum is scaled by what the fastest of the contest took there over
    its own sum: sums have warm caches, and come from another hour of the machine.
    """
    if database is None:
        return []
    named = {a.name: a for a in allowed}
    standings, absent = list[Standing](), dict(named)
    for row in database.contest(allowed[0].workload.key, target.key):
        found = named.get(row.name)
        if found is None or not _is_current(row, found, target):
            continue
        del absent[row.name]  # also one that failed: its sum is worth nothing
        if row.latency is not None:
            standings.append(Standing(found, row.latency.min_ns, Source.TOGETHER))
    if not standings:
        return []
    fastest = min(standings, key=lambda s: s.latency_ns)
    apart = _sum(fastest.alternative, target, database)
    scale = fastest.latency_ns / apart if apart else 1.0
    others = _measured_apart(absent.values(), target, database)
    return [*standings, *(replace(s, latency_ns=scale * s.latency_ns) for s in others)]


def _is_current(row: ContestRow, alternative: Alternative, target: Target) -> bool:
    return row.key == alternative_key(alternative, target)


def _apart(allowed: Sequence[Alternative], target: Target, database: Database | None) -> list[Standing]:
    """Sums over dispatches, if all of all alternatives are known."""
    if database is None:
        return []
    known = _measured_apart(allowed, target, database)
    return known if len(known) == len(allowed) else []


def _measured_apart(
    alternatives: Iterable[Alternative], target: Target, database: Database
) -> list[Standing]:
    """Sums over dispatches, of those alternatives whose dispatches are all known."""
    sums = [(alternative, _sum(alternative, target, database)) for alternative in alternatives]
    return [Standing(alternative, ns, Source.APART) for alternative, ns in sums if ns is not None]


def _sum(alternative: Alternative, target: Target, database: Database) -> float | None:
    from autotune.database.query import Miss
    from search_spaces.spaces import space_for

    total = 0.0
    for region in alternative.regions:
        found = database.best(region.key, target.key, space_for(region, target).key)
        if isinstance(found, Miss):
            return None
        total += found.confirmed_ns or found.latency_ns
    return total


__all__ = [
    "DOUBT",
    "PROMISING",
    "Decision",
    "alternative_key",
    "chosen",
    "decide",
    "decide_all",
    "executed",
]
