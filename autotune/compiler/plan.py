"""The plan of a model and its reasons: one option for each workload, and one schedule for each that results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, overload

from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.estimate import EstimateTask, OptionTime, TimeSource
from autotune.compiler.planned import Planned, schedule_for
from autotune.compiler.shared import SharedWork
from autotune.database.evidence import Evidence, State
from autotune.database.goal import Goal, Objective, Saving
from autotune.database.posterior import Standing, Standings, standings
from autotune.database.query import Hit
from autotune.graph.region import Workload
from autotune.passes.options import Option, allowed
from autotune.passes.partition import Partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.compiler.memory.saving import Footprints
    from autotune.database.records import Comparison
    from autotune.database.store import Database

OPTION = "option"
"""The kind of site by which comparisons of the options of a workload are stored."""

DOUBT = 1.02
"""By how much an estimate must be better than that of the plain way: it has the fewest steps, and is exact."""


@dataclass(frozen=True)
class Ranking:
    """The options of a workload with several, the one that is used first; ``saving`` says why, if it is not for its
    latency."""

    workload: Workload
    times: Sequence[OptionTime]
    saving: Saving | None = None

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

    def left_of(self, goal: Goal) -> Goal:
        """Return what the schedules of the one that is used may cost yet."""
        return goal if self.saving is None else goal.after(self.saving.ratio.median)

    def __str__(self) -> str:
        why = "" if self.saving is None else f"; smaller: {self.saving}"
        return ", ".join(map(str, self.times)) + why

    def to_json(self) -> dict[str, Any]:
        """Return the options by name."""
        return {
            "workload": self.workload.key,
            "chosen": self.chosen.name,
            "saving": None if self.saving is None else self.saving.to_json(),
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
    """``rankings`` of the workloads with several options, and ``schedules`` of all that result, by workload key;
    ``goals`` are those that the schedules were looked up for."""

    rankings: Mapping[str, Ranking]
    schedules: Mapping[str, Planned]
    goals: Mapping[str, Goal]

    @property
    def growth(self) -> float:
        """The most by which an algorithm that is used may enlarge what it computes: :attr:`Option.growth`."""
        return max((option.growth for option in self.options.values()), default=1.0)

    @property
    def options(self) -> dict[str, Option]:
        """The option of each workload that has several, by its key."""
        return {key: ranking.chosen for key, ranking in self.rankings.items()}

    def evidence(self, key: str) -> tuple[Evidence, str]:
        """Return the evidence for the code that a resulting workload runs, and a reason in words."""
        planned = self.schedules[key]
        found = with_options(key, planned.evidence, self.rankings)
        reason = planned.reason if found == planned.evidence else f"as an algorithm; {planned.evidence}"
        return found, reason

    def with_sites(self, workloads: Sequence[Workload], taken: Sequence[Workload], other: Plan) -> Plan:
        """Return this plan of ``workloads``, with those ``taken`` as another plan has them; what both need
        is as there."""
        rankings, schedules, goals = dict[str, Ranking](), dict[str, Planned](), dict[str, Goal]()
        for workload in (*(w for w in workloads if w not in taken), *taken):
            source = other if workload in taken else self
            if workload.key in source.rankings:
                rankings[workload.key] = source.rankings[workload.key]
            for region in source.regions(workload):
                schedules[region.key] = source.schedules[region.key]
                goals[region.key] = source.goals[region.key]
        return Plan(rankings, schedules, goals)

    def regions(self, workload: Workload) -> tuple[Workload, ...]:
        """Return the workloads of the dispatches that compute one."""
        return regions_of(workload, self.rankings)

    def apply(self, parts: Partition) -> Partition:
        """Return the model's dispatches with the options in their places."""
        return substitute(parts, self.options)


def regions_of(workload: Workload, rankings: Mapping[str, Ranking]) -> tuple[Workload, ...]:
    """Return the workloads of the dispatches that compute one by its chosen option."""
    return rankings[workload.key].chosen.regions if workload.key in rankings else (workload,)


def with_options(key: str, evidence: Evidence, rankings: Mapping[str, Ranking]) -> Evidence:
    """Return the evidence of a workload's schedule, or of its option if that was confirmed faster, or is used for
    what it saves."""
    if evidence.state.tuned or evidence.saving is not None:
        return evidence
    for ranking in rankings.values():
        ratio = ranking.times[0].ratio
        if all(region.key != key for region in ranking.chosen.regions):
            continue
        if ranking.saving is not None:
            return Evidence.of_saving(ranking.saving, evidence.trials, evidence.crashed)
        if ratio is not None and ratio.changed:
            return replace(evidence, state=State.TUNED, ratio=ratio)
    return evidence


