"""A model as a tuning job needs it: its workloads, and the whole of it to time before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotune.compiler import distinct_workloads
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build.build import Building
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.hoist import Hoisted
from autotune.compiler.plan import Plan, Ranking, plan_of, rank
from autotune.compiler.planned import GIVEN, Planned, schedule_for
from autotune.compiler.stale import CodeCheck
from autotune.database import Database
from autotune.garbage import collector_paused
from autotune.passes.base import PROMISING
from autotune.passes.memory.dispatch_order import Aim, in_order
from autotune.passes.options import Option
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.compare.sites import Site
from autotune.tuning.jobs.models import AskedModel
from autotune.tuning.jobs.subject import Subject, TunedModel
from autotune.tuning.measure.accuracy import EndToEnd
from autotune.tuning.measure.gain import Gain, gain_of
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.measure.whole_model import UNWATCHED, Code, Options, Profile, Version, Watch

if TYPE_CHECKING:
    from autotune.compiler.sites.decision import Decision
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.image import ModuleImage

_MEMORY, _COPIES, _LEAST, _MOST = 0.25, 3, 5, 40
"""All versions may take this share of the free memory, each so many times the constants (as they are, packed, and on
their way); the fewest and the most of them."""


MOST_RUNS = 1 << 16
"""A dispatch counts for no more runs than this in the weight of its workload."""


def tuned_model(
    asked: AskedModel,
    decisions: Sequence[Decision],
    database: Database,
    seed: int,
    turns_of: Callable[[int], Turns] = Turns,
) -> TunedModel:
    """Return a model as a job takes it, with what was decided of it as a whole; ``turns_of`` makes its interleaved
    measurements by their seed."""
    request, parts = asked.request, asked.parts
    target, preference = request.one_target(), request.preference
    subjects, sites = work_of(parts, target, preference)
    check = EndToEnd.wanted(request.tolerance, request.model, request.shapes, seed)
    model = MeasuredModel(parts, sites, target, database, preference, seed, check, request.order)
    model.turns_of = turns_of
    return TunedModel(
        asked.name,
        subjects,
        sites,
        model,
        {dispatch.name: dispatch.origins for dispatch in parts.dispatches},
        decisions,
    )


@collector_paused()
def work_of(parts: Partition, target: Target, preference: Preference) -> tuple[list[Subject], list[Site]]:
    """Return the workloads to tune: those that the untuned model executes, then those of other options; and the sites.

    Options whose estimates promise nothing are left out.
    """
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).extend([dispatch.name] * min(dispatch.runs, MOST_RUNS))
    workloads = distinct_workloads(parts)
    with BuildWorkers.of(len(workloads)) as workers:
        rankings = rank(workloads, target, None, preference, within=PROMISING, workers=workers)
    sites = []
    for workload in workloads:
        found = rankings.get(workload.key)
        options = (found.chosen, *found.promising) if found else (Option(workload),)
        expected = {time.option.name: time.latency_ns for time in found.times} if found else {}
        sites.append(Site(tuple(names[workload.key]), workload, tuple(dict.fromkeys(options)), expected))
    return _subjects(sites, target), sites


def _subjects(sites: Sequence[Site], target: Target) -> list[Subject]:
    """Return the distinct workloads of all options, those of the defaults first, each with the
    dispatches that execute it."""
    later = [(site, option) for site in sites for option in site.options[1:]]
    names: dict[Workload, list[str]] = {}
    for site, option in [*((site, site.default) for site in sites), *later]:
        steps = (
            [""] if option.steps is None else [f"/{option.name}/{d.name}" for d in option.steps.dispatches]
        )
        for region, step in zip(option.regions, steps, strict=True):
            names.setdefault(region, []).extend(name + step for name in site.names)
    return [subject_of(workload, target, tuple(found)) for workload, found in names.items()]


def subject_of(workload: Workload, target: Target, names: tuple[str, ...]) -> Subject:
    """Return one workload with its space and its default schedule."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    floor_ns = 1e9 * analytic.floor(workload, target)
    default, expected_ns = analytic.default_config(space), 1e9 * analytic.default_seconds(space)
    return Subject(names, workload, space, default, floor_ns, expected_ns)


def _versions_at_once(nbytes: int) -> int:
    """Return the number of versions of a model with constants of so many bytes that may be in a process."""
    import psutil

    room = _MEMORY * psutil.virtual_memory().available / max(1, _COPIES * nbytes)
    return int(min(_MOST, max(_LEAST, room)))


