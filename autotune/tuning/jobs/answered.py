"""Jobs that are asked for again after they have come to their end: their reports are shown, nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from autotune.database import Database
from autotune.database.records import JobRow
from autotune.foreign import parse_json
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.heartbeat import ASKED, current_version
from autotune.tuning.jobs.owner import JobState, Life, ago, states_of
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress
from autotune.tuning.report.stored import report_from


def answered_before(database: Database, asked: str, budget: Budget, shown: Progress) -> Report | None:
    """Return the report of the newest job of a key and show how to go on, if it has come to its end within the same
    budget and by this version; None where there is work left to do."""
    last = ended_before(database, asked, budget)
    found = [] if last is None else reports_of(database, [last.job.id])
    if last is None or not found:
        return None
    shown.preparing(how_to_go_on(last))
    shown.finished(found[0])
    shown.close()
    return found[0]


def ended_before(database: Database, asked: str, budget: Budget) -> JobState | None:
    """Return the newest job of a key, if it has come to its end within the same budget and by this version."""
    last = next((job for job in reversed(states_of(database.jobs())) if _asked(job.job) == asked), None)
    if last is None or last.life is not Life.DONE:
        return None
    same = (last.said.get("requested"), last.said.get("version")) == (budget.requested, current_version())
    return last if same else None


def reports_of(database: Database, jobs: Sequence[str]) -> list[Report]:
    """Return the reports of those of some jobs that have one."""
    texts = [(job, database.job_report(job)) for job in jobs]
    return [report_from(text, job) for job, text in texts if text]


def how_to_go_on(last: JobState) -> str:
    """Return the line above what an ended job has found."""
    return (
        f"this job ended {ago(last.silent_s)}, within the same budget: this is its report, nothing is measured "
        "now; --again (again=True) goes on with a new job from what is known, as another --budget does"
    )


def _asked(job: JobRow) -> str | None:
    with suppress(ValueError):
        found = parse_json(job.options)
        return found.get(ASKED) if isinstance(found, dict) else None
    return None


__all__ = ["answered_before", "ended_before", "how_to_go_on", "reports_of"]
