"""Taking over the runs of another tuning database, and giving up those that no lookup can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Table, delete, insert, inspect, select
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
    """Copy every run and contest of ``source`` that ``into`` does not have, with confirmations.

    A run that both have keeps the reading of ``into``. Interrupted, it is simply run again.
    """
    found = source.session.read(_everything)
    readings: dict[int, list[dict[str, Any]]] = {}
    for row in found[schema.verdicts]:
        readings.setdefault(row["run_id"], []).append(row)

    def copy_descriptions(connection: Connection) -> None:
        for table in _DESCRIPTIONS:
            for row in found[table]:
                insert_new(connection, table, _without_id(table, row))

    into.session.write(copy_descriptions)
    runs, new = found[schema.runs], 0
    for start in range(0, len(runs), _CHUNK):
        part = runs[start : start + _CHUNK]
        new += into.session.write(partial(_copy_all, runs=part, readings=readings))
    return MergeReport(new, len(runs) - new)


_DESCRIPTIONS = (
    schema.workloads,
    schema.targets,
    schema.spaces,
    schema.jobs,
    schema.layers,
    schema.contests,
)
"""What runs refer to comes before what refers to it."""


def _everything(connection: Connection) -> dict[Table, list[dict[str, Any]]]:
    """All rows of every table; none of those that an older version did not have."""
    known = set(inspect(connection).get_table_names())
    tables = (*_DESCRIPTIONS, schema.runs, schema.verdicts)
    return {
        table: [dict(row._mapping) for row in connection.execute(select(table))]
        if table.name in known
        else []
        for table in tables
    }


def _without_id(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row whose number is the database's own affair, without it."""
    numbered = table in (schema.contests, schema.runs, schema.verdicts)
    return {name: value for name, value in row.items() if not (numbered and name == "id")}


def _copy_all(
    connection: Connection, runs: list[dict[str, Any]], readings: dict[int, list[dict[str, Any]]]
) -> int:
    return sum(_copy(connection, run, readings.get(run["id"], [])) for run in runs)


def _copy(connection: Connection, run: dict[str, Any], readings: list[dict[str, Any]]) -> bool:
    if not insert_new(connection, schema.runs, _without_id(schema.runs, run)):
        return False
    key = Key(run["workload_key"], run["target_key"], run["space_key"])
    same = select(schema.runs.c.id).where(rows.of(key), schema.runs.c.trace_key == run["trace_key"])
    number = connection.execute(same).scalar_one()
    for reading in readings:
        values = {**_without_id(schema.verdicts, reading), "run_id": number}
        connection.execute(insert(schema.verdicts).values(values))
    return True


def forget(database: Database, unwanted: Iterable[Key]) -> int:
    """Delete all runs of the given keys; how many they were."""
    keys = list(unwanted)

    def delete_all(connection: Connection) -> int:
        count = 0
        for key in keys:
            mine = select(schema.runs.c.id).where(rows.of(key))
            again = schema.verdicts
            connection.execute(delete(again).where(again.c.run_id.in_(mine)))
            count += connection.execute(delete(schema.runs).where(rows.of(key))).rowcount
        return count

    return database.session.write(delete_all)


__all__ = ["MergeReport", "forget", "merge"]
