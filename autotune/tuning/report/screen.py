"""The screen of a running job on a terminal of any size: its state first, then a row a task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.text import Text

from autotune.foreign import printable
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.progress import gain_lines
from autotune.tuning.report.status import Status, share_done
from autotune.tuning.report.units import duration, nanoseconds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class TaskRow:
    """One task; the smallest readings in ns of one dispatch, ``total_ns`` of all that the model has of it.

    ``gain`` is what was confirmed inside the model, empty without.
    """

    name: str
    runs: int
    default_ns: float | None
    best_ns: float | None
    total_ns: float
    gain: str = ""
    current: bool = False


@dataclass(frozen=True)
class Screen:
    """A job at one moment, drawn by rich in as many lines and columns as there are.

    ``share`` is how much of the budget is used, from 0 to 1; ``failures`` are counts by kind. ``seen`` is
    when this was so, by ``time.monotonic``: time goes on between two trials.
    """

    model: str
    target: str
    phase: str
    note: str
    budget: str
    share: float
    elapsed_s: float
    eta_s: float | None
    trials: int
    trials_per_second: float
    gains: tuple[str, ...]
    failures: tuple[tuple[str, int], ...]
    rows: tuple[TaskRow, ...]
    seen: float = 0.0

    @staticmethod
    def of(status: Status, current: Task | None = None) -> Screen:
        """Return the state of a job now; ``current`` is the task that was measured last."""
        rows = [
            _row(task, status.gains.get(task.workload.key, ""), current=task is current)
            for task in status.tasks
        ]
        return Screen(
            model=status.model,
            target=status.target,
            phase=status.phase,
            note=status.note or (current.name if current is not None else ""),
            budget=str(status.meter.budget),
            share=share_done(status.meter),
            elapsed_s=status.meter.elapsed_s,
            eta_s=status.eta_s,
            trials=status.meter.trials,
            trials_per_second=status.trials_per_second,
            gains=tuple(gain_lines(status)),
            failures=tuple(sorted((name, n) for name, n in status.outcomes.items() if name != "ok")),
            rows=tuple(sorted(rows, key=lambda row: -row.total_ns)),
            seen=time.monotonic(),
        )

    def later(self, now: float) -> Screen:
        """Return the same after some time without news: the clock has gone on."""
        gone = max(0.0, now - self.seen)
        left = None if self.eta_s is None else max(0.0, self.eta_s - gone)
        return replace(self, elapsed_s=self.elapsed_s + gone, eta_s=left, seen=now)

    def lines(self, width: int, height: int, *, ascii_only: bool = False) -> list[Text]:
        """Return at most ``height`` lines of at most ``width`` columns."""
        more = "..." if ascii_only else "…"
        head = [*self._head(width, ascii_only=ascii_only), Text("")]
        room = height - len(head) - 1  # the header of the table takes one
        shown = self.rows if len(self.rows) <= room else self.rows[: max(0, room - 1)]
        hidden = len(self.rows) - len(shown)
        table = [_table_line(width, None), *(_table_line(width, row) for row in shown)]
        rest = [Text(f"{more} {hidden} more", style="dim")] if hidden else []
        found = [*head, *table, *rest][: max(1, height)]
        for line in found:
            line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
        return found

    def _head(self, width: int, *, ascii_only: bool) -> Iterator[Text]:
        yield Text(printable(f"{self.model}, {self.target}"), style="bold")
        yield from (Text(printable(gain)) for gain in self.gains)
        yield self._bar(width, ascii_only=ascii_only)
        yield Text(f"{self.trials} trials, {self.trials_per_second:.1f}/s")
        if self.failures:
            yield Text("failed: " + ", ".join(f"{n} {name}" for name, n in self.failures), style="yellow")
        yield Text(printable(f"{self.phase}: {self.note}" if self.note else self.phase), style="dim")

    def _bar(self, width: int, *, ascii_only: bool) -> Text:
        left = "" if self.eta_s is None else f", {duration(self.eta_s)} left"
        end = f" {100 * self.share:.0f} %{left} of {self.budget}"
        full, empty = ("#", ".") if ascii_only else ("━", "─")
        cells = max(4, min(60, width - len(end)))
        done = round(self.share * cells)
        return Text.assemble((full * done, "green"), (empty * (cells - done), "dim"), end)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The last line of the terminal is the cursor's.
        later = self.later(time.monotonic())
        yield from later.lines(options.max_width, options.size.height - 1, ascii_only=options.ascii_only)


def _row(task: Task, gain: str, *, current: bool) -> TaskRow:
    best = task.best_ns if task.best_ns < float("inf") else None
    return TaskRow(
        name=task.name,
        runs=len(task.curve),
        default_ns=task.default_ns,
        best_ns=best,
        total_ns=task.weight * (best or task.default_ns or 0.0),
        gain=gain,
        current=current,
    )


_WIDE = 64
"""Columns of a terminal that has room for all figures beside the name."""


def _table_line(width: int, row: TaskRow | None) -> Text:
    """Return a row of the table, or its header; narrow terminals have fewer columns of it."""
    if row is None:
        figures = [f"{'runs':>5}", f"{'default':>9}", f"{'best read':>9}", f"{'confirmed':>22}"]
    else:
        default, best = nanoseconds(row.default_ns), nanoseconds(row.best_ns)
        figures = [f"{row.runs:>5}", f"{default:>9}", f"{best:>9}", f"{row.gain or '-':>22}"]
    end = "  " + "  ".join(figures if width >= _WIDE else figures[3:])
    name = Text("dispatch, longest first" if row is None else printable(row.name))
    name.truncate(max(1, min(60, width - len(end))), overflow="ellipsis", pad=True)
    style = "dim" if row is None else "bold" if row.current else ""
    return Text.assemble(name, end, style=style)


__all__ = ["Screen", "TaskRow"]
