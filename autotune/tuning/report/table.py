"""The table of a report: a row for each dispatch, or for each option with its parts below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.tuning.report.units import cut, listed, nanoseconds
from autotune.tuning.report.width import cut_apart

if TYPE_CHECKING:
    from autotune.tuning.report.result import DispatchRow, ModelReport, OptionRow

_LEAST_NAME, _LEAST_NODES = 12, 12
"""Characters that names get at least; without room for those of nodes they are left out."""
_FIGURES = "{:>9} {:>9} {:<6} {:>5}  {}"
_WIDTH = len(_FIGURES.format("", "", "", "", "")) + 2
_GAIN = 26
"""Characters of a gain that a narrow table has room for: those of an interval that holds 1."""


@dataclass(frozen=True)
class Entry:
    """A line: latencies in ns of one of ``count`` dispatches; ``alone`` of ``measured`` parts were measured alone.

    ``parts`` are those of an option, which has none of its own. ``site`` names the dispatch whose options may have been
    compared, and ``workload`` is the key of that whose schedules were: what is gained is what these comparisons say.
    Both are empty of an option that no comparison tells from the default, whose gain is that of its parts.
    """

    title: str
    count: int
    before_ns: float | None
    after_ns: float | None
    alone: int
    measured: int
    runs: int
    gain: str
    nodes: tuple[str, ...] = ()
    parts: tuple[Entry, ...] = ()
    site: str = ""
    workload: str = ""

    @property
    def where(self) -> str:
        """Return how the latencies were measured, if not in the model."""
        return "" if self.alone == 0 else "alone" if self.alone == self.measured else "partly"

    @property
    def share(self) -> float:
        """Return what all of them took before."""
        return self.count * (self.before_ns or 0.0)

    @property
    def decided(self) -> tuple[Entry, ...]:
        """Return what comparisons were of: itself, or its parts."""
        return (self,) if self.site or self.workload else self.parts


def entries(report: ModelReport) -> list[Entry]:
    """Return the dispatches of a model as it is used now, those with the most time first; each dispatch is in one."""
    rows, left = {row.workload: row for row in report.dispatches}, Counter[str]()
    for row in report.dispatches:
        left[row.workload] = row.count
    found = []
    for option in report.options:
        parts = [rows[key] for key in option.workloads if key in rows]
        left.subtract({part.workload: option.count * parts.count(part) for part in parts})
        found.append(_of_option(option, parts))
    found += [
        _of_row(row, left[row.workload], _plain(row)) for row in rows.values() if left[row.workload] > 0
    ]
    return sorted(found, key=lambda entry: entry.share, reverse=True)


def total(found: Sequence[Entry], runs: int) -> Entry:
    """Return the sum of entries; its latencies are unknown where one of theirs is. ``runs`` counts those of a workload
    once, whatever options it is part of."""
    before, after = (
        _sum([None if ns is None else each.count * ns for each, ns in pairs])
        for pairs in (
            [(each, each.before_ns) for each in found],
            [(each, each.after_ns) for each in found],
        )
    )
    alone, measured = sum(each.alone for each in found), sum(each.measured for each in found)
    return Entry("sum of the dispatches", 1, before, after, alone, measured, runs, "")


def _plain(row: DispatchRow) -> str:
    """Return the name of a dispatch that is no part of an option, where the row is of such too."""
    return next((name for name in row.names if "/" not in name), row.name)


def _of_row(row: DispatchRow, count: int, title: str) -> Entry:
    known = int(row.after_ns is not None)
    alone, gain, of = int(row.alone and known), row.evidence.gain, (row.name, row.workload)
    return Entry(title, count, row.before_ns, row.after_ns, alone, known, row.runs, gain, row.nodes, (), *of)


def _of_option(option: OptionRow, parts: Sequence[DispatchRow]) -> Entry:
    """Return an option with its parts: what it takes is their sum, and what the default takes follows from the
    comparison of both in the model, where there was one."""
    after = _sum([part.after_ns for part in parts])
    before = _sum([part.before_ns for part in parts])
    if option.ratio is not None and after is not None:
        before = after / option.ratio
    below = tuple(_of_part(option, part) for part in parts)
    alone, measured = sum(part.alone for part in below), sum(part.measured for part in below)
    nodes = tuple(dict.fromkeys(node for part in parts for node in part.nodes))
    runs = sum(part.runs for part in parts)
    title = f"{option.name} by {option.option}"
    site = "" if option.ratio is None else option.name
    return Entry(title, option.count, before, after, alone, measured, runs, option.gain, nodes, below, site)


def _of_part(option: OptionRow, part: DispatchRow) -> Entry:
    """Return a part of an option, with what is known of its schedule alone."""
    found = _of_row(part, option.count, _part_name(option, part))
    return replace(found, gain=part.schedule or part.evidence.gain, site="")


def _part_name(option: OptionRow, part: DispatchRow) -> str:
    """Return the name of a part within its option."""
    own = [name for name in part.names if name.startswith(f"{option.name}/")]
    return (own or [part.name])[0].rpartition("/")[2]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def lines(report: ModelReport, columns: int | None) -> list[str]:
    """Return the table, names cut in their middle where it would be wider than ``columns``; nodes stand at the end
    where there is room."""
    found = [(level, entry) for each in entries(report) for level, entry in _flat(each)]
    runs = sum(row.runs for row in report.dispatches)
    found.append((0, total([entry for level, entry in found if level == 0], runs)))
    titles = [_title(level, entry) for level, entry in found]
    width = max([len("dispatch"), *map(len, titles)])
    if columns is not None:
        gain = min(_GAIN, max(len(entry.gain) for _, entry in found))
        width = min(width, max(_LEAST_NAME, columns - _WIDTH - gain))
    heading = _FIGURES.format("before", "after", "", "runs", "speed-up")
    made = [f"{'dispatch':<{width}}  {heading}"]
    for title, (_, entry) in zip(cut_apart(titles, width), found, strict=True):
        figures = (nanoseconds(entry.before_ns), nanoseconds(entry.after_ns), entry.where, entry.runs)
        made.append(f"{title:<{width}}  {_FIGURES.format(*figures, entry.gain)}")
    room = None if columns is None else columns - max(map(len, made)) - 2
    if any(entry.nodes for _, entry in found) and (room is None or room >= _LEAST_NODES):
        wide = max(map(len, made))
        texts = ["nodes", *(listed(entry.nodes) for _, entry in found)]
        made = [f"{line:<{wide}}  {cut(text, room)}" for line, text in zip(made, texts, strict=True)]
    return [_ended(line.rstrip(), columns) for line in made]


def _ended(line: str, columns: int | None) -> str:
    return line if columns is None or len(line) <= columns else f"{line[: columns - 1]}…"


def _flat(entry: Entry) -> Iterator[tuple[int, Entry]]:
    yield 0, entry
    for part in entry.parts:
        yield 1, part


def _title(level: int, entry: Entry) -> str:
    count = f" ×{entry.count}" if entry.count > 1 and level == 0 else ""
    return "  " * level + entry.title + count


__all__ = ["Entry", "entries", "lines", "total"]
