"""Tuning jobs: claiming one that its process left, so that no two processes work on the same; lists, reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from autotune.database import rows, schema
from autotune.database.records import JobRow
from autotune.database.session import Session

COLUMNS = tuple(column for column in schema.jobs.c if column.name != "report")
"""The columns of :class:`JobRow`: all but the report, which is large."""


def claim(session: Session, fresh: JobRow, alive: Callable[[str], bool]) -> JobRow:
    """See :meth:`autotune.Database.claim_job`."""
    now, columns = time.time(), schema.jobs.c
    unfinished = (
        select(*COLUMNS)
        .where(columns.fingerprint == fresh.fingerprint, columns.state != JobRow.DONE)
        .order_by(columns.created.desc())
        .with_for_update()  # on a server; SQLite has one writer at a time
    )

    def take(connection: Connection) -> JobRow:
        for row in connection.execute(unfinished):
            job = rows.job_from_row(row)
            if job.state == JobRow.STOPPED or not alive(job.owner):
                taken = replace(job, owner=fresh.owner, state=JobRow.RUNNING, updated=now)
                store(connection, taken)
                return taken
        connection.execute(insert(schema.jobs).values(rows.to_job_row(fresh)))
        return fresh

    def taken_before(connection: Connection) -> JobRow | None:
        jobs = [rows.job_from_row(row) for row in connection.execute(unfinished)]
        mine = (
            job for job in jobs if job.owner == fresh.owner and (job.id == fresh.id or job.updated == now)
        )
        return next(mine, None)

    return session.write(take, taken_before)


def store(connection: Connection, job: JobRow, report: str | None = None) -> None:
    """Store what may change of a job: its state, owner, elapsed and last time, and what it says; with its report."""
    names = ("state", "owner", "elapsed_s", "updated", "status")
    changed = {name: getattr(job, name) for name in names} | ({} if report is None else {"report": report})
    connection.execute(update(schema.jobs).where(schema.jobs.c.id == job.id).values(changed))


def trials(connection: Connection, jobs: Sequence[str]) -> dict[str, int]:
    """Return the number of runs of each of these jobs, out of the index of runs by job."""
    job = schema.runs.c.job
    query = select(job, func.count()).where(job.in_(jobs)).group_by(job)
    return {**dict.fromkeys(jobs, 0), **rows.counts(connection.execute(query))}


__all__ = ["COLUMNS", "claim", "store", "trials"]
