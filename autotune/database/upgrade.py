"""Tables of an empty database, and of one that an older version made; several processes may do it at once.

Alembic, which comes with Optuna, would do the second part by a script a version, a table of its own beside ``meta`` and
copies of tables that SQLite cannot alter. All versions so far take no more than :func:`_take_over`, under a lock that
Alembic leaves to its caller. A stored database of each version holds this to its promise (``tests/database/versions``).
"""

from __future__ import annotations

import time
from collections.abc import Container

import sqlalchemy
from sqlalchemy import Table
from sqlalchemy.engine import Connection
from sqlalchemy.schema import AddConstraint, CreateTable

from autotune.database import schema
from autotune.database.columns import StoredColumn
from autotune.database.records import RUNS
from autotune.database.session import Session
from autotune.errors import DatabaseError, SchemaVersionError

_LOCK = 0x6175746F74756E65
"""Of PostgreSQL's advisory locks the one that is held while tables are made: "autotune" in ASCII."""
_CREATION_S = 5.0
"""Seconds that a reader waits for the tables of an empty database: another process may be making them."""


def prepare(session: Session) -> None:
    """Make the tables that are missing, unless only to read; raise where a database is no tuning database.

    Raises DatabaseError and SchemaVersionError.
    """
    found = session.read(_version)
    if not session.read_only and (found is None or _is_older(found)):
        session.write(_create, references=False)
        found = session.read(_version)
    begin = time.monotonic()
    while found is None and time.monotonic() - begin < _CREATION_S:
        time.sleep(0.02)
        found = session.read(_version)
    _check(found, session)


def _version(connection: Connection) -> str | None:
    """Return the version of the schema; None for an empty database, empty for one of something else."""
    names = sqlalchemy.inspect(connection).get_table_names()
    if schema.meta.name not in names:
        return "" if names else None
    known = schema.meta.c.name == "schema_version"
    return connection.execute(sqlalchemy.select(schema.meta.c.value).where(known)).scalar() or ""


