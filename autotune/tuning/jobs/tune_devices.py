"""Tuning a model for several devices: schedules for each of their targets, and a placement of its parts, alternately.

A schedule changes what a placement costs by one number, the time of its unit on that device, which the search for
placements measures anew each time. So the two are searched alternately and not in one study: a placement is
estimated in milliseconds from what the schedules found so far take, while a trial of one study would have to compile
a whole model to say the same with noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, Unpack

from autotune.compiler.request import CompileRequest, MachineOptions, keywords_of
from autotune.database.records import DEVICES, JobRow
from autotune.errors import first_line
from autotune.target import Target
from autotune.tuning.jobs.answered import ended_before, how_to_go_on, reports_of
from autotune.tuning.jobs.budget import Budget, BudgetLike
from autotune.tuning.jobs.events import Several
from autotune.tuning.jobs.heartbeat import PhasesHeartbeat
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
    again: bool = True,
    **options: Unpack[MachineOptions],
) -> DevicesReport:
    """Tune a model for devices: schedules for each of their targets, a placement, schedules for the targets that it
    uses, and a placement again.

    The ``budget`` is shared: most of it goes to schedules. All of it is in the database, so that the same call goes on
    where a job was stopped or killed. Unless ``again``, a job that came to its end within the same budget is not
    followed by a new one: what it has found is shown and returned at once. ``progress`` makes the display of a search
    for schedules, ``say`` hears which search begins. The rest is as for :func:`autotune.tune` and
    :func:`autotune.place`, which see for what is raised.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.database.opening import opened
    from autotune.tuning.api import shown_to, tune

    request = CompileRequest(model, devices=devices, **options).checked()
    infos = known_devices()
    names = checked_devices(devices, infos)
    targets = {name: target_of(infos[name]) for name in names}
    graph = on_one_device(imported(request.model, request.shapes))

    def tuned(target: Target, share: Budget) -> Report:
        own: MachineOptions = {**here, "target": target}
        return tune(
            graph,
            budget=share,
            seed=seed,
            sampler=sampler,
            study_storage=study_storage,
            progress=Several([job.heart, shown_to(progress(), None, quiet=quiet)]),
            time_model=False,
            sites=(),  # parts of a placement are compiled as in an untuned model
            **own,
        )

    with opened(request.database) as store:
        here: MachineOptions = {**options, "shapes": None, "values": None, "database": store}
        key, limit = placement_key(graph, names, infos), Budget.of(budget)
        asked = _asked_key(["devices", key, name_of(sampler), seed, repr(request.preference)])
        if not again:
            before = _answered(store, asked, limit, lambda: shown_to(progress(), None, quiet=quiet))
            if before is not None:
                return before
        job = _PhasedJob(graph.name, store, targets, limit, say)
        job.claim(asked)
        return job.run(
            tuned,
            lambda: place(graph, names, seed=seed, progress=job.placing, job=job.id, **here),
        )


def _asked_key(identity: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _answered(
    database: Database, asked: str, budget: Budget, display: Callable[[], Progress]
) -> DevicesReport | None:
    """Return what a job that has come to its end found and show its searches; None where there is work left to do."""
    last = ended_before(database, asked, budget)
    found = [] if last is None else reports_of(database, last.said["searches"])
    if last is None or not found:
        return None
    for number, report in enumerate(found):
        shown = display()
        if not number:
            shown.preparing(how_to_go_on(last))
        shown.finished(report)
        shown.close()
    placed = tuple(map(PlacementReport.from_json, last.said["placements"]))
    return DevicesReport(tuple(found), placed, skipped=tuple(last.said["phases"]))


class _PhasedJob:
    """Phases in order: one that is done is not done again."""

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
        self.heart: PhasesHeartbeat

    @property
    def id(self) -> str:
        """Return the id of the job."""
        return self.heart.row.id

    def claim(self, asked: str) -> None:
        """Continue an unfinished job of the same key, or begin one."""
        for target in dict.fromkeys(self.targets.values()):
            self.database.add_target(target)
        target = next(iter(self.targets.values()))
        self.heart = PhasesHeartbeat.claimed(
            self.database, asked, self.model, target.key, self.budget, [*self.targets]
        )

    def run(self, tuned: Tuned, placed: Callable[[], PlacementReport]) -> DevicesReport:
        state, why = JobRow.STOPPED, ""
        try:
            every = list(dict.fromkeys(self.targets.values()))
            first = self._tune("schedules", every, _FIRST, tuned)
            used = self._place("placement", placed) if first else None
            if used is not None and self._tune("schedules again", self._of(used), _SECOND, tuned):
                self._place("placement again", placed)
                state = JobRow.DONE
        except KeyboardInterrupt as error:
            self.report, why = replace(self.report, stopped=True), f"by {str(error) or 'Ctrl-C'}"
        except Exception as error:
            why = f"by an error: {first_line(error)}"
            raise
        finally:
            self.heart.end(state, why)
        return self.report

    def placing(self, note: str) -> None:
        """Say what the search for a placement does."""
        self.heart.say(note)
        self.say(note)

    def _tune(self, phase: str, targets: Sequence[Target], share: float, tuned: Tuned) -> bool:
        """Search schedules for targets; False when that was stopped."""
        for number, target in enumerate(targets):
            if not self._begins(f"{phase} for {target.name}"):
                continue
            report = tuned(target, _part(self.budget, share, len(targets), number))
            self.report = replace(self.report, tuned=(*self.report.tuned, report))
            if report.stopped:
                self.report = replace(self.report, stopped=True)
                return False
            self.heart.over()
        return True

    def _place(self, phase: str, placed: Callable[[], PlacementReport]) -> dict[str, str]:
        """Search a placement; the one that is used."""
        if not self._begins(phase):
            return self._kept()
        report = placed()
        self.report = replace(self.report, placed=(*self.report.placed, report))
        self.heart.placed(report.measured[report.accepted].ratio, report.to_json())
        return report.placement

    def _kept(self) -> dict[str, str]:
        rows = self.database.compared_at(DEVICES, job=self.id)
        found = used_of([PlacementReading.of(row) for row in rows])
        return {"*": next(iter(self.targets))} if found is None else dict(found.placement)

    def _of(self, placement: dict[str, str]) -> list[Target]:
        """Return the targets of the devices that a placement uses, in the order of the devices."""
        used = {*placement.values()}
        return list(dict.fromkeys(target for name, target in self.targets.items() if name in used))

    def _begins(self, phase: str) -> bool:
        """Return whether a phase begins: one that is done does not."""
        if phase in self.heart.phases:
            self.report = replace(self.report, skipped=(*self.report.skipped, phase))
            return False
        self.say(f"{phase} of {self.model}")
        self.heart.begin(phase)
        return True


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


__all__ = ["DevicesReport", "tune_on_devices"]
