"""What a model is compiled to, and why: one option for each workload, and one schedule for each that results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.compiler.build_workers import BuildWorkers
from autotune.compiler.estimate import EstimateTask, OptionTime, TimeSource
from autotune.compiler.planned import Planned, schedule_for
from autotune.database.evidence import Evidence, State
from autotune.graph.region import Workload
from autotune.passes.options import Option, allowed
from autotune.passes.partition import Partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.records import Comparison
    from autotune.database.store import Database

OPTION = "option"
"""The kind of site by which comparisons of the options of a workload are stored."""

DOUBT = 1.02
"""By how much an estimate must be better than that of the plain way: it has the fewest steps, and is exact."""


@dataclass(frozen=True)
class Ranking:
    """The options of a workload with several, the one that is used first."""

    workload: Workload
    times: tuple[OptionTime, ...]

    @property
    def chosen(self) -> Option:
        """The one that is used."""
        return self.times[0].option

    @property
    def promising(self) -> tuple[Option, ...]:
        """The options that are worth measuring: the plain one, and those whose estimate says so."""
        least = min(time.latency_ns for time in self.times)
        return tuple(
            time.option
            for time in self.times
            if time.option.plain or time.latency_ns <= time.option.promising * least
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self.times))

    def to_json(self) -> dict[str, Any]:
        """The options by name."""
        return {
            "workload": self.workload.key,
            "chosen": self.chosen.name,
            "options": [
                {
                    "name": time.option.name,
                    "latency_ns": time.latency_ns,
                    "source": time.source.value,
                    "gain": None if time.ratio is None else time.ratio.to_json(),
                    "declared_error": time.option.error,
                    "growth": time.option.growth,
                }
                for time in self.times
            ],
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """``rankings`` of the workloads with several options, and ``schedules`` of all that result, by workload key."""

    rankings: Mapping[str, Ranking]
    schedules: Mapping[str, Planned]

    @property
    def options(self) -> dict[str, Option]:
        """The option of each workload that has several, by its key."""
        return {key: ranking.chosen for key, ranking in self.rankings.items()}

    def evidence(self, key: str) -> tuple[Evidence, str]:
        """The evidence for the code that a resulting workload runs, and a reason in words."""
        planned = self.schedules[key]
        found = with_options(key, planned.evidence, self.rankings)
        reason = planned.reason if found == planned.evidence else f"as an algorithm; {planned.evidence}"
        return found, reason

    def apply(self, parts: Partition) -> Partition:
        """The model's dispatches with the options in their places."""
        return substitute(parts, self.options)


def with_options(key: str, evidence: Evidence, rankings: Mapping[str, Ranking]) -> Evidence:
    """The evidence of a workload's schedule, or of its option if that was confirmed faster."""
    if evidence.state.tuned:
        return evidence
    for ranking in rankings.values():
        ratio = ranking.times[0].ratio
        if ratio is not None and ratio.changed and any(r.key == key for r in ranking.chosen.regions):
            return replace(evidence, state=State.TUNED, ratio=ratio)
    return evidence


def plan_of(
    workloads: Sequence[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    schedules: Mapping[str, Trace] | None = None,
    workers: BuildWorkers | None = None,
) -> Plan:
    """The plan of a model with these workloads: what is compiled, shown, tuned and reported is this one.

    ``schedules`` are a caller's own, by workload key; ``workers`` share the estimating.
    """
    rankings = rank(workloads, target, database, preference, workers=workers)
    regions = (rankings[w.key].chosen.regions if w.key in rankings else (w,) for w in workloads)
    resulting = {region.key: region for found in regions for region in found}
    return Plan(
        rankings,
        {key: schedule_for(region, target, database, schedules or {}) for key, region in resulting.items()},
    )


def rank(
    workloads: Iterable[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    *,
    within: float = 1.0,
    workers: BuildWorkers | None = None,
) -> dict[str, Ranking]:
    """The options of workloads with several, by workload key: by their newest comparison, else by estimates.

    Estimates are complete for options of up to ``within`` times the time of the fastest (1: for it alone, and
    without speculative ones).
    """
    times, tasks = dict[Workload, list[OptionTime]](), dict[Workload, EstimateTask]()
    for workload in workloads:
        rows = [] if database is None else database.comparison(workload.key, target.key, OPTION)
        options = allowed(workload, preference, speculative=within > 1 or bool(rows))
        if preference.algorithm is None:
            options = [option for option in options if option.suits(target)]
        if len(options) == 1 and options[0].steps is None:
            continue
        times[workload], failed = _compared(options, rows, target)
        if not times[workload]:
            left = [option for option in options if option not in failed] or options
            tasks[workload] = EstimateTask(tuple(left), target, max(within, DOUBT))
    results = (workers or BuildWorkers()).run(list(tasks.values()))
    times |= {w: sorted(found, key=_rank) for w, found in zip(tasks, results, strict=True)}
    return {workload.key: Ranking(workload, tuple(found)) for workload, found in times.items()}


def _compared(
    options: Sequence[Option], rows: Sequence[Comparison], target: Target
) -> tuple[list[OptionTime], list[Option]]:
    """What a comparison says of options as they are today, the winner first; and those that failed."""
    named = {option.name: option for option in options}
    found = [(row, named[row.name]) for row in rows if row.name in named]
    found = [(row, option) for row, option in found if row.key == option_key(option, target)]
    timed = [(row, row.latency.median_ns, option) for row, option in found if row.latency is not None]
    order = sorted(timed, key=lambda entry: (not entry[0].won, entry[1]))
    times = [OptionTime(option, ns, TimeSource.MEASURED, row.ratio) for row, ns, option in order]
    return times, [option for row, option in found if row.latency is None]


def _rank(time: OptionTime) -> tuple[bool, float]:
    """Where an estimate puts an option: none that is speculative is used by its estimate, and of two that take the
    same time the more exact one is."""
    penalty = 1.0 if time.option.plain else DOUBT + time.option.error
    return time.option.speculative, time.latency_ns * penalty


def option_key(option: Option, target: Target) -> str:
    """SHA-256 (hex) of everything that gives a measured option its meaning: regions and spaces."""
    from search_spaces.spaces import space_for

    parts = [(region.key, space_for(region, target).key) for region in option.regions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


__all__ = ["DOUBT", "OPTION", "Plan", "Ranking", "option_key", "plan_of", "rank", "with_options"]
