"""Storing what was measured inside models: comparisons, crashes and readings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, delete, insert, select, update
from sqlalchemy.engine import Connection

from autotune.database import rows, schema, statements
from autotune.database.columns import storable
from autotune.database.records import (
    RUNS,
    WHOLE,
    Comparison,
    Key,
    Origin,
    Outcome,
    Reading,
    Run,
    crash_message,
)
from autotune.database.session import Session, insert_new
from autotune.errors import DatabaseError

_INSIDE = (schema.readings, schema.comparisons)
_FIGURES = ("ratio", "rounds", "default_ns", "load", "host")


def store_runs(session: Session, runs: Sequence[Run]) -> list[bool]:
    """Store runs in one transaction; False for each whose schedule was recorded before with the same code."""
    values = [RUNS.to_row(run) for run in runs]

    def mine(connection: Connection) -> list[bool] | None:
        columns = schema.runs.c
        found = list[bool]()
        for run, row in zip(runs, values, strict=True):
            stored = select(columns.created, columns.host, columns.job).where(
                statements.of(run.key), columns.trace_key == run.trace_key, columns.code == run.code
            )
            known = connection.execute(stored).first()
            found.append(known is not None and tuple(known) == (row["created"], row["host"], row["job"]))
        return found if any(found) else None

    def insert_all(connection: Connection) -> list[bool]:
        return [insert_new(connection, schema.runs, row) for row in values]

    return session.write(insert_all, mine)


def store_comparisons(
    session: Session,
    sites: Mapping[tuple[str, str, str], Sequence[Comparison]],
    inside: str,
    job: str,
) -> None:
    """Store the candidates of sites by their workloads, targets and kinds, all in one transaction."""
    common = _common(inside, job)
    values = list[dict[str, Any]]()
    for (workload, target, site), candidates in sites.items():
        if sum(candidate.won for candidate in candidates) != 1:
            raise DatabaseError("a comparison needs one winner")
        if site == "schedule" and any(candidate.run is None for candidate in candidates):
            raise DatabaseError("a comparison of schedules needs runs that came from the database")
        place = {"workload_key": workload, "target_key": target, "site": site}
        values += [rows.comparison_to_row(candidate) | place | common for candidate in candidates]
    columns = schema.comparisons.c

    def known(connection: Connection) -> bool | None:
        same = [columns[name] == values[0][name] for name in ("workload_key", "site", "created")]
        return connection.execute(select(columns.id).where(*same)).first() is not None or None

    def insert_all(connection: Connection) -> bool:
        for row in values:
            connection.execute(insert(schema.comparisons), row)
        return True

    if values:
        session.write(insert_all, known)


def store_parts(
    session: Session, parts: Mapping[tuple[str, str, str], Comparison], inside: str, job: str
) -> None:
    """Store the parts of candidates in a measurement of a whole model."""
    common = _common(inside, job)

    def insert_all(connection: Connection) -> None:
        for (workload, target, site), part in parts.items():
            place = {"workload_key": workload, "target_key": target, "site": site + WHOLE}
            insert_new(connection, schema.comparisons, rows.comparison_to_row(part) | place | common)

    session.write(insert_all)


def distrust(connection: Connection, job: str, host: str, reason: str) -> int:
    """Drop what a host alone has measured inside a model for a job, then leave out the runs that worked on it, but for
    defaults and what others have measured inside a model."""
    readings = schema.readings.c
    connection.execute(delete(schema.readings).where(readings.job == job, readings.host == host))
    runs = schema.runs.c
    inside = [select(table.c.run_id).where(table.c.run_id == runs.id) for table in _INSIDE]
    theirs = and_(runs.job == job, runs.host == host, runs.outcome == Outcome.OK.value)
    alone = [runs.origin != Origin.DEFAULT.value, *(~each.exists() for each in inside)]
    nothing = dict.fromkeys(column.name for column in runs if column.name.startswith("latency_"))
    values = {**nothing, "outcome": Outcome.DISTRUSTED.value, "message": reason}
    return connection.execute(update(schema.runs).where(theirs, *alone).values(values)).rowcount


def store_crashes(session: Session, key: Key, traces: Mapping[str, str], inside: str, job: str) -> None:
    """Store that runs of a key ended their process inside a model; ``traces`` has the reasons."""
    values: dict[str, Any] = {"workload_key": key.workload, "target_key": key.target, "key": key.space}
    values |= {"site": "schedule", "won": False, "n": 0, **_common(inside, job)}

    def insert_all(connection: Connection) -> None:
        for trace, reason in traces.items():
            number = connection.execute(
                statements.run_number(), statements.parameters(key, trace=trace)
            ).scalar()
            if number is not None:
                message = storable(crash_message(reason))
                row = {**values, "name": trace, "run_id": number, "message": message}
                insert_new(connection, schema.comparisons, row)

    session.write(insert_all)


def store_readings(session: Session, key: Key, readings: Sequence[Reading], inside: str, job: str) -> None:
    """Store the in-model measurements of runs of a key."""
    common = {**rows.key_columns(key), **_common(inside, job)}

    def insert_all(connection: Connection) -> None:
        for reading in readings:
            number = connection.execute(
                statements.run_number(), statements.parameters(key, trace=reading.trace_key)
            ).scalar()
            if number is not None:
                figures = {name: getattr(reading, name) for name in _FIGURES}
                insert_new(connection, schema.readings, {"run_id": number, **figures, **common})

    session.write(insert_all)


def _common(inside: str, job: str) -> dict[str, Any]:
    """Return the columns that say where something was read, and when."""
    return {"inside": storable(inside), "job": job or None, "created": time.time()}


__all__ = ["store_comparisons", "store_crashes", "store_parts", "store_readings", "store_runs"]