def plan_of(
    workloads: Sequence[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    schedules: Mapping[str, Trace] | None = None,
    workers: BuildWorkers | None = None,
    parts: Partition | None = None,
    *,
    stale: Collection[int] = (),
) -> Plan:
    """Return the plan of a model with these workloads: what is compiled, shown, tuned and reported is this one.

    ``schedules`` are a caller's own, by workload key; ``workers`` share the estimating, and what is in their shared
    work is not done again. Where memory is to be small it is that of the model with these ``parts``, and without them
    that of each workload for itself. Runs whose numbers are
    ``stale`` were measured with other code (:mod:`autotune.compiler.stale`).
    """
    workers, goal = workers or BuildWorkers(), preference.goal
    footprints = None if goal.is_latency else _footprints(target, workers)

    def planned(goal: Goal) -> Plan:
        wanted = replace(preference, goal=goal)
        rankings = workers.shared.rankings(
            workloads,
            target,
            wanted,
            lambda new: rank(new, target, database, wanted, workers=workers, footprints=footprints),
        )
        return _scheduled(workloads, rankings, target, database, goal, schedules or {}, stale, workers.shared)

    if parts is None or footprints is None or goal.objective is not Objective.MEMORY:
        return planned(goal)
    from autotune.compiler.memory.peak import least_peak

    return least_peak(parts, workloads, goal, planned, footprints)


def _scheduled(
    workloads: Sequence[Workload],
    rankings: Mapping[str, Ranking],
    target: Target,
    database: Database | None,
    wanted: Goal,
    schedules: Mapping[str, Trace],
    stale: Collection[int],
    shared: SharedWork,
) -> Plan:
    """Return the plan with these options, and schedules for what they have left of the allowed slowdown."""
    resulting, goals = dict[str, Workload](), dict[str, Goal]()
    for workload in workloads:
        ranking = rankings.get(workload.key)
        goal = wanted if ranking is None else ranking.left_of(wanted)
        for region in regions_of(workload, rankings):
            resulting[region.key] = region
            goals[region.key] = min(goal, goals.get(region.key, goal), key=attrgetter("max_slowdown"))

    def made(region: Workload) -> Planned:
        look_up = partial(schedule_for, region, target, database, schedules, goals[region.key], stale)
        if region.key in schedules:
            return look_up()
        return shared.schedule(region, target, goals[region.key], stale, look_up)

    planned = {key: made(region) for key, region in resulting.items()}
    return Plan({key: _as_known(ranking, planned) for key, ranking in rankings.items()}, planned, goals)


def _as_known(ranking: Ranking, planned: Mapping[str, Planned]) -> Ranking:
    """Return a ranking whose comparison claims nothing any more where a dispatch of its winner was compared with other
    code: its schedule is stale, or its default was measured again since. The order stays, as what is expected."""
    first = ranking.times[0]
    if first.source is not TimeSource.MEASURED:
        return ranking
    used = [planned[region.key] for region in first.option.regions if region.key in planned]
    if not any(one.stale or _default_since(one, first.compared) for one in used):
        return ranking
    times = tuple(
        replace(time, source=TimeSource.STALE, ratio=None) if time.source is TimeSource.MEASURED else time
        for time in ranking.times
    )
    return replace(ranking, times=times)


def _default_since(planned: Planned, compared: float) -> bool:
    """Return whether the default of a workload was measured for the first time after a comparison."""
    default = planned.found.default if isinstance(planned.found, Hit) else None
    return default is not None and default.created > compared


def rank(
    workloads: Iterable[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    *,
    within: float = 1.0,
    workers: BuildWorkers | None = None,
    footprints: Footprints | None = None,
) -> dict[str, Ranking]:
    """Return the options of workloads with several, by workload key: by all of their comparisons, else by estimates.

    Estimates are complete for options of up to ``within`` times the time of the fastest (1: for it alone, and
    without speculative ones). With another goal than latency, the smallest of those within its slowdown comes first.
    """
    goal, workers = preference.goal, workers or BuildWorkers()
    near = DOUBT if goal.is_latency else max(DOUBT, goal.max_slowdown)
    times, tasks = dict[Workload, Sequence[OptionTime]](), dict[Workload, EstimateTask]()
    single = list[EstimateTask]()
    several = list(dict.fromkeys(workloads))
    keys = [workload.key for workload in several]
    history = {} if database is None else database.comparison_histories(keys, target.key, OPTION)
    known = standings(history)
    for workload in several:
        compared = known.get(workload.key, Standings())
        speculative = within > 1 or workload.key in history
        options = partial(_suited, workload, target, preference, speculative=speculative)
        winner = _winner(options, compared, target)
        if winner is not None:
            times[workload] = CompareLater(winner, partial(_all_compared, options, compared, target))
            continue
        everything = options()
        if len(everything) == 1 and everything[0].steps is None:
            if database is None and not target.group_items:  # the workers share in choosing what it will use
                single.append(EstimateTask((everything[0],), target, 1.0))
            continue
        times[workload], failed = _compared(everything, compared, target)
        if not times[workload]:
            left = [option for option in everything if option not in failed] or everything
            tasks[workload] = EstimateTask(tuple(left), target, max(within, near))
    results = workers.run([*tasks.values(), *single])
    times |= {w: sorted(found, key=_rank) for w, found in zip(tasks, results, strict=False)}
    ranked = {workload.key: Ranking(workload, found) for workload, found in times.items()}
    if goal.is_latency:
        return ranked
    return _for_goal(ranked, goal, footprints or _footprints(target, workers), target, database)


class CompareLater(Sequence[OptionTime]):
    """The options of a comparison, the winner first: the others are put together when somebody looks at them."""

    def __init__(self, winner: OptionTime, everything: Callable[[], Sequence[OptionTime]]) -> None:
        self._winner = winner
        self._everything = everything

    @cached_property
    def _times(self) -> tuple[OptionTime, ...]:
        return (self._winner, *self._everything()[1:])

    def __len__(self) -> int:
        return len(self._times)

    @overload
    def __getitem__(self, index: int) -> OptionTime: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[OptionTime]: ...

    def __getitem__(self, index: int | slice) -> OptionTime | Sequence[OptionTime]:
        return self._winner if index == 0 else self._times[index]


class _Options(Protocol):
    """The options of a workload, or those with some names."""

    def __call__(self, *, names: Collection[str] | None = None) -> list[Option]: ...


def _winner(options: _Options, compared: Standings, target: Target) -> OptionTime | None:
    """Return the option that is used by all comparisons, if it is today as it was then and there are others beside
    it."""
    first = Standings(compared.order[:1])
    times, _ = _compared(options(names={one.name for one in first.order}), first, target)
    if not times:
        return None
    others = [*(one.name for one in compared.order[1:]), *(row.name for row in compared.failed)]
    several = times[0].option.steps is not None or any(
        option.steps is not None for name in others for option in options(names={name})
    )
    return times[0] if several else None


def _all_compared(options: _Options, compared: Standings, target: Target) -> list[OptionTime]:
    """Return all options that were compared, the one that is used first."""
    names = {*(one.name for one in compared.order), *(row.name for row in compared.failed)}
    return _compared(options(names=names), compared, target)[0]


def _suited(
    workload: Workload,
    target: Target,
    preference: Preference,
    *,
    speculative: bool,
    names: Collection[str] | None = None,
) -> list[Option]:
    """Return the options that may be used and are worth a try on the target; an algorithm that is asked for is."""
    from search_spaces.device.spaces import runs_groups

    options = allowed(workload, preference, speculative=speculative, names=names)
    if runs_groups(target) and preference.algorithm is None:
        options = [one for one in options if one.plain][:1]  # nothing estimates the others
    return [one for one in options if preference.algorithm is not None or one.suits(target)]


def _footprints(target: Target, workers: BuildWorkers) -> Footprints:
    from autotune.compiler.memory.saving import (
        Footprints,  # loads all that makes machine code, which most plans do without
    )

    return Footprints(target, workers)


def _for_goal(
    rankings: Mapping[str, Ranking],
    goal: Goal,
    footprints: Footprints,
    target: Target,
    database: Database | None,
) -> dict[str, Ranking]:
    """Return the same with the smallest option that the goal allows at the front of each."""
    from autotune.compiler.memory.saving import smallest_options

    smaller = smallest_options(
        {key: ranking.times for key, ranking in rankings.items()},
        goal,
        lambda region, left: schedule_for(region, target, database, {}, left),
        footprints,
    )
    made = dict(rankings)
    for key, (first, saving) in smaller.items():
        others = (time for time in made[key].times if time is not first)
        made[key] = replace(made[key], times=(first, *others), saving=saving)
    return made


def _compared(
    options: Sequence[Option], compared: Standings, target: Target
) -> tuple[list[OptionTime], list[Option]]:
    """Return the result of comparisons for options as they are today, the one that is used first; and those that
    failed."""
    named = {option.name: option for option in options}

    def today(one: Standing | Comparison) -> bool:
        return one.name in named and one.key == option_key(named[one.name], target)

    times = [compared_time(named[one.name], one) for one in compared.order if today(one)]
    return times, [named[row.name] for row in compared.failed if today(row)]


def compared_time(option: Option, known: Standing) -> OptionTime:
    """Return the latency of an option by its comparisons."""
    return OptionTime(
        option,
        known.latency_ns,
        TimeSource.MEASURED,
        known.claim,
        known.compared,
    )


def _rank(time: OptionTime) -> tuple[bool, float]:
    """Return the rank of an option by its estimate: none that is speculative is used by its estimate, and of two
    that take the same time the more exact one is."""
    penalty = 1.0 if time.option.plain else DOUBT + time.option.error
    return time.option.speculative, time.latency_ns * penalty


def option_key(option: Option, target: Target) -> str:
    """Return SHA-256 (hex) of everything that gives a measured option its meaning: regions and spaces."""
    from search_spaces.spaces import space_for

    return key_of_regions((region.key, space_for(region, target).key) for region in option.regions)


def key_of_regions(keys: Iterable[tuple[str, str]]) -> str:
    """Return :func:`option_key` of an option by the keys of its regions, each with that of its space."""
    return hashlib.sha256(json.dumps([*keys]).encode()).hexdigest()


__all__ = [
    "DOUBT",
    "OPTION",
    "Plan",
    "Ranking",
    "compared_time",
    "key_of_regions",
    "option_key",
    "plan_of",
    "rank",
    "regions_of",
    "with_options",
]
