"""Taking over the runs of another tuning database, and giving up those that no lookup can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, inspect, select

from autotune.database import rows, schema
from autotune.database.records import Key
from autotune.database.store import Database

_CHUNK = 500


@dataclass(frozen=True)
class MergeReport:
    """How many runs were new, and how many were there already."""

    new: int
    known: int

    def __str__(self) -> str:
        return f"{self.new} new runs, {self.known} were known"


def merge(into: Database, source: Database) -> MergeReport:
    """Copy every run and contest of ``source`` that ``into`` does not have, with confirmations.

    A run that both have keeps the reading of ``into``. Interrupted, it is simply run again.
    """
    with source._reading() as connection:
        known = (schema.workloads, schema.targets, schema.spaces, schema.jobs)
        tables = [(table, _all(connection, table)) for table in known]
        runs = _all(connection, schema.runs)
        readings: dict[int, list[dict[str, Any]]] = {}
        for row in _all(connection, schema.verdicts):
            readings.setdefault(row["run_id"], []).append(row)
        contests = _all(connection, schema.contests)
        layers = _all(connection, schema.layers)
    with into._writing() as connection:
        for table, values in tables:
            for row in values:
                into._insert(connection, table, row)
        for row in layers:
            into._insert(connection, schema.layers, row)
        for row in contests:
            into._insert(connection, schema.contests, {k: v for k, v in row.items() if k != "id"})
    new = 0
    for start in range(0, len(runs), _CHUNK):
        with into._writing() as connection:
            for row in runs[start : start + _CHUNK]:
                new += _copy(into, connection, row, readings.get(row["id"], []))
    return MergeReport(new, len(runs) - new)


def _all(connection: Any, table: Any) -> list[dict[str, Any]]:
    if not inspect(connection).has_table(table.name):
        return []  # a source of an older version
    return [dict(row._mapping) for row in connection.execute(select(table))]


def _copy(into: Database, connection: Any, run: dict[str, Any], readings: list[dict[str, Any]]) -> bool:
    if not into._insert(connection, schema.runs, {k: v for k, v in run.items() if k != "id"}):
        return False
    key = Key(run["workload_key"], run["target_key"], run["space_key"])
    same = select(schema.runs.c.id).where(rows.of(key), schema.runs.c.trace_key == run["trace_key"])
    number = connection.execute(same).scalar_one()
    for reading in readings:
        values = {**reading, "run_id": number}
        del values["id"]
        connection.execute(insert(schema.verdicts).values(values))
    return True


def keys(database: Database) -> list[Key]:
    """Every workload, target and space that has runs."""
    columns = schema.runs.c
    query = select(columns.workload_key, columns.target_key, columns.space_key).distinct()
    with database._reading() as connection:
        return [Key(*row) for row in connection.execute(query)]


def forget(database: Database, unwanted: Iterable[Key]) -> int:
    """Delete all runs of the given keys; how many they were."""
    count = 0
    with database._writing() as connection:
        for key in unwanted:
            mine = select(schema.runs.c.id).where(rows.of(key))
            again = schema.verdicts
            connection.execute(delete(again).where(again.c.run_id.in_(mine)))
            count += connection.execute(delete(schema.runs).where(rows.of(key))).rowcount
    return count


__all__ = ["MergeReport", "forget", "keys", "merge"]
