"""The state of a job in its database while it works, for whoever looks from elsewhere, and its report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autotune.database import Database
from autotune.database.records import JobRow, Run
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.owner import HEARTBEAT_S, JobState, Life, states_of
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status
from autotune.tuning.report.stored import report_from
from autotune.versions import versions_of

_REPORT_S = 30.0
"""An interim report is stored at most this often: it looks up every dispatch, which takes a tenth of a second."""


@dataclass
class Heartbeat(Progress):
    """Stores the state of a job at its events, at most every two seconds, and its report."""

    database: Database
    row: JobRow
    status: Status
    _said: float = field(default=-HEARTBEAT_S, init=False)
    _reported: float = field(default=-_REPORT_S, init=False)

    def started(self, status: Status) -> None:
        """Store that the job works."""
        self._beat()

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Store that the job works."""
        self._beat()

    def phase(self, status: Status) -> None:
        """Store that the job works, and at once that it waits, as nothing follows for as long as it does."""
        self._beat(now=status.waiting)

    def chosen(self, status: Status) -> None:
        """Store that the job works."""
        self._beat()

    def interim(self, report: Callable[[], Report]) -> None:
        """Store the report of a job that goes on, which may be killed before it has another."""
        if time.monotonic() - self._reported > _REPORT_S:
            self._store(report=report())
            self._reported = time.monotonic()

    def end(self, state: str, why: str = "") -> None:
        """Store the state in which the job ends, and what ended it before its time."""
        self._store(state, ended=why)

    def finished(self, report: Report) -> None:
        """Store the report of a job that has ended."""
        gains = {each.model: each.gain.to_json() for each in report.models if each.gain is not None}
        said = json.loads(self.row.status) | {"gains": gains}
        self.row = replace(self.row, status=json.dumps(said))
        self.database.update_job(self.row, json.dumps(report.to_json()))

    def _beat(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._said > HEARTBEAT_S:
            self._store()

    def _store(self, state: str = JobRow.RUNNING, report: Report | None = None, ended: str = "") -> None:
        self._said = time.monotonic()
        meter, version = self.status.meter, {"version": _version(), "ended": ended}
        said = json.dumps(self.status.to_json() | version)
        self.row = replace(self.row, state=state, elapsed_s=meter.elapsed_s, status=said)
        self.database.update_job(self.row, None if report is None else json.dumps(report.to_json()))


def _version() -> str:
    return versions_of(("autotune",))["autotune"]


def finished_before(database: Database, fingerprint: str, budget: Budget) -> tuple[JobState, Report] | None:
    """Return the newest job of a fingerprint with its report, if it has come to its end within the same budget and
    by this version; None where there is work left to do."""
    of_it = [state for state in states_of(database.jobs()) if state.job.fingerprint == fingerprint]
    last = of_it[-1] if of_it else None
    if last is None or last.life is not Life.DONE:
        return None
    if (last.said.get("budget"), last.said.get("version")) != (str(budget), _version()):
        return None
    text = database.job_report(last.job.id)
    return (last, report_from(text, last.job.id)) if text else None


__all__ = ["Heartbeat", "finished_before"]
