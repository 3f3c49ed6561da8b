"""SQL queries over runs, and the mapping between rows and :class:`Run`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, null, select
from sqlalchemy.engine import Row

from autotune.database import schema
from autotune.database.records import ContestRow, Key, Latency, Origin, Outcome, Run

_PLAIN = (
    "trace_key",
    "trace_json",
    "config_json",
    "error",
    "message",
    "host",
    "versions",
    "seed",
)
"""Fields of a run that have a column of the same name."""


def of(key: Key) -> ColumnElement[bool]:
    """The condition that a run belongs to ``key``."""
    columns = schema.runs.c
    return and_(
        columns.workload_key == key.workload,
        columns.target_key == key.target,
        columns.space_key == key.space,
    )


def select_runs(verdicts: bool = True) -> Select[Any]:
    """All columns of runs, and what the latest confirmation read of each and where, if there are ``verdicts``."""
    again = schema.verdicts.c

    def latest(column: ColumnElement[Any]) -> ColumnElement[Any]:
        if not verdicts:
            return null()
        mine = select(column).where(again.run_id == schema.runs.c.id)
        return mine.order_by(again.id.desc()).limit(1).scalar_subquery()

    confirmed_ns = latest(again.latency_min_ns).label("confirmed_ns")
    return select(schema.runs, confirmed_ns, latest(again.inside).label("inside"))


def select_fastest(key: Key, count: int, verdicts: bool = True) -> Select[Any]:
    """The fastest runs of a key, by their first reading."""
    columns = schema.runs.c
    ok = select_runs(verdicts).where(of(key), columns.outcome == Outcome.OK.value)
    return ok.order_by(columns.latency_min_ns, columns.id).limit(count)


def select_default(key: Key, verdicts: bool = True) -> Select[Any]:
    """The first run of a key's default schedule that was timed."""
    columns = schema.runs.c
    return select_fastest(key, 1, verdicts).where(columns.origin == Origin.DEFAULT.value)


def select_winner(key: Key) -> Select[Any]:
    """The run that won the newest confirmation of a key."""
    columns = schema.verdicts.c
    same = and_(
        columns.workload_key == key.workload,
        columns.target_key == key.target,
        columns.space_key == key.space,
        columns.won,
    )
    newest = select(columns.run_id).where(same).order_by(columns.id.desc()).limit(1).scalar_subquery()
    return select_runs().where(schema.runs.c.id == newest)


def key_columns(key: Key) -> dict[str, str]:
    """The columns of a key."""
    return {"workload_key": key.workload, "target_key": key.target, "space_key": key.space}


def select_outcomes() -> Select[Any]:
    """Number of runs by outcome."""
    return select(schema.runs.c.outcome, func.count()).group_by(schema.runs.c.outcome)


def counts(rows: Iterable[Any]) -> dict[str, int]:
    """Rows of name and count as a dictionary."""
    return {str(row[0]): int(row[1]) for row in rows}


def stats(latency: Latency | None) -> dict[str, Any]:
    """The latency columns."""
    if latency is None:
        return {"n": 0}
    return {
        "n": latency.n,
        "latency_min_ns": latency.min_ns,
        "latency_median_ns": latency.median_ns,
        "latency_spread_ns": latency.spread_ns,
    }


def to_row(run: Run) -> dict[str, Any]:
    """The columns of a run that is about to be stored."""
    return {
        **{name: getattr(run, name) for name in _PLAIN},
        **stats(run.latency),
        **key_columns(run.key),
        "outcome": run.outcome.value,
        "origin": run.origin.value,
        "job": run.job or None,
        "created": run.created or time.time(),
    }


def from_row(row: Row[Any]) -> Run:
    """A run from a row of :func:`select_runs`."""
    timed = row.latency_min_ns is not None
    numbers = (row.n, row.latency_min_ns, row.latency_median_ns, row.latency_spread_ns)
    return Run(
        key=Key(row.workload_key, row.target_key, row.space_key),
        **{name: getattr(row, name) for name in _PLAIN},
        outcome=Outcome(row.outcome),
        origin=Origin(row.origin),
        latency=Latency(*numbers) if timed else None,
        job=row.job or "",
        created=row.created,
        id=row.id,
        confirmed_ns=row.confirmed_ns,
        inside=row.inside or "",
    )


def select_contest(workload: str, target: str) -> Select[Any]:
    """The entries of the newest contest of a workload on a target."""
    columns = schema.contests.c
    same = and_(columns.workload_key == workload, columns.target_key == target)
    newest = select(func.max(columns.created)).where(same).scalar_subquery()
    return select(schema.contests).where(same, columns.created == newest).order_by(columns.id)


def contest_from_row(row: Row[Any]) -> ContestRow:
    """An entry from a row of :func:`select_contest`."""
    numbers = (row.n, row.latency_min_ns, row.latency_median_ns, row.latency_spread_ns)
    latency = Latency(*numbers) if row.latency_min_ns is not None else None
    return ContestRow(row.name, row.key, latency, row.error, row.message, row.created)
