"""The least peak memory of a whole model: its arena and the scratch memory of its threads.

All dispatches share both. What one of them saves counts only where it is the one that takes most, and scratch memory
that another needs anyway is free. So sites are not chosen each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.compiler.memory.saving import Footprints, together
from autotune.database.goal import FASTEST, Goal
from autotune.database.records import Footprint
from autotune.passes.memory.plan_memory import Lifetime, lower_bound, value_lifetimes
from autotune.passes.options import Option

if TYPE_CHECKING:
    from autotune.compiler.plan import Plan
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition

_LIMITS = 8
"""So many limits of scratch memory are tried."""


@dataclass(frozen=True)
class _Sized:
    """A plan, what it takes at each workload, by key, and the peak memory that follows."""

    plan: Plan
    takes: Mapping[str, Footprint]
    peak: int

    @property
    def scratch(self) -> int:
        return _scratch(self.takes.values())


def least_peak(
    parts: Partition,
    workloads: Sequence[Workload],
    goal: Goal,
    planned: Callable[[Goal], Plan],
    footprints: Footprints,
) -> Plan:
    """Return the plan of least peak memory within the goal's slowdown; the fastest one where its peak is as low.

    One limit of scratch memory after another is tried, from that of the fastest plan down.
    """

    def sized(plan: Plan) -> _Sized:
        takes = _takes(plan, workloads, footprints)
        return _Sized(plan, takes, _peak(parts, takes))

    fastest = best = sized(planned(FASTEST))
    limit = fastest.scratch
    for _ in range(_LIMITS):
        found = sized(planned(replace(goal, most_scratch=limit)))
        if found.scratch > limit:
            break
        best = min(best, found, key=lambda sized: sized.peak)
        limit = found.scratch - 1
    plan = fastest.plan.with_sites(workloads, _needed(parts, workloads, fastest, best), best.plan)
    known = footprints.of(plan.schedules.values())
    return min(fastest.plan, plan, key=lambda plan: _exact_peak(plan.apply(parts), plan, known))


def _takes(plan: Plan, workloads: Sequence[Workload], footprints: Footprints) -> dict[str, Footprint]:
    """Return the footprint of a plan at each workload, by key."""
    known = footprints.of(plan.schedules.values())
    options = {w.key: plan.options.get(w.key, Option(w)) for w in workloads}
    return {
        key: together(
            option, [known[region.key, plan.schedules[region.key].trace.key] for region in option.regions]
        )
        for key, option in options.items()
    }


def _needed(parts: Partition, workloads: Sequence[Workload], fastest: _Sized, best: _Sized) -> list[Workload]:
    """Return the workloads that must not be as in the fastest plan for the least peak; what saves least
    goes back first."""
    takes = dict(best.takes)
    needed = []
    for workload in sorted(
        workloads, key=lambda w: fastest.takes[w.key].memory_bytes - takes[w.key].memory_bytes
    ):
        back = takes | {workload.key: fastest.takes[workload.key]}
        if _peak(parts, back) <= best.peak:
            takes = back
        else:
            needed.append(workload)
    return needed


def _peak(parts: Partition, takes: Mapping[str, Footprint]) -> int:
    """Return the peak memory of a model whose dispatches take so much beside the values between them."""
    steps = [
        Lifetime(f"step {step}", takes[dispatch.workload.key].workspace_bytes, step, step)
        for step, dispatch in enumerate(parts.dispatches)
    ]
    return lower_bound([*value_lifetimes(parts), *steps]) + _scratch(takes.values())


def _exact_peak(parts: Partition, plan: Plan, footprints: Mapping[tuple[str, str], Footprint]) -> int:
    """Return the peak memory of a model whose options are in their places."""
    keys = [dispatch.workload.key for dispatch in parts.dispatches]
    takes = {key: footprints[key, plan.schedules[key].trace.key] for key in keys}
    return _peak(parts, takes)


def _scratch(takes: Iterable[Footprint]) -> int:
    return max((found.scratch_bytes for found in takes), default=0)


__all__ = ["least_peak"]
