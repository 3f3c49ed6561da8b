"""What a model gives a tuning job: its workloads, and the whole of it to time before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.codegen import wire
from autotune.compiler import distinct_workloads
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build import Building
from autotune.compiler.plan import Ranking, rank
from autotune.compiler.planned import GIVEN, Planned, schedule_for
from autotune.database import Database
from autotune.database.records import Latency
from autotune.passes.base import PROMISING
from autotune.passes.options import Option
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.compare import ROUNDS, Code, Profile, Version
from autotune.tuning.job import Subject
from autotune.tuning.measure.timing import statistics
from autotune.tuning.sites import Site
from autotune.tuning.turns import Turns

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.image import ModuleImage

_LIMIT_S = 10.0
"""For timing the whole model at the end of a job."""


def work_of(parts: Partition, target: Target, preference: Preference) -> tuple[list[Subject], list[Site]]:
    """The workloads to tune: those that the untuned model executes, then those of other options; and the sites.

    Options whose estimates promise nothing are left out.
    """
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    workloads = distinct_workloads(parts)
    rankings = rank(workloads, target, None, preference, within=PROMISING)
    now, later, sites = list[_Use](), list[_Use](), list[Site]()
    for workload in workloads:
        mine, found = tuple(names[workload.key]), rankings.get(workload.key)
        options = (found.chosen, *found.promising) if found else (Option(workload),)
        sites.append(Site(mine, workload, tuple(dict.fromkeys(options))))
        now += _uses(mine, sites[-1].default)
        later += [use for option in sites[-1].options[1:] for use in _uses(mine, option)]
    return _subjects([*now, *later], target), sites


@dataclass(frozen=True)
class _Use:
    """Dispatches that execute a workload, directly or as a step of an option."""

    names: tuple[str, ...]
    workload: Workload


def _uses(names: Sequence[str], option: Option) -> list[_Use]:
    if option.steps is None:
        return [_Use(tuple(names), option.workload)]
    return [
        _Use(tuple(f"{name}/{option.name}/{step.name}" for name in names), step.workload)
        for step in option.steps.dispatches
    ]


def _subjects(uses: Sequence[_Use], target: Target) -> list[Subject]:
    """The distinct workloads, each with all dispatches that execute it."""
    names: dict[str, list[str]] = {}
    for use in uses:
        names.setdefault(use.workload.key, []).extend(use.names)
    workloads = {use.workload.key: use.workload for use in uses}
    return [subject_of(workloads[key], target, tuple(found)) for key, found in names.items()]


def subject_of(workload: Workload, target: Target, names: tuple[str, ...]) -> Subject:
    """One workload with its space and its default schedule."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    return Subject(names, workload, space, analytic.default_config(space))


class MeasuredModel:
    """A model as what its dispatches run in: versions of it are assembled and take turns.

    Raises what assembling raises; a version that crashes is a reading that is missing.
    """

    def __init__(
        self,
        parts: Partition,
        sites: Sequence[Site],
        target: Target,
        database: Database,
        preference: Preference,
        seed: int,
    ) -> None:
        self.name = parts.name
        self.nbytes = sum(array.nbytes for array in parts.constants.values())
        self._parts = parts
        self._untuned = {site.workload.key: site.default for site in sites}
        self._target = target
        self._database = database
        self._preference = preference
        self._seed = seed
        self._defaults: dict[str, BuiltWorkload] = {}

    def rankings(self) -> dict[str, Ranking]:
        """The options as a compilation ranks them now; another job may work on the same model."""
        return rank(distinct_workloads(self._parts), self._target, self._database, self._preference)

    def read(
        self, versions: Sequence[Version], rounds: int, out_of_time: Callable[[], bool]
    ) -> list[Profile | None]:
        """What versions took that take turns; None for one that failed."""
        divided, images = self._assembled(versions, out_of_time)
        with Turns(images, self._seed) as turns:
            read = turns.profile(rounds, out_of_time)
        found = [
            None if ns is None else Profile([(d.name, d.workload.key) for d in parts.dispatches], ns)
            for parts, ns in zip(divided, read, strict=True)
        ]
        return [*found, *[None] * (len(versions) - len(read))]

    def time(
        self, tuned: Code, out_of_time: Callable[[], bool], rounds: int = ROUNDS
    ) -> tuple[Latency, Latency] | None:
        """The model untuned, and as a compilation would use it now with ``tuned`` schedules, taking turns."""
        begin = time.monotonic()
        used = {key: ranking.chosen for key, ranking in self.rankings().items()}
        versions = [Version(self._untuned, {}), Version(used, tuned)]
        _, images = self._assembled(versions, out_of_time)
        if len(images) < 2:
            return None
        with Turns(images, self._seed) as turns:
            before, after = turns.time(rounds, lambda: out_of_time() or time.monotonic() - begin > _LIMIT_S)
        if before is None or after is None:
            return None
        return statistics(before.ravel()), statistics(after.ravel())

    def _assembled(
        self, versions: Sequence[Version], out_of_time: Callable[[], bool]
    ) -> tuple[list[Partition], list[ModuleImage]]:
        """The first versions, as many as there is time for."""
        divided: dict[frozenset[tuple[str, str]], Partition] = {}
        parts: list[Partition] = []
        images: list[ModuleImage] = []
        for version in versions:
            if out_of_time():
                break
            names = frozenset((key, option.name) for key, option in version.options.items())
            if names not in divided:
                divided[names] = substitute(self._parts, version.options)
            parts.append(divided[names])
            images.append(self._image(parts[-1], version.code))
        return parts, images

    def _image(self, parts: Partition, code: Code) -> ModuleImage:
        workloads = distinct_workloads(parts)
        self._build_defaults([w for w in workloads if w.key not in code])
        built = {w.key: self._code(w, code) for w in workloads}
        return assemble(parts, built, self._target, {})[0]

    def _build_defaults(self, workloads: Sequence[Workload]) -> None:
        missing = [w for w in workloads if w.key not in self._defaults]
        schedules = [schedule_for(w, self._target, None, {}) for w in missing]
        self._defaults |= Building(schedules, self._target).finish()

    def _code(self, workload: Workload, code: Code) -> BuiltWorkload:
        found = code.get(workload.key)
        if found is None:
            return self._defaults[workload.key]
        planned = Planned(workload, Trace.from_json(found.trace_json), GIVEN)
        return BuiltWorkload(planned, wire.from_json(found.payload))


__all__ = ["MeasuredModel", "subject_of", "work_of"]
