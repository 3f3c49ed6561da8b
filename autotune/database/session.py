"""Transactions: one way to read, one way to write, and patience with a server that is restarted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from autotune.database import engine, failures
from autotune.database.address import DatabaseAddress
from autotune.database.same_file import SameFile
from autotune.errors import DatabaseError

T = TypeVar("T")
Work = Callable[[Connection], T]

STREAMED: Mapping[str, Any] = {"yield_per": 500}
"""The execution options of a query whose rows do not fit into memory: so many are there at once, also of a server's."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


_LOG = logging.getLogger("autotune.database")


def _log(text: str) -> None:
    if text:
        _LOG.warning(text)


class Session:
    """Runs transactions on a file or a server.

    A transaction that a server did not answer to is run again for up to ``timeout`` seconds: the log or a
    listener (:meth:`telling`) hears of it. ``established`` says that the server has answered
    before: at first only one that says itself that it is starting is waited for, as a wrong host never answers.
    """

    def __init__(self, address: DatabaseAddress, *, read_only: bool, timeout: float) -> None:
        self.address = address
        self.read_only = read_only
        self.established = False
        self._tell: Callable[[str], None] = _log
        self._timeout = timeout
        self._lent = engine.lent(address, timeout=timeout, read_only=read_only)
        self._engine = self._lent.engine
        self._file = None if address.path is None or read_only else SameFile(address.path)

    def close(self) -> None:
        """Give all connections back."""
        self._lent.give_back()

    @contextmanager
    def telling(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Tell ``listener`` that a server is waited for, and an empty text when it responds again."""
        before, self._tell = self._tell, listener
        try:
            yield
        finally:
            self._tell = before

    def read(self, work: Work[T]) -> T:
        """Run a read of ``work`` in one transaction."""

        def attempt() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return self._patiently(attempt)

    def write(
        self, work: Work[T], done: Work[T | None] = lambda connection: None, *, references: bool = True
    ) -> T:
        """Run ``work`` in one transaction that is stored when this returns, in the file that the address names.

        If the answer of a server got lost, nobody knows whether the transaction was stored: ``done`` then
        looks, and gives what ``work`` would have said, or None to run it again. Without ``done``, ``work`` must
        be harmless to repeat. Without ``references`` a file does not hold rows to what they refer to, so that a table
        may be made anew. Raises DatabaseError where the file was removed or replaced meanwhile.
        """
        if self.read_only:
            raise DatabaseError(f"the database {self.address} was opened for reading only")
        writer = self._engine.execution_options(writes=True)
        again = False

        def attempt() -> T:
            nonlocal again
            first, again = not again, True
            with writer.connect() as connection, _held_to(connection, references):
                try:
                    with connection.begin():
                        known = None if first else done(connection)
                        result = work(connection) if known is None else known
                except DBAPIError:
                    self._check_file(connection)  # of which SQLite says something else
                    raise
                self._check_file(connection)
                return result

        if self._file is not None:
            self._file.check_before()
        return self._patiently(attempt)

    def _check_file(self, connection: Connection) -> None:
        if self._file is not None:
            self._file.check(connection)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        pauses: Iterator[float] | None = None
        with failures.translated(self.address):
            while True:
                try:
                    result = attempt()
                except DBAPIError as error:
                    if not self._passes(error):
                        raise
                    pauses = pauses or self._pauses(error)
                    time.sleep(next(pauses))
                else:
                    if pauses is not None:
                        self._tell("")
                    self.established = True
                    return result

    def _passes(self, error: DBAPIError) -> bool:
        if failures.collided(error) or failures.starting(error):
            return True
        return self.established and failures.server_gone(error, self.address)

    def _pauses(self, error: DBAPIError) -> Iterator[float]:
        """Yield the pause before each further attempt; raises DatabaseError when it has taken too long."""
        why = failures.reason(error, self.address)
        self._tell(f"waiting up to {self._timeout:.0f} s for the database {self.address} ({why})")
        begin, pause = time.monotonic(), _FIRST_PAUSE_S
        while time.monotonic() - begin < self._timeout:
            yield pause
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self.established = False
        raise DatabaseError(
            f"the database {self.address} did not answer for {self._timeout:.0f} s ({why}); "
            "what it had stored is kept, and the same command goes on from there"
        )


@contextmanager
def _held_to(connection: Connection, references: bool) -> Iterator[None]:
    """Have SQLite hold rows to what they refer to, or not: it is told between transactions."""
    raw = connection.connection.driver_connection
    if references or connection.dialect.name != "sqlite" or raw is None:
        yield
        return
    raw.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        raw.execute("PRAGMA foreign_keys=ON")


def insert_new(connection: Connection, table: Any, values: dict[str, Any]) -> bool:
    """Insert unless the row is there already; says whether it was new."""
    return connection.execute(_insert(connection.dialect.name, table), values).first() is not None


@cache
def _insert(dialect: str, table: Any) -> Any:
    """Return the statement, made once: to put it together takes longer than to execute it."""
    if dialect == "sqlite":
        found: Any = sqlite.insert(table)
    else:
        from sqlalchemy.dialects import postgresql  # costs what reading a list of jobs does

        found = postgresql.insert(table)
    return found.on_conflict_do_nothing().returning(literal_column("1"))


__all__ = ["STREAMED", "Session", "Work", "insert_new"]