class MeasuredModel:
    """A model in which candidates are measured: versions of it are assembled and interleaved.

    A version that crashes has no reading. Methods raise what assembling raises.
    """

    def __init__(
        self,
        parts: Partition,
        sites: Sequence[Site],
        target: Target,
        database: Database,
        preference: Preference,
        seed: int,
        check: EndToEnd | None = None,
        order: Aim | None = None,
    ) -> None:
        self.name = parts.name
        self.nbytes = sum(array.nbytes for array in parts.constants.values())
        self.most = _versions_at_once(self.nbytes)
        self._parts = parts
        self._untuned = {site.workload.key: site.default for site in sites}
        self._target = target
        self._database = database
        self._preference = preference
        self._seed = seed
        self._check = check
        self.turns_of: Callable[[int], Turns] = Turns
        """Makes the interleaved measurement of versions by its seed."""
        self._order = order or preference.aim
        self._code_check = CodeCheck(target)
        self._defaults: dict[str, BuiltWorkload] = {}

    def rankings(self) -> dict[str, Ranking]:
        """Return the options as a compilation ranks them now; another job may work on the same model."""
        return rank(distinct_workloads(self._parts), self._target, self._database, self._preference)

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Return the times of versions in an interleaved measurement; None for one that failed."""
        none: list[Profile | None] = [None] * len(versions)
        common = _Common(self._parts, self._ordered)
        divided: list[_Divided] = []
        with self.turns_of(self._seed) as turns:
            turns.start(rounds.processes)
            for version in versions:
                if out_of_time():
                    break
                divided.append(common.divided(version.options))
                turns.add(self._image(divided[-1], version.code, common))
            if len(divided) < len(versions) and not rounds.part:
                return none
            found = turns.profiles(rounds, out_of_time, watch)
        return [*found, *none[len(found) :]]

    def plan(self) -> Plan:
        """Return the plan that a compilation would make of the model now; another job may work on the same one."""
        workloads = distinct_workloads(self._parts)
        return self._code_check.plan(
            lambda stale: plan_of(workloads, self._target, self._database, self._preference, stale=stale)
        )

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Return the model untuned, and as a compilation would make it now, in several fresh processes.

        ``untuned`` and ``tuned`` are code that is there already. If so asked, the latter's error comes along.
        """
        if out_of_time():
            return None
        common = _Common(self._parts, self._ordered)
        before = self._image(common.divided(self._untuned), untuned, common)
        if out_of_time():
            return None
        after = self._planned(self.plan(), tuned)
        found = gain_of(before, after, self._seed, out_of_time, turns_of=self.turns_of)
        if found is None or self._check is None:
            return found
        return replace(found, error=self._check.error(after))

    def _planned(self, plan: Plan, tuned: Code) -> ModuleImage:
        """Return the model by a plan, of ``tuned`` code where that is the plan's."""
        parts = self._ordered(plan.apply(self._parts))
        schedules = [plan.schedules[workload.key] for workload in distinct_workloads(parts)]
        known = {
            planned.workload.key: BuiltWorkload.of_wire(planned, tuned[planned.workload.key].payload)
            for planned in schedules
            if planned.workload.key in tuned and tuned[planned.workload.key].trace_key == planned.trace.key
        }
        missing = [planned for planned in schedules if planned.workload.key not in known]
        built = known | Building(missing, self._target).finish()
        ordered = {planned.workload.key: built[planned.workload.key] for planned in schedules}
        return assemble(parts, ordered, self._target, {})[0]

    def _image(self, divided: _Divided, code: Code, common: _Common) -> ModuleImage:
        workloads = distinct_workloads(divided.parts)
        self._build_defaults([w for w in workloads if w.key not in code])
        built = {
            w.key: common.code(w, code[w.key]) if w.key in code else self._defaults[w.key] for w in workloads
        }
        return assemble(divided.parts, built, self._target, {}, divided.hoisted)[0]

    def _ordered(self, parts: Partition) -> Partition:
        return in_order(parts, self._target.threads, self._order)

    def _build_defaults(self, workloads: Sequence[Workload]) -> None:
        missing = [w for w in workloads if w.key not in self._defaults]
        schedules = [schedule_for(w, self._target, None, {}) for w in missing]
        self._defaults |= Building(schedules, self._target).finish()


@dataclass(frozen=True)
class _Divided:
    """A model with some options, and what was packed for versions of it."""

    parts: Partition
    hoisted: Hoisted = field(default_factory=dict)


class _Common:
    """The common part of versions of a model: made once for all of them."""

    def __init__(self, parts: Partition, ordered: Callable[[Partition], Partition]) -> None:
        self._parts, self._ordered = parts, ordered
        self._divided: dict[frozenset[tuple[str, str]], _Divided] = {}
        self._code: dict[tuple[str, str], BuiltWorkload] = {}

    def divided(self, options: Options) -> _Divided:
        """Return the model with some options, its dispatches in their order."""
        names = frozenset((key, option.name) for key, option in options.items())
        if names not in self._divided:
            self._divided[names] = _Divided(self._ordered(substitute(self._parts, options)))
        return self._divided[names]

    def code(self, workload: Workload, built: Built) -> BuiltWorkload:
        """Return the built code of a workload."""
        key = workload.key, built.trace_key
        if key not in self._code:
            planned = Planned(workload, Trace.from_json(built.trace_json), GIVEN)
            self._code[key] = BuiltWorkload.of_wire(planned, built.payload)
        return self._code[key]


__all__ = ["MeasuredModel", "subject_of", "tuned_model", "work_of"]
