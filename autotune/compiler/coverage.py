"""The share of a model that runs tuned schedules, and the reasons for the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from autotune.compiler.plan import Plan, Ranking
from autotune.compiler.sites.decision import ShownDecision
from autotune.compiler.tiers import Tier, listed_tiers
from autotune.database.evidence import Evidence, tally
from autotune.passes.partition import Partition
from autotune.suggest import counted


@dataclass(frozen=True)
class DispatchCoverage:
    """One dispatch: its workload, how well its code is known to be the one to use and, where nothing is known, why.

    ``latency_ns`` is what was measured for a schedule of the database; ``nodes`` are the model's nodes it comes from.
    ``tier`` is where the schedule comes from.
    """

    name: str
    kind: str
    workload_key: str
    evidence: Evidence
    reason: str
    flops: int
    latency_ns: float | None
    nodes: tuple[str, ...] = ()
    tier: Tier = Tier.ANALYTIC

    @property
    def known(self) -> str:
        """Return the origin of the schedule, the evidence for it, and the reason why there is no more."""
        if self.tier in (Tier.TARGET, Tier.SHAPE):
            return f"{self.tier}: {self.reason}"  # which has what is expected
        evidence, why = str(self.evidence), f"  ({self.reason})" if self.reason else ""
        return (evidence if evidence == self.tier else f"{self.tier}: {evidence}") + why

    def to_json(self) -> dict[str, Any]:
        """Return all of it; the values of the evidence beside the others."""
        known = {key: value for key, value in vars(self).items() if key != "evidence"}
        return known | self.evidence.to_json()


@dataclass(frozen=True)
class CoverageReport:
    """The coverage of all dispatches, in the order they run, and how the options of workloads compared."""

    dispatches: tuple[DispatchCoverage, ...]
    rankings: tuple[Ranking, ...] = ()
    decisions: tuple[ShownDecision, ...] = ()
    """Those at sites of the whole model."""

    @property
    def tuned(self) -> tuple[DispatchCoverage, ...]:
        """Dispatches whose code was confirmed faster than the default inside a model, alone or with others."""
        return tuple(d for d in self.dispatches if d.evidence.state.tuned)

    @property
    def missed(self) -> tuple[DispatchCoverage, ...]:
        """Dispatches for which nothing was searched: those that ``require_hit`` refuses."""
        return tuple(d for d in self.dispatches if not d.evidence.searched)

    @property
    def flops_fraction(self) -> float:
        """Share of the arithmetic in :attr:`tuned` dispatches, 0 to 1."""
        total = sum(d.flops for d in self.dispatches)
        return sum(d.flops for d in self.tuned) / total if total else 0.0

    def __str__(self) -> str:
        """Return one line, e.g. ``12 of 43 dispatches tuned, 61 % of FLOPs; 30 default confirmed, 1 unconfirmed``;
        after one for each decision of the whole model."""
        share = f", {100 * self.flops_fraction:.0f} % of FLOPs"
        line = f"{tally((d.evidence.state for d in self.dispatches), share)}; schedules: {self.tiers}"
        return "\n".join([*map(str, self.decisions), line])

    @property
    def tiers(self) -> str:
        """Return the number of dispatches of each tier, e.g. ``40 exact, 3 analytic``."""
        return listed_tiers(d.tier for d in self.dispatches)

    def details(self) -> str:
        """Return the one line, then a line a dispatch, then a line a workload with several options; at
        last what to do."""
        lines = [str(self)]
        for d in self.dispatches:
            latency = "" if d.latency_ns is None else f"  {d.latency_ns / 1e3:.1f} µs alone"
            lines.append(f"  {d.name}  {d.kind}  {d.workload_key[:12]}{latency}  {d.known}")
        several = [r for r in self.rankings if len(r.times) > 1]
        lines += [f"  {r.workload.kind}  {r.workload.key[:12]}  {r}" for r in several]
        if self.missed:
            number = counted(len(self.missed), "dispatch")
            lines.append(f"  {number} not searched for this target: `autotune tune MODEL` does that")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the dispatches as a JSON list of objects."""
        return json.dumps([d.to_json() for d in self.dispatches], separators=(",", ":"))


def coverage(partition: Partition, plan: Plan) -> CoverageReport:
    """Return the report of a partition that the plan was applied to."""
    rows = []
    for dispatch in partition.dispatches:
        workload = dispatch.workload
        evidence, reason = plan.evidence(workload.key)
        rows.append(
            DispatchCoverage(
                dispatch.name,
                workload.kind,
                workload.key,
                evidence,
                reason,
                workload.flops * dispatch.runs,
                plan.schedules[workload.key].latency_ns,
                dispatch.origins,
                plan.schedules[workload.key].tier,
            )
        )
    return CoverageReport(tuple(rows), tuple(plan.rankings.values()))


__all__ = ["CoverageReport", "DispatchCoverage", "coverage"]
