"""Storing what was measured inside models: comparisons, crashes and readings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, insert, select, update
from sqlalchemy.engine import Connection

from autotune.database import rows, schema, statements
from autotune.database.columns import storable
from autotune.database.records import WHOLE, Comparison, Key, Origin, Outcome, Reading, crash_message
from autotune.database.session import Session, insert_new
from autotune.errors import DatabaseError

_INSIDE = (schema.readings, schema.comparisons)


def store_comparison(
    session: Session, place: Mapping[str, str], candidates: Sequence[Comparison], inside: str, job: str
) -> None:
    """Store the candidates of a site, whose columns ``place`` has (workload, target, kind of site), all at once."""
    if sum(candidate.won for candidate in candidates) != 1:
        raise DatabaseError("a comparison needs one winner")
    if place["site"] == "schedule" and any(candidate.run is None for candidate in candidates):
        raise DatabaseError("a comparison of schedules needs runs that came from the database")
    common = {**place, **_common(inside, job)}
    values = [rows.comparison_to_row(candidate) | common for candidate in candidates]
    columns = schema.comparisons.c

    def known(connection: Connection) -> bool | None:
        same = [columns[name] == common[name] for name in ("workload_key", "site", "created")]
        return connection.execute(select(columns.id).where(*same)).first() is not None or None

    def insert_all(connection: Connection) -> bool:
        for row in values:
            connection.execute(insert(schema.comparisons).values(row))
        return True

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
    """Leave out runs of a job that worked on a host, but for defaults and what was measured inside a model."""
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
                figures = {name: getattr(reading, name) for name in ("ratio", "rounds", "default_ns", "load")}
                insert_new(connection, schema.readings, {"run_id": number, **figures, **common})

    session.write(insert_all)


def _common(inside: str, job: str) -> dict[str, Any]:
    """Return the columns that say where something was read, and when."""
    return {"inside": storable(inside), "job": job or None, "created": time.time()}


__all__ = ["store_comparison", "store_crashes", "store_parts", "store_readings"]