def _create(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    found = _version(connection)  # another process may have been faster
    if found is None:
        schema.metadata.create_all(connection)
        row = {"name": "schema_version", "value": str(schema.VERSION)}
        connection.execute(schema.meta.insert().values(row))
    elif _is_older(found):
        _set_aside(connection)
        schema.metadata.create_all(connection)
        _take_over(connection)
        known = schema.meta.c.name == "schema_version"
        connection.execute(schema.meta.update().where(known).values(value=str(schema.VERSION)))


_VERDICTS = """
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns,
    latency_spread_ns, n, message, inside, job, created)
SELECT v.workload_key, v.target_key, 'schedule', r.trace_key, v.space_key, v.run_id, v.won, v.latency_min_ns,
    v.latency_median_ns, v.latency_spread_ns, v.n, '', v.inside, v.job, v.created
FROM verdicts v JOIN runs r ON r.id = v.run_id ORDER BY v.id
"""
_CONTESTS = """
INSERT INTO comparisons (workload_key, target_key, site, name, key, won, latency_min_ns, latency_median_ns,
    latency_spread_ns, n, error, message, inside, job, created)
SELECT c.workload_key, c.target_key, 'option', c.name, c.key, c.latency_min_ns IS NOT NULL AND c.id = (
        SELECT o.id FROM contests o
        WHERE o.workload_key = c.workload_key AND o.target_key = c.target_key AND o.created = c.created
            AND o.latency_min_ns IS NOT NULL
        ORDER BY o.latency_min_ns, o.id LIMIT 1
    ), c.latency_min_ns, c.latency_median_ns, c.latency_spread_ns, c.n, c.error, c.message, '', c.job, c.created
FROM contests c ORDER BY c.id
"""


_READINGS = """
CREATE TABLE readings_before AS
SELECT b.id, b.run_id, r.workload_key, r.target_key, r.space_key, b.ratio, b.rounds, b.default_ns, b.inside, b.job,
    b.created
FROM readings b JOIN runs r ON r.id = b.run_id
"""
_COLUMNS_OF_READINGS = (
    "run_id, workload_key, target_key, space_key, ratio, rounds, default_ns, inside, job, created"
)


def _set_aside(connection: Connection) -> None:
    """Make room for the readings with keys, which a version before 10 lacks."""
    inspector = sqlalchemy.inspect(connection)
    if schema.readings.name not in inspector.get_table_names():
        return
    present = {column["name"] for column in inspector.get_columns(schema.readings.name)}
    if "workload_key" not in present:
        connection.exec_driver_sql(_READINGS)
        connection.exec_driver_sql("DROP TABLE readings")


def _take_over(connection: Connection) -> None:
    """Add the columns of runs that an older version lacks and the indexes of later ones, bring back readings, and make
    comparisons of what versions 2 to 4 kept of algorithms and schedules, and 11 and 12 of placements; drop the tables
    of before."""
    inspector = sqlalchemy.inspect(connection)
    present = {column["name"] for column in inspector.get_columns(schema.runs.name)}
    for column in RUNS.columns:
        if column.name not in present:
            connection.exec_driver_sql(f"ALTER TABLE runs ADD COLUMN {_defined(connection, column)}")
    if "code" not in present:
        _tell_runs_by_code(connection)
    known = inspector.get_table_names()
    for table, copy in (("verdicts", _VERDICTS), ("contests", _CONTESTS)):
        if table in known:
            connection.exec_driver_sql(copy)
    if "readings_before" in known:
        columns = _COLUMNS_OF_READINGS
        connection.exec_driver_sql(
            f"INSERT INTO readings ({columns}) SELECT {columns} FROM readings_before ORDER BY id"
        )
    for longer in (schema.jobs, schema.comparisons, schema.readings):
        _add_columns(connection, longer, {column["name"] for column in inspector.get_columns(longer.name)})
    from autotune.database import old_tables

    old_tables.take_over(connection)
    for index in (*schema.runs.indexes, *schema.spaces.indexes, *schema.comparisons.indexes):
        index.create(connection, checkfirst=True)
    connection.exec_driver_sql("DROP INDEX IF EXISTS of_job")
    for table in ("verdicts", "contests", "confirmations", "readings_before"):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")


def _tell_runs_by_code(connection: Connection) -> None:
    """Have runs of a schedule told by their code, too: a constraint that SQLite cannot alter."""
    if connection.dialect.name == "postgresql":
        unique = next(c for c in schema.runs.constraints if c.name == "one_run_each")
        connection.exec_driver_sql("ALTER TABLE runs DROP CONSTRAINT one_run_each")
        connection.execute(AddConstraint(unique, isolate_from_table=False))
        return
    made = str(CreateTable(schema.runs).compile(dialect=connection.dialect))
    columns = ", ".join(column.name for column in schema.runs.c)
    connection.exec_driver_sql(made.replace("CREATE TABLE runs ", "CREATE TABLE runs_by_code ", 1))
    connection.exec_driver_sql(f"INSERT INTO runs_by_code ({columns}) SELECT {columns} FROM runs ORDER BY id")
    connection.exec_driver_sql("DROP TABLE runs")
    connection.exec_driver_sql("ALTER TABLE runs_by_code RENAME TO runs")


def _add_columns(connection: Connection, table: Table, present: Container[str]) -> None:
    """Add the columns that a table of an older version lacks."""
    for name, before in schema.added(table, schema.OLDEST).items():
        if name not in present:
            kind = table.c[name].type.compile(connection.dialect)
            connection.exec_driver_sql(
                f"ALTER TABLE {table.name} ADD COLUMN {name} {kind} DEFAULT '{before}' NOT NULL"
            )


def _defined(connection: Connection, column: StoredColumn) -> str:
    """Return the definition of a column that is added to a table with rows, which get what it says of those before."""
    kind = schema.column_of(column).type.compile(connection.dialect)
    rest = "" if column.nullable else f" DEFAULT '{column.before}' NOT NULL"
    return f"{column.name} {kind}{rest}"


def _is_older(found: str) -> bool:
    return found.isdigit() and schema.OLDEST <= int(found) < schema.VERSION


def _check(found: str | None, session: Session) -> None:
    least = schema.READABLE if session.read_only else schema.VERSION
    if found and found.isdigit() and least <= int(found) <= schema.VERSION:
        return
    if found and _is_older(found):
        raise SchemaVersionError(
            f"the database {session.address} has schema version {found}, this autotune reads version "
            f"{schema.VERSION}; `autotune db upgrade --db {session.address}` brings it up to date"
        )
    if not found:
        holds = session.read(lambda connection: sqlalchemy.inspect(connection).get_table_names())
        what = f"it holds other tables ({', '.join(sorted(holds)[:3])})" if holds else "it is empty"
        if schema.meta.name in holds:
            what = "the version of its schema is missing: it is damaged"
        raise DatabaseError(f"cannot use the database {session.address}: {what}; give another --db")
    newer = found.isdigit() and int(found) > schema.VERSION
    raise SchemaVersionError(
        f"the database {session.address} has schema version {found}, "
        f"this autotune knows version {schema.VERSION}; "
        + ("install a newer autotune, or give another --db" if newer else "give another --db")
    )


__all__ = ["prepare"]
