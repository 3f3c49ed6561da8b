"""Tuning a model for several devices: schedules for each of their targets, and a placement of its parts, alternately.

A schedule changes what a placement costs by one number, the time of its unit on that device, which the search for
placements measures anew each time. So the two are searched alternately and not in one study: a placement is
estimated in milliseconds from what the schedules found so far take, while a trial of one study would have to compile
a whole model to say the same with noise.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, Unpack

from autotune.compiler.request import CompileRequest, MachineOptions, keywords_of
from autotune.database.records import DEVICES, JobRow
from autotune.target import Target
from autotune.tuning.jobs.budget import Budget, BudgetLike
from autotune.tuning.jobs.owner import alive, owner
from autotune.tuning.placement.answer import PlacementReading, checked_devices, placement_key, used_of
from autotune.tuning.placement.place import PlacementReport, place
from autotune.tuning.placement.placing import known_devices, target_of
from autotune.tuning.report.result import Report
from autotune.tuning.search.samplers import GUIDED, SamplerLike, name_of
from autotune.tuning.search.studies import StorageLike

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.database.store import Database
    from autotune.tuning.report.status import Progress

_FIRST, _SECOND = 0.6, 0.25
"""Shares of a time budget: schedules for all targets, and again for those that the placement uses. The rest is for
searching placements."""

Tuned: TypeAlias = Callable[[Target, Budget], Report]


@dataclass(frozen=True)
class DevicesReport:
    """The result of each search, in order; ``stopped`` where one was stopped early."""

    tuned: tuple[Report, ...] = ()
    placed: tuple[PlacementReport, ...] = ()
    stopped: bool = False
    skipped: tuple[str, ...] = field(default=())
    """Searches that an earlier session of this job had finished."""


@keywords_of(MachineOptions)
def tune_on_devices(
    model: Model,
    devices: Sequence[str],
    *,
    budget: BudgetLike,
    seed: int = 0,
    sampler: SamplerLike = GUIDED,
    study_storage: StorageLike | None = None,
    quiet: bool = False,
    progress: Callable[[], Progress | None] = lambda: None,
    say: Callable[[str], None] = lambda text: None,
    **options: Unpack[MachineOptions],
) -> DevicesReport:
    """Tune a model for devices: schedules for each of their targets, a placement, schedules for the targets that it
    uses, and a placement again.

    The ``budget`` is shared: most of it goes to schedules. All of it is in the database, so that the same call goes on
    where a job was stopped or killed. ``progress`` makes the display of a search for schedules, ``say`` hears which
    search begins. The rest is as for :func:`autotune.tune` and :func:`autotune.place`, which see for what is raised.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.database.opening import opened
    from autotune.tuning.api import tune

    request = CompileRequest(model, devices=devices, **options).checked()
    infos = known_devices()
    names = checked_devices(devices, infos)
    targets = {name: target_of(infos[name]) for name in names}
    graph = on_one_device(imported(model, request.shapes))

    def tuned(target: Target, share: Budget) -> Report:
        own: MachineOptions = {**here, "target": target}
        return tune(
            graph,
            budget=share,
            seed=seed,
            sampler=sampler,
            study_storage=study_storage,
            quiet=quiet,
            progress=progress(),
            time_model=False,
            sites=(),  # parts of a placement are compiled as in an untuned model
            **own,
        )

    with opened(request.database) as store:
        here: MachineOptions = {**options, "shapes": None, "database": store}
        job = _PhasedJob(graph.name, store, targets, Budget.of(budget), say)
        job.claim([placement_key(graph, names, infos), name_of(sampler), seed])
        return job.run(
            tuned,
            lambda: place(graph, names, seed=seed, progress=say, job=job.id, **here),
        )


