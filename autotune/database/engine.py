"""Engines: how SQLite and PostgreSQL are opened, and what each does when a transaction begins.

An engine that was given back keeps the statements that it has put together, as that takes longer than to answer them,
and no connection: a file may be replaced or removed meanwhile, a server restarted.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import FromClause, event
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry

from autotune.database.address import DatabaseAddress
from autotune.database.same_file import note_file
from autotune.distribution import install
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


@dataclass(frozen=True)
class _EngineKind:
    """The kind of an engine; a file by its absolute path, as the working folder may change."""

    address: DatabaseAddress
    timeout: float
    immutable: bool
    read_only: bool

    def made(self) -> Engine:
        """Return a new engine of this kind."""
        if self.address.path is None:
            return _server(self.address, self.timeout)
        return _file(self.address.path, self.timeout, self.read_only, self.immutable)


_KEPT = 8
"""So many engines wait to be used again."""
_IDLE: list[tuple[_EngineKind, Engine]] = []
"""The last one given back is last. Each is lent to one user at a time, hence never shared by threads."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # another thread may have held their locks


@dataclass(eq=False)
class Lent:
    """An engine for one user, until it is given back."""

    kind: _EngineKind
    engine: Engine
    _back: bool = False

    def give_back(self) -> None:
        """Close its connections; another user may have it then. To do so again changes nothing."""
        if self._back:
            return
        self._back = True
        self.engine.dispose()
        _IDLE.append((self.kind, self.engine))
        del _IDLE[:-_KEPT]


def lent(address: DatabaseAddress, *, timeout: float, read_only: bool) -> Lent:
    """Return an engine that waits up to ``timeout`` seconds for a lock; nothing is opened yet.

    A transaction of an engine with the execution option ``writes`` may write.
    """
    path = None if address.path is None else address.path.absolute()
    # immutable=1 reads a WAL database where the -shm file that goes with it cannot be made.
    immutable = read_only and path is not None and not os.access(path.parent, os.W_OK)
    kind = _EngineKind(DatabaseAddress(path, address.server), timeout, immutable, read_only)
    for idle in reversed(_IDLE.copy()):
        if idle[0] == kind:
            with suppress(ValueError):  # another thread was faster
                _IDLE.remove(idle)
                return Lent(*idle)
    return Lent(kind, kind.made())


class _FileCompiler(SQLiteCompiler):
    """Writes the hints of a query, such as the index by which to look, that SQLAlchemy's own leaves out."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        """Return the text after the name of a table."""
        return text


def _file(path: Path, timeout: float, read_only: bool, immutable: bool) -> Engine:
    where = sqlalchemy.URL.create("sqlite", database=str(path))  # a name may hold ?, # and %
    if read_only:
        flags = {"immutable": "1"} if immutable else {}
        name = f"file:{quote(str(path))}"
        where = where.set(database=name, query={"mode": "ro", **flags, "uri": "true"})
    engine = sqlalchemy.create_engine(where, connect_args={"timeout": timeout})
    engine.dialect.statement_compiler = _FileCompiler
    event.listen(engine, "connect", _prepare_read if read_only else partial(_prepare_write, path, timeout))
    event.listen(engine, "begin", _begin)
    return engine


def _prepare_write(
    path: Path, timeout: float, connection: sqlite3.Connection, record: ConnectionPoolEntry
) -> None:
    """Set WAL, which lets readers work alongside a writer, and FULL, which syncs each commit: a power cut
    loses no run."""
    note_file(path, record.info)
    connection.isolation_level = None  # transactions start in _begin, not at the first write
    _use_wal(connection, timeout)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to WAL; SQLite does not wait by itself while another process does the same to a new file."""
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
    """Begin with the writer's lock: upgrading a read lock later fails where it should wait."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _server(address: DatabaseAddress, timeout: float) -> Engine:
    """Return readers see one snapshot for a whole transaction, as with SQLite."""
    assert address.server is not None
    given = {name: value for name, value in _ALIVE.items() if name not in address.server.query}
    try:
        engine = sqlalchemy.create_engine(address.server, pool_pre_ping=True, connect_args=given)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the database driver {error.name!r} is not installed; for PostgreSQL: {install('postgres')}"
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


__all__ = ["Lent", "lent"]
