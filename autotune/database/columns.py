"""Storage of a record's fields: each field of a dataclass declares its columns.

From the declaration follow the table's columns (:mod:`autotune.database.schema`), the way to a row and back
(:mod:`autotune.database.rows`), the columns that a database or a pack of an earlier version gets
(:mod:`autotune.database.upgrade`, :mod:`autotune.database.pack`), and the columns of the table for people
(:mod:`autotune.database.table`). Nothing here imports SQLAlchemy: records are used without a database.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

_LATEST = 253402300799.0
"""The last second of the year 9999, in seconds since 1970."""


def text(value: Any, name: str) -> str:
    """Return a text as it is; raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"its {name} is no text but {value!r:.40}")
    return value


def number(value: Any, name: str) -> float:
    """Return a number of at least 0, which may be infinite; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def positive(value: Any, name: str) -> float:
    """Return a finite number above 0; raises ValueError."""
    if not 0 < number(value, name) < math.inf:
        raise ValueError(f"its {name} is {value}")
    return float(value)


def finite(value: Any, name: str) -> float:
    """Return a finite number, which may be below 0; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"its {name} is {value!r:.40}")
    return float(value)


def whole(value: Any, name: str) -> int:
    """Return a whole number of at least 0; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def moment(value: Any, name: str) -> float:
    """Return a time in seconds since 1970; raises ValueError."""
    if number(value, name) > _LATEST:
        raise ValueError(f"its {name} is {value!r:.40}")
    return float(value)


def storable(value: str) -> str:
    """Return text that every database takes: without NUL, and without bytes that are no text."""
    return value.replace("\0", "\ufffd").encode(errors="replace").decode()


def without_nan(value: float | None) -> float | None:
    """Return a number, or None for what is no number."""
    return None if value is None or math.isnan(value) else value


Read = Callable[[Any, str], Any]
"""Gives the value of a column from the database's, by the column's name for messages."""


@dataclass(frozen=True)
class StoredColumn:
    """One column of a field.

    ``sql`` is the type: ``text``, ``text(N)`` of at most N characters, ``integer``, ``bigint`` or ``float``. ``part``
    names the attribute of the field's value that it holds, empty for the value itself. ``nullable`` says that there may
    be nothing in it; ``empty`` is stored where the whole value is None. ``since`` is the version of the schema that
    added the column, and ``before`` what rows of earlier versions have in it. ``refers`` names a column of another
    table. ``shown`` is its name in the table for people, ``dtype`` its type there, empty where it is left out.
    A column that is not ``stored`` is worked out by the query of runs.
    """

    name: str
    sql: str = "text"
    read: Read = text
    write: Callable[[Any], Any] | None = None
    part: str = ""
    nullable: bool = False
    empty: Any = None
    since: int = 1
    before: Any = None
    refers: str = ""
    shown: str = ""
    dtype: str = ""
    stored: bool = True

    @property
    def title(self) -> str:
        """The name in the table for people."""
        return self.shown or self.name

    def shown_value(self, value: Any) -> Any:
        """Return what the table for people has of the value of the whole field."""
        if self.part:
            value = self.empty if value is None else getattr(value, self.part)
        return str(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class StoredField:
    """The columns of one field of a record, and how its value is made of theirs.

    ``make`` gets the values of the columns in order; without it the value is that of the only column. The value is
    ``none`` where the database has nothing in the column ``present``. Columns of a field that is ``provenance`` stand
    at the end of the table for people.
    """

    columns: tuple[StoredColumn, ...]
    make: Callable[..., Any] | None = None
    present: str = ""
    none: Any = None
    provenance: bool = False

    def fill(self, row: dict[str, Any], value: Any) -> None:
        """Add the columns of a value to a row."""
        if self.make is not None and value is None:
            row.update({column.name: column.empty for column in self.columns})
            return
        for column in self.columns:
            part = getattr(value, column.part) if column.part else value
            row[column.name] = part if column.write is None else column.write(part)

    def value(self, row: Any) -> Any:
        """Return the value in a row, whose attributes are the columns; raises ValueError and TypeError."""
        if self.make is None:
            (column,) = self.columns
            found = getattr(row, column.name)
            return self.none if found is None and self.present else column.read(found, column.name)
        if self.present and getattr(row, self.present) is None:
            return self.none
        return self.make(*[column.read(getattr(row, column.name), column.name) for column in self.columns])


def stored(
    *columns: StoredColumn,
    make: Callable[..., Any] | None = None,
    present: str = "",
    none: Any = None,
    provenance: bool = False,
) -> Mapping[str, StoredField]:
    """Return the metadata of a dataclass's field that is stored in these columns."""
    return MappingProxyType({"stored": StoredField(columns, make, present, none, provenance)})


class RecordLayout:
    """The columns of a dataclass whose fields are declared by :func:`stored`."""

    def __init__(self, record: type) -> None:
        found = [(one.name, one.metadata["stored"]) for one in fields(record)]
        self.fields: tuple[tuple[str, StoredField], ...] = tuple(found)
        self.columns = tuple(column for _, one in found for column in one.columns if column.stored)
        """Those of its table, in order."""
        self._stored = [(name, one) for name, one in found if all(column.stored for column in one.columns)]
        self._shown: dict[bool, list[tuple[str, StoredColumn]]] = {False: [], True: []}
        for name, one in found:
            self._shown[one.provenance] += [(name, column) for column in one.columns if column.dtype]

    def to_row(self, value: object) -> dict[str, Any]:
        """Return the columns of a record that is about to be stored."""
        row: dict[str, Any] = {}
        for name, one in self._stored:
            one.fill(row, getattr(value, name))
        return row

    def values(self, row: Any) -> dict[str, Any]:
        """Return the fields of a record from a row; raises ValueError and TypeError for a damaged one."""
        return {name: one.value(row) for name, one in self.fields}

    def added_after(self, version: int) -> dict[str, Any]:
        """Return the columns that a version of the schema lacks, with what its rows have in them."""
        return {column.name: column.before for column in self.columns if column.since > version}

    def shown(self, *, provenance: bool) -> dict[str, str]:
        """Return names and types of the columns for people: those of its provenance, or the others."""
        return {column.title: column.dtype for _, column in self._shown[provenance]}

    def shown_row(self, value: object, *, provenance: bool) -> dict[str, Any]:
        """Return the columns for people of a record."""
        return {
            column.title: column.shown_value(getattr(value, name)) for name, column in self._shown[provenance]
        }


__all__ = [
    "RecordLayout",
    "StoredColumn",
    "StoredField",
    "finite",
    "moment",
    "number",
    "positive",
    "storable",
    "stored",
    "text",
    "whole",
    "without_nan",
]
