"""Damage of a database: the file itself, and each row that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.engine import Connection, Row

from autotune.database import jobs, rows, schema, statements
from autotune.database.session import STREAMED
from autotune.errors import DatabaseError


def damage_of(connection: Connection) -> list[str]:
    """Return a line for each thing that SQLite finds wrong with its file, and for each damaged row."""
    lines = list(_of_file(connection)) if connection.dialect.name == "sqlite" else []
    queries: list[tuple[Select[Any], Callable[[Row[Any]], object]]] = [
        (select(schema.workloads), rows.workload_from_row),
        (select(schema.targets), rows.target_from_row),
        (select(*jobs.COLUMNS), rows.job_from_row),
        (statements.select_runs(), lambda row: rows.from_row(row).config),
        (select(schema.layers), rows.layers_from_row),
        (select(schema.comparisons), rows.comparison_from_row),
        (statements.select_all_readings(), rows.reading_from_row),
    ]
    for query, read in queries:
        for row in connection.execute(query, execution_options=STREAMED):
            try:
                read(row)
            except DatabaseError as error:
                lines.append(str(error).removesuffix(rows.ADVICE))
    return lines


def _of_file(connection: Connection) -> Iterator[str]:
    found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    yield from (str(line) for line in found if line != "ok")
    yield from (f"row {row[1]} of {row[0]} refers to a missing {row[2]}" for row in orphans)


__all__ = ["damage_of"]
