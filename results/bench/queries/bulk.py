"""Rows written in bulk: a column at a time, with the indexes of a database made when all of them are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from sqlalchemy import Table, UniqueConstraint, inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.schema import AddConstraint, DropConstraint

from autotune.database import schema
from autotune.database.store import Database

TABLES = (schema.runs, schema.readings, schema.comparisons)
"""The tables with most of the rows, each after those that it refers to."""


@dataclass(frozen=True)
class Block:
    """Rows of a table that have some values in ``common``; ``own`` are the others, by columns [rows]."""

    table: Table
    common: Mapping[str, Any]
    own: Mapping[str, Sequence[Any]]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.own.values())))


@contextmanager
def loading(database: Database) -> Iterator[None]:
    """Have a database without indexes, and a server without references, while rows are inserted in bulk."""
    server = database.session.address.server is not None
    references = database.session.write(lambda c: _without(c, server), references=False)
    yield
    database.session.write(lambda c: _with(c, references, server), references=False)


def insert(database: Database, blocks: Iterable[Block]) -> None:
    """Insert rows in one transaction; a server takes them by COPY, as lines of text."""
    write = _execute if database.session.address.server is None else _copy

    def write_all(connection: Connection) -> None:
        for block in blocks:
            write(connection, block)

    database.session.write(write_all, references=False)


def _execute(connection: Connection, block: Block) -> None:
    """Give SQLite its rows without what a statement of SQLAlchemy costs for each."""
    names = [*block.own, *block.common]
    places = ", ".join("?" * len(names))
    rows = zip(*block.own.values(), *map(repeat, block.common.values()), strict=False)
    raw: Any = connection.connection.driver_connection
    raw.executemany(f"INSERT INTO {block.table.name} ({_listed(names)}) VALUES ({places})", rows)


def _copy(connection: Connection, block: Block) -> None:
    raw: Any = connection.connection.driver_connection
    end = "".join(f"\t{_text(value)}" for value in block.common.values()) + "\n"
    lines = ["\t".join(map(_text, row)) for row in zip(*block.own.values(), strict=True)]
    statement = f"COPY {block.table.name} ({_listed([*block.own, *block.common])}) FROM STDIN"
    if lines:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(end.join(lines) + end)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _text(value: Any) -> str:
    """Return a value as COPY reads it."""
    if not isinstance(value, str):
        return r"\N" if value is None else str(value)
    return value.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n")


def _without(connection: Connection, server: bool) -> list[str]:
    """Drop what each row would be entered into; return the statements that make the references again."""
    again = list[str]()
    for table in TABLES:
        for index in table.indexes:
            index.drop(connection)
        for one in inspect(connection).get_foreign_keys(table.name) if server else ():
            columns, others = _listed(one["constrained_columns"]), _listed(one["referred_columns"])
            named = f'ALTER TABLE {table.name} {{}} CONSTRAINT "{one["name"]}"'
            connection.execute(text(named.format("DROP")))
            again.append(
                f"{named.format('ADD')} FOREIGN KEY ({columns}) REFERENCES {one['referred_table']} ({others})"
            )
        for unique in _uniques(table) if server else ():
            connection.execute(DropConstraint(unique))
    return again


def _with(connection: Connection, references: Sequence[str], server: bool) -> None:
    """Make all of it again, and let the database count its rows."""
    for table in TABLES:
        for unique in _uniques(table) if server else ():
            connection.execute(AddConstraint(unique))
        for index in table.indexes:
            index.create(connection)
        if server:
            number = f"pg_get_serial_sequence('{table.name}', 'id')"
            connection.execute(text(f"SELECT setval({number}, max(id)) FROM {table.name}"))
    for statement in references:
        connection.execute(text(statement))
    connection.execute(text("ANALYZE"))


def _uniques(table: Table) -> list[UniqueConstraint]:
    return [one for one in table.constraints if isinstance(one, UniqueConstraint)]


__all__ = ["Block", "insert", "loading"]
