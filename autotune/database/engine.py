"""Engines: how SQLite and PostgreSQL are opened, and what each does when a transaction begins."""

from __future__ import annotations

import os
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from autotune.database.address import DatabaseAddress
from autotune.errors import MissingExtraError

_ALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "autotune",
}
"""libpq's parameters: a server that vanished without a word is noticed within about a minute."""


def connect(address: DatabaseAddress, *, timeout: float, read_only: bool) -> Engine:
    """An engine that waits up to ``timeout`` seconds for a lock; nothing is opened yet.

    A transaction of an engine with the execution option ``writes`` may write.
    """
    if address.path is None:
        return _server(address, timeout)
    return _file(address.path, timeout, read_only)


def _file(path: Path, timeout: float, read_only: bool) -> Engine:
    where = sqlalchemy.URL.create("sqlite", database=str(path))  # a name may hold ?, # and %
    if read_only:
        # immutable=1 reads a WAL database where the -shm file that goes with it cannot be made.
        immutable = {} if _writable(path) else {"immutable": "1"}
        name = f"file:{quote(str(path.absolute()))}"
        where = where.set(database=name, query={"mode": "ro", **immutable, "uri": "true"})
    engine = sqlalchemy.create_engine(where, connect_args={"timeout": timeout})
    event.listen(engine, "connect", _prepare_read if read_only else partial(_prepare_write, timeout))
    event.listen(engine, "begin", _begin)
    return engine


def _writable(path: Path) -> bool:
    return os.access(path.absolute().parent, os.W_OK)


def _prepare_write(timeout: float, connection: sqlite3.Connection, _record: object) -> None:
    """WAL lets readers work beside a writer; FULL syncs each commit: a power cut loses no run."""
    connection.isolation_level = None  # transactions start in _begin, not at the first write
    _use_wal(connection, timeout)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """SQLite does not wait by itself while another process does the same to a new file."""
    begin = time.monotonic()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() - begin > timeout:
                raise
            time.sleep(0.01)


def _prepare_read(connection: Any, _record: object) -> None:
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    """A writer takes its lock at once: upgrading a read lock later fails where it should wait."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _server(address: DatabaseAddress, timeout: float) -> Engine:
    """Readers see one snapshot for a whole transaction, as with SQLite."""
    assert address.server is not None
    given = {name: value for name, value in _ALIVE.items() if name not in address.server.query}
    try:
        engine = sqlalchemy.create_engine(address.server, pool_pre_ping=True, connect_args=given)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the database driver {error.name!r} is not installed; "
            "for PostgreSQL: pip install 'autotune[postgres]'"
        ) from error

    def prepare(connection: Any, _record: object) -> None:
        connection.execute(f"SET lock_timeout = {max(1, round(1000 * timeout))}")
        connection.commit()

    def begin(connection: Connection) -> None:
        if not connection.get_execution_options().get("writes", False):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


__all__ = ["connect"]
