"""Taking over the runs of another tuning database, and giving up those that no lookup can reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Select, Table, and_, delete, select, update
from sqlalchemy.engine import Connection, Row

from autotune.database import schema, statements
from autotune.database.conflict import Conflict, Prefer, conflict
from autotune.database.records import Key, Run
from autotune.database.session import STREAMED, insert_new
from autotune.database.store import Database
from autotune.suggest import counted


@dataclass(frozen=True)
class MergeReport:
    """The number of new runs, of those that were there already, and of those among them that were measured
    differently."""

    new: int
    known: int
    conflicts: tuple[Conflict, ...] = ()

    def __str__(self) -> str:
        differ = f", {len(self.conflicts)} of these read differently" if self.conflicts else ""
        return f"{counted(self.new, 'new run')}, {self.known} known{differ}"


def merge(into: Database, source: Database, prefer: Prefer = Prefer.MINE) -> MergeReport:
    """Copy every run and comparison of ``source`` that ``into`` does not have.

    Of a run that both have the measurement of ``into`` stays, unless the intervals of both do not overlap and
    ``prefer`` says otherwise. Interrupted, it is simply run again.
    """
    new, conflicts, runs = Counter[Table](), dict[Conflict, None](), 0

    def copy_all(connection: Connection) -> None:
        """Copy part by part: a million runs have gigabytes of schedules. Done again, it finds what it has copied."""
        nonlocal runs
        runs = 0
        for table, query in _everything().items():
            for part in connection.execute(query, execution_options=STREAMED).partitions():
                count, differing = into.session.write(partial(_copy, table=table, values=part, prefer=prefer))
                new[table] += count
                conflicts.update(dict.fromkeys(differing))
                runs += len(part) if table is schema.runs else 0

    source.session.read(copy_all)
    return MergeReport(new[schema.runs], runs - new[schema.runs], tuple(conflicts))


TABLES = (
    schema.workloads,
    schema.targets,
    schema.spaces,
    schema.jobs,
    schema.layers,
    schema.runs,
    schema.comparisons,
    schema.readings,
)
"""The tables in order: a table comes after those that it refers to."""
_NUMBERED = (schema.runs, schema.comparisons, schema.readings)
"""Those whose rows have numbers of their own."""


def _everything() -> dict[Table, Select[Any]]:
    """Return all rows of every table."""
    joined = schema.comparisons.outerjoin(schema.runs, schema.comparisons.c.run_id == schema.runs.c.id)
    of_runs = {
        schema.readings: statements.select_all_readings(),
        schema.comparisons: select(schema.comparisons, schema.runs.c.code).select_from(joined),
    }
    return {table: select(table) for table in TABLES} | of_runs


def _copy(
    connection: Connection, table: Table, values: Sequence[Row[Any]], prefer: Prefer
) -> tuple[int, list[Conflict]]:
    """Insert the rows that are not there; how many, and which runs that are there were read differently."""
    count, conflicts = 0, list[Conflict]()
    for row in values:
        own = _renumbered(connection, table, dict(row._mapping))
        if insert_new(connection, table, own):
            count += 1
        elif table is schema.runs:
            conflicts += _settled(connection, row, own, prefer)
    return count, conflicts


def _settled(
    connection: Connection, theirs: Row[Any], values: Mapping[str, Any], prefer: Prefer
) -> list[Conflict]:
    """Return the conflict with a run that is there, if there is one; its reading is replaced if theirs is preferred."""
    key = Key(theirs.workload_key, theirs.target_key, theirs.space_key)
    same = and_(
        statements.of(key), schema.runs.c.trace_key == theirs.trace_key, schema.runs.c.code == theirs.code
    )
    mine = connection.execute(select(schema.runs).where(same)).one()
    found = conflict(mine, theirs, prefer)
    if found is not None and found.taken:
        connection.execute(update(schema.runs).where(same).values(values))
    return [] if found is None else [found]


def _renumbered(connection: Connection, table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row to insert: without a number of its own, and with the number that its run has in this database."""
    if table not in _NUMBERED:
        return row
    found = {name: value for name, value in row.items() if name in table.c and name != "id"}
    if found.get("run_id") is not None:
        space, trace = ("key", "name") if table is schema.comparisons else ("space_key", "trace_key")
        key = Key(row["workload_key"], row["target_key"], row[space])
        mine = statements.parameters(key, trace=row[trace])
        numbers = {of.code: of.id for of in connection.execute(statements.run_numbers(), mine)}
        found["run_id"] = numbers[row["code"]]
    return found


@dataclass(frozen=True)
class DiffReport:
    """The common runs of two databases, and the keys for which they use different schedules."""

    here: int
    there: int
    both: int
    conflicts: tuple[Conflict, ...]
    used: tuple[Key, ...]

    def __str__(self) -> str:
        agree = self.both - len(self.conflicts)
        return (
            f"{self.here} runs only here, {self.there} only there; of {self.both} in both {agree} agree, "
            f"{len(self.conflicts)} read differently; "
            f"another schedule is used for {counted(len(self.used), 'workload')}"
        )


def diff(here: Database, there: Database) -> DiffReport:
    """Compare the runs of two databases, and the schedules that lookups find."""
    mine, theirs = (_runs_of(database) for database in (here, there))
    both = mine.keys() & theirs.keys()
    pairs = (conflict(mine[name], theirs[name], Prefer.MINE) for name in sorted(both))
    keys = sorted({*here.tuned_keys()} & {*there.tuned_keys()}, key=str)
    used = [key for key in keys if _used(here, key) != _used(there, key)]
    conflicts = tuple(found for found in pairs if found is not None)
    return DiffReport(len(mine) - len(both), len(theirs) - len(both), len(both), conflicts, tuple(used))


def _runs_of(database: Database) -> dict[tuple[str, ...], Any]:
    columns = schema.runs.c
    named = (columns.workload_key, columns.target_key, columns.space_key, columns.trace_key, columns.code)
    read = (columns.outcome, columns.latency_median_ns, columns.latency_spread_ns, columns.n, columns.created)
    found = database.session.read(lambda connection: list(connection.execute(select(*named, *read))))
    return {tuple(row[:5]): row for row in found}


def _used(database: Database, key: Key) -> str | None:
    run = database.best(key.workload, key.target, key.space)
    return run.trace_key if isinstance(run, Run) else None


def forget(database: Database, unwanted: Iterable[Key]) -> int:
    """Delete all runs of the given keys; how many they were."""
    keys = list(unwanted)

    def delete_all(connection: Connection) -> int:
        count = 0
        for key in keys:
            mine = select(schema.runs.c.id).where(statements.of(key))
            for table in (schema.comparisons, schema.readings):
                connection.execute(delete(table).where(table.c.run_id.in_(mine)))
            count += connection.execute(delete(schema.runs).where(statements.of(key))).rowcount
        return count

    return database.session.write(delete_all)


__all__ = ["TABLES", "DiffReport", "MergeReport", "diff", "forget", "merge"]
