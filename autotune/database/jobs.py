"""Tuning jobs: claiming one that its process left, so that no two processes work on the same; lists, reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.engine import Connection

from autotune.database import rows, schema
from autotune.database.records import JobRow
from autotune.database.session import Session

COLUMNS = tuple(column for column in schema.jobs.c if column.name != "report")
"""The columns of :class:`JobRow`: all but the report, which is large."""
_FEW = 100
"""Of more jobs it takes longer to name them than to count the runs of all."""


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
    query = select(job, func.count()).group_by(job)
    query = query.where(job.in_(jobs)) if len(jobs) <= _FEW else query
    found = rows.counts(connection.execute(query))
    return {name: found.get(name, 0) for name in jobs}


def names(connection: Connection, workloads: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the dispatches of workloads; of the jobs that have the same, which are most, one is read."""
    columns = schema.layers.c
    first = func.min(columns.job).label("job")
    query: Select[Any] = select(columns.workload_key, columns.names, first).order_by(first)
    query = query.where(columns.workload_key.in_(workloads)).group_by(columns.workload_key, columns.names)
    found: dict[str, dict[str, None]] = {}
    for row in connection.execute(query):
        found.setdefault(row.workload_key, {}).update(dict.fromkeys(rows.layers_from_row(row)))
    return {key: list(names) for key, names in found.items()}


def with_workload(connection: Connection, workload: str, most: int) -> dict[str, str]:
    """Return the models of the newest jobs that have a workload, by the jobs' ids."""
    columns = schema.jobs.c
    of_it = schema.layers.join(schema.jobs, schema.layers.c.job == columns.id)
    query = select(columns.id, columns.model).select_from(of_it)
    query = query.where(schema.layers.c.workload_key == workload)
    newest = query.order_by(columns.created.desc(), columns.id).limit(most)
    return {row.id: row.model for row in connection.execute(newest)}


__all__ = ["COLUMNS", "claim", "names", "store", "trials", "with_workload"]
