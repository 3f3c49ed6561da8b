"""Opening the database file or server, and turning its failures into DatabaseError."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from autotune.database import schema
from autotune.errors import DatabaseError, MissingExtraError, SchemaVersionError, UsageError

# What SQLite's result codes mean to a person, and what to do about it.
_REASONS = {
    sqlite3.SQLITE_NOTADB: "it is not a database file; give another --db, or move that file away",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy, or give another --db",
    sqlite3.SQLITE_BUSY: "another process keeps it locked; try again, or stop that process",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked; try again, or stop that process",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; give a --db elsewhere",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or created; may its folder be written to?",
    sqlite3.SQLITE_PERM: "permission denied; check the file's and the folder's permissions",
    sqlite3.SQLITE_FULL: "the disk is full; free some space and start the same command again",
    sqlite3.SQLITE_IOERR: "reading or writing failed; check the disk and its free space",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can hold",
}


def url_of(path_or_url: str | Path) -> str:
    """An SQLAlchemy URL: text with ``://`` is one already, anything else names an SQLite file."""
    text = str(path_or_url)
    return text if "://" in text else f"sqlite:///{text}"


def file_of(url: str) -> Path | None:
    """The SQLite file of a URL; None for a server."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn the driver's errors into a DatabaseError of one line; ``where`` names the database."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise DatabaseError(f"cannot use the database {where}: {_reason(error.orig)}") from error
    except UnicodeDecodeError as error:  # text that is none, or a message of SQLite's that quotes it
        reason = _REASONS[sqlite3.SQLITE_CORRUPT]
        raise DatabaseError(f"cannot use the database {where}: {reason}") from error
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise UsageError(f"not a database URL: {where} ({_first_line(error)})") from error


def _reason(error: BaseException | None) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    known = _REASONS.get(code & 0xFF) if isinstance(code, int) else None
    return known or _first_line(error)


def _first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def connect(url: str, *, timeout: float, read_only: bool) -> Engine:
    """An engine that waits up to ``timeout`` seconds for a lock; nothing is opened yet."""
    path = file_of(url)
    if path is None:
        return _server(url)
    where = sqlalchemy.URL.create("sqlite", database=str(path))  # a name may hold ?, # and %
    if read_only:
        # immutable=1 reads a WAL database where the -shm file that goes with it cannot be made.
        immutable = {} if _writable(path) else {"immutable": "1"}
        name = f"file:{quote(str(path.absolute()))}"
        where = where.set(database=name, query={"mode": "ro", **immutable, "uri": "true"})
    engine = sqlalchemy.create_engine(where, connect_args={"timeout": timeout})
    event.listen(engine, "connect", _prepare_read if read_only else _prepare_write)
    event.listen(engine, "begin", _begin)
    return engine


def _writable(path: Path) -> bool:
    return os.access(path.absolute().parent, os.W_OK)


def _server(url: str) -> Engine:
    with translated(url):
        try:
            given = sqlalchemy.make_url(url)
            if given.drivername == "postgresql":
                given = given.set(drivername="postgresql+psycopg")
            return sqlalchemy.create_engine(given, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"the database driver {error.name!r} is not installed; "
                "for PostgreSQL: pip install 'autotune[postgres]'"
            ) from error


def _prepare_write(connection: Any, _record: object) -> None:
    """WAL lets readers work beside a writer; FULL syncs each commit: a power cut loses no run."""
    connection.isolation_level = None  # transactions start in _begin, not at the first write
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare_read(connection: Any, _record: object) -> None:
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    """A writer takes its lock at once: upgrading a read lock later fails where it should wait."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def create_tables(engine: Engine, where: str) -> None:
    """Create the tables of an empty database and what an older one lacks; two processes may do it at once."""
    with engine.execution_options(writes=True).begin() as connection:
        tables = set(sqlalchemy.inspect(connection).get_table_names())
        if tables and schema.meta.name not in tables:
            raise DatabaseError(
                f"cannot use the database {where}: it holds other tables "
                f"({', '.join(sorted(tables)[:3])}); give another --db"
            )
        if not tables:
            schema.metadata.create_all(connection)
            row = {"name": "schema_version", "value": str(schema.VERSION)}
            connection.execute(schema.meta.insert().values(row))
        elif _is_older(_version(connection)):
            schema.metadata.create_all(connection)
            connection.exec_driver_sql("DROP TABLE IF EXISTS confirmations")  # of versions 1 and 2
            known = schema.meta.c.name == "schema_version"
            connection.execute(schema.meta.update().where(known).values(value=str(schema.VERSION)))


def _version(connection: Connection) -> str | None:
    query = sqlalchemy.select(schema.meta.c.value).where(schema.meta.c.name == "schema_version")
    return connection.execute(query).scalar()


def _is_older(found: str | None) -> bool:
    return found is not None and found.isdigit() and schema.OLDEST <= int(found) < schema.VERSION


def check_version(engine: Engine, where: str) -> None:
    """Raise SchemaVersionError unless the database has a version that this code knows."""
    with engine.connect() as connection:
        if not sqlalchemy.inspect(connection).has_table(schema.meta.name):
            raise DatabaseError(f"cannot use the database {where}: it is not a tuning database")
        found = _version(connection)
    if found == str(schema.VERSION) or _is_older(found):
        return
    newer = found is not None and found.isdigit() and int(found) > schema.VERSION
    raise SchemaVersionError(
        f"the database {where} has schema version {found}, "
        f"this autotune knows version {schema.VERSION}; "
        + ("install a newer autotune, or give another --db" if newer else "give another --db")
    )


__all__ = ["check_version", "connect", "create_tables", "file_of", "translated", "url_of"]
