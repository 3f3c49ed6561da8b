"""Tables of a benchmark: on the terminal, as Markdown and as JSON, with how they were made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import InternalError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column is a name, the others are numbers. ``notes`` stand below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InternalError(f"table {self.title!r}: {len(self.columns)} columns, but a row is {row}")

    def markdown(self) -> str:
        """A Markdown section."""
        lines = [
            f"## {self.title}",
            "",
            _line(self.columns),
            _line(["---", *["---:"] * (len(self.columns) - 1)]),
        ]
        lines += [_line(row) for row in self.rows]
        lines += ["", *[f"- {note}" for note in self.notes]] if self.notes else []
        return "\n".join(lines)

    def html(self) -> str:
        """A heading and a table."""
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f"<h2>{escape(self.title)}</h2><table><tr>{head}</tr>{rows}</table>"

    def show(self, console: Console) -> None:
        """Print it."""
        from rich.table import Table as Grid

        grid = Grid(title=self.title, title_justify="left", title_style="bold")
        for index, column in enumerate(self.columns):
            grid.add_column(column, justify="right" if index else "left", no_wrap=index == 0)
        for row in self.rows:
            grid.add_row(*row)
        console.print(grid)
        for note in self.notes:
            console.print(f"  {note}", highlight=False, markup=False)


@dataclass(frozen=True)
class Document:
    """One run of a benchmark. ``facts`` say on what machine and when; ``data`` has the numbers unrounded."""

    title: str
    command: str
    facts: Mapping[str, str]
    tables: tuple[Table, ...]
    data: Any = None
    about: str = ""
    notes: tuple[str, ...] = field(default=())

    def markdown(self) -> str:
        """The whole page, with the command and the machine first."""
        head = [f"# {self.title}", ""]
        head += [self.about, ""] if self.about else []
        head += [
            "```",
            self.command,
            "```",
            "",
            *[f"- {name}: {value}" for name, value in self.facts.items()],
        ]
        tail = ["", *[f"- {note}" for note in self.notes]] if self.notes else []
        return "\n".join([*head, *[f"\n{table.markdown()}" for table in self.tables], *tail]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Everything, with the numbers instead of the tables' text."""
        return {
            "title": self.title,
            "command": self.command,
            "facts": dict(self.facts),
            "notes": list(self.notes),
            "data": self.data,
        }

    def write(self, path: Path) -> None:
        """Write the page; raises UsageError where that is not possible."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.markdown(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error

    def show(self) -> None:
        """Print the tables."""
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=200)
        for table in self.tables:
            table.show(console)
        for note in self.notes:
            console.print(note, highlight=False, markup=False)


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; None without any.

    >>> geometric_mean([1.0, 4.0, None])
    2.0
    """
    logs = [math.log(value) for value in values if value is not None and value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def quotient(number: float | None, by: float | None) -> float | None:
    """The first over the second; None unless both are there.

    >>> quotient(3.0, 2.0), quotient(None, 2.0), quotient(3.0, None)
    (1.5, None, None)
    """
    return None if number is None or by is None else number / by


def ratio(value: float | None, digits: int = 2) -> str:
    """A ratio, or a dash."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def plain(value: object) -> str:
    """Return a name or a count as it is, and a dash for None.

    >>> plain("a"), plain(3), plain(None)
    ('a', '3', '–')
    """
    return NOTHING if value is None else str(value)


def scientific(value: float | None) -> str:
    """A small number such as an error.

    >>> scientific(1.3e-6)
    '1.3e-06'
    """
    return NOTHING if value is None else f"{value:.1e}"


def percent(digits: int = 0, unit: str = " %") -> Callable[[float | None], str]:
    """Return what shows a share in percent.

    >>> percent(1)(0.123), percent()(None)
    ('12.3 %', '–')
    """
    return lambda share: NOTHING if share is None else f"{100 * share:.{digits}f}{unit}"


def number(digits: int = 0, unit: str = "", scale: float = 1.0) -> Callable[[float | None], str]:
    """Return what shows a number, in units of ``scale``.

    >>> number(1, " MB", 1e6)(2.5e6), number()(None)
    ('2.5 MB', '–')
    """
    return lambda value: NOTHING if value is None else f"{value / scale:.{digits}f}{unit}"


def duration(nanoseconds: float | None) -> str:
    """A latency with a unit that fits, three digits.

    >>> duration(1234.0), duration(4.2e6)
    ('1.23 µs', '4.20 ms')
    """
    if nanoseconds is None:
        return NOTHING
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= scale:
            return (
                f"{nanoseconds / scale:.3g} {unit}"
                if nanoseconds >= 100 * scale
                else _digits(nanoseconds / scale, unit)
            )
    return f"{nanoseconds:.0f} ns"


def _digits(value: float, unit: str) -> str:
    return f"{value:.{2 if value < 10 else 1}f} {unit}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


__all__ = [
    "NOTHING",
    "Document",
    "Table",
    "duration",
    "geometric_mean",
    "number",
    "percent",
    "plain",
    "quotient",
    "ratio",
    "scientific",
]
