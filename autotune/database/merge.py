"""Taking over the runs of another tuning database, and giving up those that no lookup can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Table, delete, select
from sqlalchemy.engine import Connection

from autotune.database import rows, schema
from autotune.database.records import Key
from autotune.database.session import insert_new
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
    """Copy every run and comparison of ``source`` that ``into`` does not have.

    Of a run that both have the reading of ``into`` stays. Interrupted, it is simply run again.
    """
    found = source.session.read(_everything)
    new = dict[Table, int]()
    for table, values in found.items():
        parts = [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]
        new[table] = sum(into.session.write(partial(_copy, table=table, values=part)) for part in parts)
    return MergeReport(new[schema.runs], len(found[schema.runs]) - new[schema.runs])


_TABLES = (
    schema.workloads,
    schema.targets,
    schema.spaces,
    schema.jobs,
    schema.layers,
    schema.runs,
    schema.comparisons,
    schema.readings,
    schema.plans,
)
"""What is referred to comes before what refers to it."""


def _everything(connection: Connection) -> dict[Table, list[dict[str, Any]]]:
    """All rows of every table."""
    query = {table: select(table) for table in _TABLES} | {schema.readings: rows.select_all_readings()}
    return {t: [dict(row._mapping) for row in connection.execute(q)] for t, q in query.items()}


def _copy(connection: Connection, table: Table, values: list[dict[str, Any]]) -> int:
    return sum(insert_new(connection, table, _renumbered(connection, table, row)) for row in values)


def _renumbered(connection: Connection, table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row to insert: without a number of its own, and with the number that its run has in this database."""
    if table not in (schema.runs, schema.comparisons, schema.readings, schema.plans):
        return row
    found = {name: value for name, value in row.items() if name in table.c and name != "id"}
    if found.get("run_id") is not None:
        space, trace = ("key", "name") if table is schema.comparisons else ("space_key", "trace_key")
        key = Key(row["workload_key"], row["target_key"], row[space])
        found["run_id"] = connection.execute(rows.run_number(key, row[trace])).scalar_one()
    return found


def forget(database: Database, unwanted: Iterable[Key]) -> int:
    """Delete all runs of the given keys; how many they were."""
    keys = list(unwanted)

    def delete_all(connection: Connection) -> int:
        count = 0
        for key in keys:
            mine = select(schema.runs.c.id).where(rows.of(key))
            for table in (schema.comparisons, schema.readings):
                connection.execute(delete(table).where(table.c.run_id.in_(mine)))
            count += connection.execute(delete(schema.runs).where(rows.of(key))).rowcount
        return count

    return database.session.write(delete_all)


__all__ = ["MergeReport", "forget", "merge"]
