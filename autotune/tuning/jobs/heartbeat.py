"""The state of a job in its database while it works, for whoever looks from elsewhere, and its report."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.database import Database
from autotune.database.records import JobRow, Ratio, Run
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.owner import HEARTBEAT_S, alive, owner, said
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status
from autotune.versions import versions_of

ASKED = "asked"
"""The name, in the options of a job, of the key that is equal for calls that ask for the same job."""
_REPORT_S = 30.0
"""An interim report is stored at most this often: it looks up every dispatch, which takes a tenth of a second."""


@dataclass
class Beating(Progress):
    """Stores the state of a job at its events, at most every two seconds; subclasses say what it is."""

    database: Database
    row: JobRow
    _said: float = field(default=-HEARTBEAT_S, init=False)

    def says(self) -> dict[str, Any]:
        """Return what the job says of itself, as JSON values."""
        raise NotImplementedError

    @property
    def elapsed_s(self) -> float:
        """Return the seconds that the job has worked, in all sessions."""
        raise NotImplementedError

    def started(self, status: Status) -> None:
        """Store that the job works."""
        self.beat()

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Store that the job works."""
        self.beat()

    def phase(self, status: Status) -> None:
        """Store that the job works, and at once that it waits, as nothing follows for as long as it does."""
        self.beat(now=status.waiting)

    def chosen(self, status: Status) -> None:
        """Store that the job works."""
        self.beat()

    def end(self, state: str, why: str = "") -> None:
        """Store the state in which the job ends, and what ended it before its time."""
        self._store(state, ended=why)

    def beat(self, *, now: bool = False) -> None:
        """Store that the job works, if that was not done just before, or else ``now``."""
        if now or time.monotonic() - self._said > HEARTBEAT_S:
            self._store()

    def _store(self, state: str = JobRow.RUNNING, report: Report | None = None, ended: str = "") -> None:
        self._said = time.monotonic()
        text = json.dumps(self.says() | {"version": current_version(), "ended": ended})
        self.row = replace(self.row, state=state, elapsed_s=self.elapsed_s, status=text)
        self.database.update_job(self.row, None if report is None else json.dumps(report.to_json()))


@dataclass
class Heartbeat(Beating):
    """Stores the state of a job, and its report."""

    status: Status
    _reported: float = field(default=-_REPORT_S, init=False)

    def says(self) -> dict[str, Any]:
        """Return the numbers of its status, and the budget of its call."""
        return {**self.status.to_json(), "requested": self.status.meter.budget.requested}

    @property
    def elapsed_s(self) -> float:
        """Return the time by its meter."""
        return self.status.meter.elapsed_s

    def interim(self, report: Callable[[], Report]) -> None:
        """Store the report of a job that goes on, which may be killed before it has another."""
        if time.monotonic() - self._reported > _REPORT_S:
            self._store(report=report())
            self._reported = time.monotonic()

    def finished(self, report: Report) -> None:
        """Store the report of a job that has ended."""
        gains = {each.model: each.gain.to_json() for each in report.models if each.gain is not None}
        self.row = replace(self.row, status=json.dumps(json.loads(self.row.status) | {"gains": gains}))
        self.database.update_job(self.row, json.dumps(report.to_json()))


@dataclass
class PhasesHeartbeat(Beating):
    """Stores the state of a job of several phases: on several ``devices`` a row of searches, each a job of its own, and
    of placements; of a front, which has no devices, a search and the measurements of its points.

    ``searches`` are the ids of those jobs, ``phases`` the names of what is done, ``gains`` the ratios of placements,
    and ``placements`` their reports, as JSON values.
    """

    devices: Sequence[str]
    budget: Budget
    searches: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    gains: dict[str, Any] = field(default_factory=dict)
    placements: list[dict[str, Any]] = field(default_factory=list)
    _phase: str = field(default="", init=False)
    _search: Status | None = field(default=None, init=False)
    _note: str = field(default="", init=False)

    @staticmethod
    def claimed(
        database: Database, asked: str, model: str, target: str, budget: Budget, devices: Sequence[str] = ()
    ) -> PhasesHeartbeat:
        """Continue an unfinished job of the key ``asked``, or begin one for a target by its key."""
        now, options = time.time(), {"devices": [*devices], "budget": str(budget), ASKED: asked}
        row = JobRow(
            uuid.uuid4().hex[:12],
            asked,
            model,
            target,
            json.dumps(options),
            JobRow.RUNNING,
            owner(),
            0.0,
            now,
            now,
        )
        return PhasesHeartbeat(database, database.claim_job(row, alive), devices, budget)

    def __post_init__(self) -> None:
        self._before_s, self._begun, before = self.row.elapsed_s, time.monotonic(), said(self.row)
        self.searches += before.get("searches", ())
        self.phases += before.get("phases", ())
        self.gains |= before.get("gains", {})
        self.placements += before.get("placements", ())

    def says(self) -> dict[str, Any]:
        """Return what is done now, and what was."""
        search = self._search
        return {
            "phase": self._phase,
            "note": self._note if search is None else f"{search.phase}: {search.note}".strip(": "),
            "waiting": search is not None and search.waiting,
            "budget": str(self.budget),
            "requested": self.budget.requested,
            "devices": [*self.devices],
            "searches": self.searches,
            "phases": self.phases,
            "models": [{"model": self.row.model, "confirmed": None}],
            "gains": self.gains,
            "placements": self.placements,
        }

    @property
    def elapsed_s(self) -> float:
        """Return the time of this session and those before."""
        return self._before_s + time.monotonic() - self._begun

    def begin(self, phase: str) -> None:
        """Store which phase begins."""
        self._phase, self._search, self._note = phase, None, ""
        self.beat(now=True)

    def started(self, status: Status) -> None:
        """Store which job searches."""
        self._search = status
        self.searches += [] if status.job in self.searches else [status.job]
        self.beat(now=True)

    def preparing(self, note: str) -> None:
        """Store what a search does before it begins."""
        self._search, self._note = None, note
        self.beat()

    def say(self, note: str) -> None:
        """Store what is done without a search."""
        self._search, self._note = None, note
        self.beat(now=True)

    def placed(self, gain: Ratio | None, report: dict[str, Any]) -> None:
        """Store that a placement was searched, with its ratio, None of all on the first device, and its report."""
        self.gains = {} if gain is None else {self.row.model: gain.to_json()}
        self.placements.append(report)
        self.over()

    def over(self) -> None:
        """Store that the phase is done."""
        self.phases.append(self._phase)
        self._search, self._note = None, ""
        self.beat(now=True)


def current_version() -> str:
    """Return the version that a job says to be of."""
    return versions_of(("autotune",))["autotune"]


__all__ = ["ASKED", "Beating", "Heartbeat", "PhasesHeartbeat", "current_version"]