class _PhasedJob:
    """Phases in order, each of which is a row in the table of jobs: one that is done is not done again."""

    def __init__(
        self,
        model: str,
        database: Database,
        targets: dict[str, Target],
        budget: Budget,
        say: Callable[[str], None],
    ) -> None:
        self.model = model
        self.database = database
        self.targets = targets
        self.budget = budget
        self.say = say
        self.report = DevicesReport()
        self.id = ""

    def claim(self, identity: Sequence[object]) -> None:
        """Continue an unfinished job of the same identity, or begin one."""
        for target in dict.fromkeys(self.targets.values()):
            self.database.add_target(target)
        self.row = self._claimed(["devices", *identity])
        self.id = self.row.id

    def run(self, tuned: Tuned, placed: Callable[[], PlacementReport]) -> DevicesReport:
        state = JobRow.STOPPED
        try:
            every = list(dict.fromkeys(self.targets.values()))
            first = self._tune("schedules", every, _FIRST, tuned)
            used = self._place("placement", placed) if first else None
            if used is not None and self._tune("schedules again", self._of(used), _SECOND, tuned):
                self._place("placement again", placed)
                state = JobRow.DONE
        except KeyboardInterrupt:
            self.report = replace(self.report, stopped=True)
        finally:
            self._ended(self.row, state)
        return self.report

    def _tune(self, phase: str, targets: Sequence[Target], share: float, tuned: Tuned) -> bool:
        """Search schedules for targets; False when that was stopped."""
        for number, target in enumerate(targets):
            with_target = f"{phase} for {target.name}, {target.threads} threads"
            row = self._phase(with_target)
            if row is None:
                continue
            report = tuned(target, _part(self.budget, share, len(targets), number))
            self.report = replace(self.report, tuned=(*self.report.tuned, report))
            self._ended(row, JobRow.STOPPED if report.stopped else JobRow.DONE)
            if report.stopped:
                self.report = replace(self.report, stopped=True)
                return False
        return True

    def _place(self, phase: str, placed: Callable[[], PlacementReport]) -> dict[str, str]:
        """Search a placement; the one that is used."""
        row = self._phase(phase)
        if row is None:
            return self._kept()
        report = placed()
        self.report = replace(self.report, placed=(*self.report.placed, report))
        self._ended(row, JobRow.DONE)
        return report.placement

    def _kept(self) -> dict[str, str]:
        rows = self.database.compared_at(DEVICES, job=self.id)
        found = used_of([PlacementReading.of(row) for row in rows])
        return {"*": next(iter(self.targets))} if found is None else dict(found.placement)

    def _of(self, placement: dict[str, str]) -> list[Target]:
        """Return the targets of the devices that a placement uses, in the order of the devices."""
        used = {*placement.values()}
        return list(dict.fromkeys(target for name, target in self.targets.items() if name in used))

    def _phase(self, name: str) -> JobRow | None:
        """Return the row of a phase; None for one that is done."""
        fingerprint = _fingerprint([self.id, name])
        if any(job.fingerprint == fingerprint and job.state == JobRow.DONE for job in self.database.jobs()):
            self.report = replace(self.report, skipped=(*self.report.skipped, name))
            return None
        self.say(f"{name} of {self.model}")
        return self._claimed([self.id, name])

    def _claimed(self, identity: Sequence[object]) -> JobRow:
        now, target = time.time(), next(iter(self.targets.values()))
        options = json.dumps({"devices": [*self.targets], "budget": str(self.budget)})
        fresh = JobRow(
            uuid.uuid4().hex[:12],
            _fingerprint(identity),
            self.model,
            target.key,
            options,
            JobRow.RUNNING,
            owner(),
            0.0,
            now,
            now,
        )
        return self.database.claim_job(fresh, alive)

    def _ended(self, row: JobRow, state: str) -> None:
        self.database.update_job(
            replace(row, state=state, elapsed_s=row.elapsed_s + time.time() - row.updated)
        )


def _part(budget: Budget, share: float, parts: int, number: int) -> Budget:
    """Return the part ``number`` of equal ones of a share of the time, and of the trials, of which
    placing takes none."""
    limit, trials = budget.limit_s, None
    if budget.trials is not None:
        whole = round(budget.trials * share / (_FIRST + _SECOND))
        trials = max(1, whole // parts + (number < whole % parts))
    return Budget(
        seconds=None if limit is None else share * limit / parts,
        trials=trials,
        per_workload=budget.per_workload,
        stop_when=budget.stop_when,
    )


def _fingerprint(identity: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


__all__ = ["DevicesReport", "tune_on_devices"]
