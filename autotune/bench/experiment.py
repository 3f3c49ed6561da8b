"""Experiments as data: a protocol measures contenders at cases, one tidy frame has a row for each, views show it.

A protocol is a function that yields the rows of one case after the other, as records: names of columns with values. A
:class:`TableView` declares a table over the frame of all rows: what its own rows stand for, and its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from autotune.bench.tables import Table, geometric_mean, plain, quotient
from autotune.suggest import counted

if TYPE_CHECKING:
    import click
    from pandas import DataFrame

Record: TypeAlias = Mapping[str, Any]
"""A row of the frame: a case, often one contender at it. A column that a record lacks is None there."""
Say: TypeAlias = Callable[[str], None]
Protocol: TypeAlias = Callable[..., Iterator[Sequence[Record]]]
"""Takes ``say`` and the values of the options, and yields the rows of a case as soon as they are there."""


class FrameRows(Sequence[Record]):
    """Rows of the frame: all of them, or those behind one row of a table."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def all(self, column: str) -> list[Any]:
        """Return a column's values, without those that are None."""
        return [value for record in self._records if (value := record.get(column)) is not None]

    def get(self, column: str) -> Any:
        """Return a column's first value that is not None; None without one."""
        return next(iter(self.all(column)), None)

    def where(self, **values: Any) -> FrameRows:
        """Return the rows that have these values."""
        items = values.items()
        return FrameRows([r for r in self._records if all(r.get(column) == value for column, value in items)])

    def by(self, *columns: str) -> dict[tuple[Any, ...], FrameRows]:
        """Return the rows by their values of some columns, in the order of the first of each."""
        found: dict[tuple[Any, ...], list[Record]] = {}
        for record in self._records:
            found.setdefault(tuple(record.get(column) for column in columns), []).append(record)
        return {key: FrameRows(records) for key, records in found.items()}


Value: TypeAlias = "str | Callable[[FrameRows], Any]"
"""The name of a column of the frame, or what is computed from the rows behind a cell."""


def value_of(value: Value, rows: FrameRows) -> Any:
    """Return the value of some rows."""
    return rows.get(value) if isinstance(value, str) else value(rows)


def at(column: str, **values: Any) -> Callable[[FrameRows], Any]:
    """Return what reads a column where other columns have these values, such as ``contender="default"``."""
    return lambda rows: rows.where(**values).get(column)


def over(number: Value, by: Value) -> Callable[[FrameRows], float | None]:
    """Return what divides one value by another; None unless both are there."""
    return lambda rows: quotient(value_of(number, rows), value_of(by, rows))


def mean_over(keys: Sequence[str], value: Value) -> Callable[[FrameRows], float | None]:
    """Return what takes the geometric mean of a value over cases, which the ``keys`` tell apart."""
    return lambda rows: geometric_mean(value_of(value, one) for one in rows.by(*keys).values())


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, its value, the value's text, and the last row's value of those above it."""

    head: str
    value: Value
    text: Callable[[Any], str] = plain
    last: Callable[[Sequence[Any]], Any] | None = None


@dataclass(frozen=True)
class TableView:
    """A table over the frame.

    It shows the frame's rows whose column "of" is ``of``, or all where that is empty. It has a row for each combination
    of values of the columns ``rows``, where ``where`` holds of the frame's rows of
    that; with ``each``, there is such a table for each combination of those. ``{threads}`` and other columns of the
    frame may stand in the title. ``last`` names a last row of the columns' ``last`` values, ``overall`` one of their
    values over all rows. Columns and notes may follow from the rows that there are. A table without rows is left out.
    """

    title: str
    rows: tuple[str, ...]
    columns: Sequence[Column] | Callable[[FrameRows], Sequence[Column]]
    each: tuple[str, ...] = ()
    where: Callable[[FrameRows], object] = lambda rows: True
    last: str = ""
    overall: str = ""
    notes: Sequence[str] | Callable[[FrameRows], Iterable[str]] = ()
    of: str = ""

    def tables(self, frame: DataFrame) -> Iterator[Table]:
        """Yield the tables, as text."""
        shown = rows_of(frame).where(of=self.of) if self.of else rows_of(frame)
        for every in shown.by(*self.each).values():
            groups = [some for some in every.by(*self.rows).values() if self.where(some)]
            if not groups:
                continue
            rows = FrameRows([record for some in groups for record in some])
            columns = self.columns(rows) if callable(self.columns) else self.columns
            values = [[value_of(c.value, some) for c in columns] for some in groups]
            lines = [_line(columns, row) for row in values]
            if self.last:
                lines.append((self.last, *self._last(columns, values)))
            if self.overall:
                lines.append((self.overall, *_line(columns, [value_of(c.value, rows) for c in columns])[1:]))
            notes = tuple(self.notes(rows) if callable(self.notes) else self.notes)
            yield Table(_title(self.title, rows), tuple(c.head for c in columns), tuple(lines), notes)

    def _last(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> Iterator[str]:
        for number, column in list(enumerate(columns))[1:]:
            above = [row[number] for row in values]
            yield "" if column.last is None else column.text(column.last(above))


def _line(columns: Sequence[Column], values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(column.text(value) for column, value in zip(columns, values, strict=True))


def _title(title: str, rows: FrameRows) -> str:
    first = dict(rows[0])
    if isinstance(first.get("threads"), int):
        first["threads"] = counted(first["threads"], "thread")
    return title.format_map(first)


@dataclass(frozen=True)
class Experiment:
    """A protocol with what a command needs of it: its options, its page and its example.

    ``about`` heads the page and may follow from the options. ``check`` is called when the page is written and raises
    where what was measured must not be.
    """

    title: str
    about: str | Callable[[Mapping[str, Any]], str]
    summary: str
    example: str
    options: Sequence[click.Parameter]
    measure: Protocol
    views: Sequence[TableView]
    notes: Callable[[FrameRows], Iterable[str]] = field(default=lambda rows: ())
    check: Callable[[FrameRows], None] = field(default=lambda rows: None)

    def tables(self, frame: DataFrame) -> tuple[Table, ...]:
        """Return the tables of a frame."""
        return tuple(table for view in self.views for table in view.tables(frame))

    def frames(self, options: Mapping[str, Any], say: Say) -> Iterator[DataFrame]:
        """Measure, and yield the frame so far after each case; raises what the protocol raises."""
        records: list[Record] = []
        for some in self.measure(say=say, **options):
            records += some
            yield frame_of(records)


def frame_of(records: Sequence[Record]) -> DataFrame:
    """Return records as a tidy frame whose cells are what they were; a value that is missing is None."""
    from pandas import DataFrame

    columns = list(dict.fromkeys(column for record in records for column in record))
    cells = [[record.get(column) for column in columns] for record in records]
    return DataFrame(cells, columns=columns, dtype=object)


def rows_of(frame: DataFrame) -> FrameRows:
    """Return all rows of a frame."""
    return FrameRows(frame.to_dict("records"))


__all__ = [
    "Column",
    "Experiment",
    "FrameRows",
    "Protocol",
    "Record",
    "Say",
    "TableView",
    "Value",
    "at",
    "frame_of",
    "mean_over",
    "over",
    "rows_of",
    "value_of",
]
