"""The drivers' errors in words for a person, and which of them are transient."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError

from autotune.database.address import DatabaseAddress
from autotune.errors import DatabaseError

_LOCKED = "another process keeps it locked; try again, or stop that process"
_FULL = "the disk is full; free some space and start the same command again"
_SQLITE = {
    sqlite3.SQLITE_NOTADB: "it is not a database file; give another --db, or move that file away",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy, or give another --db",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; give a --db elsewhere",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or created; may its folder be written to?",
    sqlite3.SQLITE_PERM: "permission denied; check the file's and the folder's permissions",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "reading or writing failed; check the disk and its free space",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can hold",
}
_POSTGRES = {
    "55P03": _LOCKED,
    "53100": "the server's " + _FULL,
    "25006": "the server takes no writes: it is a copy, or was set to read only; give another --db",
}
"""By SQLSTATE."""
_COLLIDED = {"40001", "40P01"}
"""Two transactions got into each other's way, and one of them was undone."""
_STOPPED = ("57P", "08")
"""Classes of SQLSTATE: the server is stopping or starting, the connection is broken."""
_CHANGING = "the database system is "  # starting up, shutting down, in recovery mode


@contextmanager
def translated(address: DatabaseAddress) -> Iterator[None]:
    """Turn the driver's errors into a DatabaseError of one line."""
    try:
        yield
    except DBAPIError as error:
        raise DatabaseError(f"cannot use the database {address}: {reason(error, address)}") from error
    except UnicodeDecodeError as error:  # text that is none, or a message of SQLite's that quotes it
        damaged = _SQLITE[sqlite3.SQLITE_CORRUPT]
        raise DatabaseError(f"cannot use the database {address}: {damaged}") from error


def reason(error: DBAPIError, address: DatabaseAddress) -> str:
    """Return the reason, in one line without passwords."""
    known = _SQLITE.get(_sqlite_code(error) & 0xFF) or _POSTGRES.get(_sqlstate(error))
    return known or address.redacted(_line(error.orig))


def _line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0]} {lines[-1].lstrip('- ')}" if lines[0].endswith(":") else lines[0]


def _sqlite_code(error: DBAPIError) -> int:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code if isinstance(code, int) else 0


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def collided(error: DBAPIError) -> bool:
    """Return whether the transaction was undone for the sake of another, and may be tried again at once."""
    return _sqlstate(error) in _COLLIDED


def server_gone(error: DBAPIError, address: DatabaseAddress) -> bool:
    """Return whether a server that answered before does not now, or broke the connection."""
    if address.server is None:
        return False
    state = _sqlstate(error)
    unreachable = isinstance(error, OperationalError) and not state
    return error.connection_invalidated or unreachable or state.startswith(_STOPPED)


def starting(error: DBAPIError) -> bool:
    """Return whether the server is there and says that it is not ready yet."""
    return _CHANGING in str(error.orig)


__all__ = ["collided", "reason", "server_gone", "starting", "translated"]
