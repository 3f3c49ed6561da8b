"""How much of a model runs tuned schedules, and why the rest does not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from autotune.compiler.choice import DEFAULT, Choice
from autotune.compiler.decision import Decision
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
    """The coverage of all dispatches, in the order they run, and what was decided among algorithms."""

    dispatches: tuple[DispatchCoverage, ...]
    decisions: tuple[Decision, ...] = ()

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
        """The one line, then a line a dispatch, then a line a decision among algorithms."""
        lines = [str(self)]
        for d in self.dispatches:
            latency = "" if d.latency_ns is None else f"  {d.latency_ns / 1e3:.1f} µs"
            why = f"  ({d.reason})" if d.reason else ""
            lines.append(f"  {d.name}  {d.kind}  {d.workload_key[:12]}  {d.source}{latency}{why}")
        several = [d for d in self.decisions if len(d.standings) > 1]
        lines += [f"  {d.workload.kind}  {d.workload.key[:12]}  {d}" for d in several]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The dispatches as a JSON list of objects."""
        return json.dumps([asdict(d) for d in self.dispatches], separators=(",", ":"))


def coverage(
    partition: Partition, choices: dict[str, Choice], decisions: Iterable[Decision] = ()
) -> CoverageReport:
    """The report of a partition, given the choice of each workload key and the decisions behind it."""
    rows = []
    for dispatch in partition.dispatches:
        workload = dispatch.workload
        choice = choices[workload.key]
        rows.append(
            DispatchCoverage(
                dispatch.name,
                workload.kind,
                workload.key,
                choice.source,
                choice.reason,
                workload.flops,
                choice.latency_ns,
                dispatch.origins,
            )
        )
    return CoverageReport(tuple(rows), tuple(decisions))


__all__ = ["CoverageReport", "DispatchCoverage", "coverage"]
