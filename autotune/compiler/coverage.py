"""How much of a model runs tuned schedules, and why the rest does not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from autotune.compiler.plan import Plan, Ranking
from autotune.compiler.planned import DEFAULT
from autotune.passes.partition import Partition


@dataclass(frozen=True)
class DispatchCoverage:
    """One dispatch: its workload, the source of its schedule and, for a default, the reason.

    ``latency_ns`` is what was measured for a tuned schedule; ``nodes`` are the model's nodes it comes from.
    """

    name: str
    kind: str
    workload_key: str
    source: str
    reason: str
    flops: int
    latency_ns: float | None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CoverageReport:
    """The coverage of all dispatches, in the order they run, and how the options of workloads compared."""

    dispatches: tuple[DispatchCoverage, ...]
    rankings: tuple[Ranking, ...] = ()

    @property
    def covered(self) -> tuple[DispatchCoverage, ...]:
        """Dispatches whose schedule is not the default one."""
        return tuple(d for d in self.dispatches if d.source != DEFAULT)

    @property
    def missed(self) -> tuple[DispatchCoverage, ...]:
        """Dispatches with the default schedule."""
        return tuple(d for d in self.dispatches if d.source == DEFAULT)

    @property
    def flops_fraction(self) -> float:
        """Share of the arithmetic that runs tuned schedules, 0 to 1."""
        total = sum(d.flops for d in self.dispatches)
        return sum(d.flops for d in self.covered) / total if total else 0.0

    def __str__(self) -> str:
        """One line, e.g. ``41 of 43 dispatches tuned, 96 % of FLOPs``."""
        share = f"{100 * self.flops_fraction:.0f} % of FLOPs"
        return f"{len(self.covered)} of {len(self.dispatches)} dispatches tuned, {share}"

    def details(self) -> str:
        """The one line, then a line a dispatch, then a line a workload with several options."""
        lines = [str(self)]
        for d in self.dispatches:
            latency = "" if d.latency_ns is None else f"  {d.latency_ns / 1e3:.1f} µs"
            why = f"  ({d.reason})" if d.reason else ""
            lines.append(f"  {d.name}  {d.kind}  {d.workload_key[:12]}  {d.source}{latency}{why}")
        several = [r for r in self.rankings if len(r.times) > 1]
        lines += [f"  {r.workload.kind}  {r.workload.key[:12]}  {r}" for r in several]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The dispatches as a JSON list of objects."""
        return json.dumps([asdict(d) for d in self.dispatches], separators=(",", ":"))


def coverage(partition: Partition, plan: Plan) -> CoverageReport:
    """The report of a partition that the plan was applied to."""
    rows = []
    for dispatch in partition.dispatches:
        workload = dispatch.workload
        schedule = plan.schedules[workload.key]
        rows.append(
            DispatchCoverage(
                dispatch.name,
                workload.kind,
                workload.key,
                schedule.source,
                schedule.reason,
                workload.flops,
                schedule.latency_ns,
                dispatch.origins,
            )
        )
    return CoverageReport(tuple(rows), tuple(plan.rankings.values()))


__all__ = ["CoverageReport", "DispatchCoverage", "coverage"]
