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
from autotune.compiler.choice import GIVEN, Choice, choose
from autotune.compiler.decision import PROMISING, chosen, decide, decide_all
from autotune.database import Database
from autotune.database.records import Latency
from autotune.passes.alternatives import Alternative
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.confirm import ROUNDS, Code, Version
from autotune.tuning.job import Subject
from autotune.tuning.lineup import LineUp, Readings
from autotune.tuning.measure.timing import statistics
from autotune.tuning.objective import Fork

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.image import ModuleImage

_LIMIT_S = 10.0
"""For timing the whole model at the end of a job."""


def work_of(parts: Partition, target: Target, preference: Preference) -> tuple[list[Subject], list[Fork]]:
    """The workloads to tune: those that the untuned model executes, then those of other alternatives.

    Alternatives that are estimated to take over twice the time of the best are left out.
    """
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    now, later, forks = list[_Use](), list[_Use](), list[Fork]()
    for workload in distinct_workloads(parts):
        mine = tuple(names[workload.key])
        decision = decide(workload, target, None, preference, within=PROMISING)
        if decision is None:
            now.append(_Use(mine, workload))
            continue
        forks.append(Fork(mine, workload, decision.promising, decision.chosen))
        for alternative in decision.promising:
            uses = now if alternative is decision.chosen else later
            uses += _uses(mine, alternative)
    return _subjects([*now, *later], target), forks


@dataclass(frozen=True)
class _Use:
    """Dispatches that execute a workload, directly or as a step of an alternative."""

    names: tuple[str, ...]
    workload: Workload


def _uses(names: Sequence[str], alternative: Alternative) -> list[_Use]:
    if alternative.steps is None:
        return [_Use(tuple(names), alternative.workload)]
    return [
        _Use(tuple(f"{name}/{alternative.name}/{step.name}" for name in names), step.workload)
        for step in alternative.steps.dispatches
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


class ModelSurroundings:
    """A model as what its dispatches run in: versions of it are assembled and take turns.

    What the database decides may change at any time: another job may work on the same model. Versions have the
    alternatives that :meth:`dispatches` told last. Raises what assembling raises; a version that crashes is a
    reading that is missing.
    """

    def __init__(
        self, parts: Partition, target: Target, database: Database, preference: Preference, seed: int
    ) -> None:
        self.name = parts.name
        self.nbytes = sum(array.nbytes for array in parts.constants.values())
        self._parts = parts
        self._target = target
        self._database = database
        self._preference = preference
        self._seed = seed
        self._defaults: dict[str, BuiltWorkload] = {}
        self._divisions: dict[bool, Partition] = {}
        """By whether the database decided."""

    def dispatches(self, *, decided: bool) -> list[tuple[str, str]]:
        """Name and workload key of each dispatch, in order, with the alternatives that the database
        ``decided`` or with those of an untuned model."""
        self._divisions[decided] = self._divided(decided=decided)
        return [(d.name, d.workload.key) for d in self._divisions[decided].dispatches]

    def read(
        self, versions: Sequence[Version], rounds: int, out_of_time: Callable[[], bool]
    ) -> list[Readings | None]:
        """Latencies [rounds, dispatches] in ns; None for a version that failed."""
        with LineUp(self._images(versions, out_of_time), self._seed) as lineup:
            read = lineup.profile(rounds, out_of_time)
        return [*read, *[None] * (len(versions) - len(read))]

    def time(
        self, tuned: Code, out_of_time: Callable[[], bool], rounds: int = ROUNDS
    ) -> tuple[Latency, Latency] | None:
        """The model untuned, and as the database decided with ``tuned`` schedules, taking turns."""
        begin = time.monotonic()
        self._divisions.clear()
        images = self._images([Version(False, {}), Version(True, tuned)], out_of_time)
        if len(images) < 2:
            return None
        with LineUp(images, self._seed) as lineup:
            before, after = lineup.time(rounds, lambda: out_of_time() or time.monotonic() - begin > _LIMIT_S)
        if before is None or after is None:
            return None
        return statistics(before.ravel()), statistics(after.ravel())

    def _images(self, versions: Sequence[Version], out_of_time: Callable[[], bool]) -> list[ModuleImage]:
        """The first versions, as many as there is time for."""
        images: list[ModuleImage] = []
        for version in versions:
            if out_of_time():
                break
            images.append(self._image(version))
        return images

    def _divided(self, *, decided: bool) -> Partition:
        known = self._database if decided else None
        workloads = distinct_workloads(self._parts)
        decisions = decide_all(workloads, self._target, known, self._preference)
        return substitute(self._parts, chosen(decisions))

    def _image(self, version: Version) -> ModuleImage:
        if version.decided not in self._divisions:
            self.dispatches(decided=version.decided)
        parts = self._divisions[version.decided]
        workloads = distinct_workloads(parts)
        self._build_defaults([w for w in workloads if w.key not in version.code])
        built = {w.key: self._code(w, version.code) for w in workloads}
        return assemble(parts, built, self._target, {})[0]

    def _build_defaults(self, workloads: Sequence[Workload]) -> None:
        missing = [w for w in workloads if w.key not in self._defaults]
        choices = [choose(w, self._target, None, {}) for w in missing]
        self._defaults |= Building(choices, self._target).finish()

    def _code(self, workload: Workload, code: Code) -> BuiltWorkload:
        found = code.get(workload.key)
        if found is None:
            return self._defaults[workload.key]
        choice = Choice(workload, Trace.from_json(found.trace_json), GIVEN)
        return BuiltWorkload(choice, wire.from_json(found.payload))


__all__ = ["ModelSurroundings", "subject_of", "work_of"]
