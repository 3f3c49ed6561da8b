"""An SQLite file that is removed or replaced while it is written to: noticed, and its rows brought to safety.

SQLite goes on with the file that it has open, which nobody else can reach any more and which vanishes with the process.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import Connection

from autotune import settings
from autotune.errors import DatabaseError

_OPENED = "file"
"""The field of a connection with the identity of its file."""
Identity = tuple[int, int]
"""Device and inode."""


def identity_of(path: Path) -> Identity | None:
    """Return the identity of the file that a path names now; None for none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def note_file(path: Path, info: dict[str, object]) -> None:
    """Keep the identity of the file of a new connection."""
    info[_OPENED] = identity_of(path)


class SameFile:
    """Says after each transaction whether the path still names the file that was written to first."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._first: Identity | None = None
        self._lost = ""

    def check_before(self) -> None:
        """Raise DatabaseError where the file is known to be lost: nothing more is written to it."""
        if self._lost:
            raise DatabaseError(self._lost)

    def check(self, connection: Connection) -> None:
        """Raise DatabaseError where the path names another file than this connection's, or none.

        The rows of the file that is lost are copied to a new one, which the error names.
        """
        opened = connection.info[_OPENED]
        self._first = self._first or opened
        now = identity_of(self._path)
        if now == self._first == opened:
            return
        happened = "was removed" if now is None else "was replaced by another file"
        self._lost = (
            f"the database {self._path} {happened} while it was in use\n  {self._rescued(connection)}"
        )
        raise DatabaseError(self._lost)

    def _rescued(self, connection: Connection) -> str:
        """Copy what the connection still reads; where that is, and what to do with it."""
        if connection.info[_OPENED] != self._first:
            return "its rows went with it: look for the file where it was moved"
        source = connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        failures = []
        for folder in (self._path.parent, settings.current().home_path(), Path(tempfile.gettempdir())):
            try:
                path = _copied(source, folder, self._path)
            except (OSError, sqlite3.Error) as error:
                failures.append(f"{folder}: {error}")
            else:
                return f"all of its rows are in {path}: go on with --db {path}, or `autotune db merge {path}`"
        return f"its rows could not be copied ({'; '.join(failures)})"


def _copied(source: sqlite3.Connection, folder: Path, original: Path) -> Path:
    """Return a copy of a database in a new file of a folder; nothing is left of one that fails."""
    path = _made(folder, original)
    try:
        target = sqlite3.connect(path)
        try:
            source.backup(target)
        finally:
            target.close()
    except BaseException:
        path.unlink()
        raise
    return path


def _made(folder: Path, original: Path) -> Path:
    """Return a new empty file."""
    for name in _names(original):
        try:
            os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        return folder / name
    raise AssertionError("names never end")


def _names(original: Path) -> Iterator[str]:
    yield f"{original.stem}.rescued{original.suffix}"
    number = 2
    while True:
        yield f"{original.stem}.rescued-{number}{original.suffix}"
        number += 1


__all__ = ["Identity", "SameFile", "identity_of", "note_file"]
