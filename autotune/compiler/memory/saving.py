"""The option of a workload with the least memory or room in the artifact, within the allowed slowdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotune.compiler.build.build import BuildTask
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.estimate import OptionTime, TimeSource
from autotune.compiler.memory.footprint import footprint_of
from autotune.compiler.planned import Planned
from autotune.database.goal import Goal, Saving
from autotune.database.records import SAME_CODE, Footprint, Ratio
from autotune.graph.region import Workload
from autotune.passes.memory.plan_memory import Lifetime, plan_memory, value_lifetimes
from autotune.passes.options import Option
from autotune.target import Target

Scheduling: TypeAlias = Callable[[Workload, Goal], Planned]


@dataclass(frozen=True)
class _SlowerOption:
    """An option within the allowed slowdown, and its schedules for what is left of that."""

    time: OptionTime
    slowdown: Ratio
    schedules: tuple[Planned, ...]


def smallest_options(
    times: Mapping[str, Sequence[OptionTime]],
    goal: Goal,
    scheduled: Scheduling,
    footprints: Footprints,
) -> dict[str, tuple[OptionTime, Saving]]:
    """Return for each workload, by its key, the option to use instead of the first of ``times``, and its saving; those
    whose first option is the smallest are left out.

    Options that were never compared count by their estimates, but for speculative ones.
    """
    choices = {key: _choices(found, goal, scheduled) for key, found in times.items()}
    several = {key: found for key, found in choices.items() if len(found) > 1}
    planned = [planned for found in several.values() for choice in found for planned in choice.schedules]
    known = footprints.of(planned)
    made = {key: _smallest(found, known, goal) for key, found in several.items()}
    return {key: found for key, found in made.items() if found is not None}


def _choices(times: Sequence[OptionTime], goal: Goal, scheduled: Scheduling) -> list[_SlowerOption]:
    """Return the options that may be used, the fastest first."""
    found = []
    for number, time in enumerate(times):
        slowdown = _slowdown(time, times[0])
        known = time.source is TimeSource.MEASURED or (
            time.source is TimeSource.ESTIMATED and not time.option.speculative
        )
        if number == 0 or (known and slowdown.median <= goal.max_slowdown):
            left = goal.after(slowdown.median)
            schedules = tuple(scheduled(region, left) for region in time.option.regions)
            found.append(_SlowerOption(time, slowdown, schedules))
    return found


def _slowdown(time: OptionTime, fastest: OptionTime) -> Ratio:
    """Return an option's latency over that of the fastest; both were compared with one and the same, or estimated."""
    if time is fastest:
        return SAME_CODE
    if time.source is TimeSource.MEASURED:
        return (time.ratio or SAME_CODE).over(fastest.ratio or SAME_CODE)
    return Ratio(time.latency_ns / fastest.latency_ns)


class Footprints:
    """The footprints of schedules; where the database does not know one, the code is made once, by build workers."""

    def __init__(self, target: Target, workers: BuildWorkers) -> None:
        self._target = target
        self._workers = workers
        self._made: dict[tuple[str, str], Footprint] = {}

    def of(self, schedules: Iterable[Planned]) -> Mapping[tuple[str, str], Footprint]:
        """Return the footprints by workload and trace, those of ``schedules`` among them."""
        by_key = {(planned.workload.key, planned.trace.key): planned for planned in schedules}
        self._made |= {key: p.footprint for key, p in by_key.items() if p.footprint is not None}
        missing = {key: planned for key, planned in by_key.items() if key not in self._made}
        codes = self._workers.run([BuildTask(planned, self._target) for planned in missing.values()])
        for (key, planned), code in zip(missing.items(), codes, strict=True):
            constants = planned.workload.region.constant_inputs
            self._made[key] = footprint_of(code, constants, self._target.threads)
        return self._made


def _smallest(
    choices: Sequence[_SlowerOption], footprints: Mapping[tuple[str, str], Footprint], goal: Goal
) -> tuple[OptionTime, Saving] | None:
    """Return the choice that takes least of what is to be small; None if that is the fastest."""
    takes = [
        together(c.time.option, [footprints[p.workload.key, p.trace.key] for p in c.schedules])
        for c in choices
    ]
    order = sorted(range(len(choices)), key=lambda n: goal.order(takes[n], choices[n].slowdown.median))
    best = order[0]
    if not goal.better(takes[best], takes[0]):
        return None
    return choices[best].time, Saving.by(goal, takes[best], takes[0], choices[best].slowdown)


def together(option: Option, footprints: Sequence[Footprint]) -> Footprint:
    """Return the footprint of all steps of an option: the most memory at once, values between the steps among it."""
    if option.steps is None:
        return footprints[0]
    steps = [
        Lifetime(f"step {number}", found.workspace_bytes, number, number)
        for number, found in enumerate(footprints)
    ]
    arena = plan_memory([*value_lifetimes(option.steps), *steps]).arena_bytes
    scratch = max(found.scratch_bytes for found in footprints)
    return Footprint(arena + scratch, sum(found.artifact_bytes for found in footprints), scratch)


__all__ = ["Footprints", "smallest_options", "together"]
