"""The screen of a running job on a terminal of any size: its state first, then a row a dispatch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text

from autotune.database.posterior import Posterior
from autotune.foreign import printable
from autotune.suggest import counted
from autotune.tuning.jobs.forecast import Outlook, outlooks_of
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.progress import ahead_lines, gain_lines
from autotune.tuning.report.status import Status, share_done
from autotune.tuning.report.units import cut_apart, duration, nanoseconds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class SiteRow:
    """The dispatches of a site: latencies of one of them in ns, untuned and as it is used now, ``total_ns`` of all.

    ``gain`` is the speed-up by all in-model measurements so far, with its interval; ``confirmed`` that a comparison has
    shown it statistically significant.
    """

    name: str
    runs: int
    default_ns: float | None
    now_ns: float | None
    total_ns: float
    gain: str = ""
    confirmed: bool = False
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
    ahead: tuple[str, ...]
    """The forecast, what comes after the next action, and the noise of the machine."""
    failures: tuple[tuple[str, int], ...]
    rows: tuple[SiteRow, ...]
    seen: float = 0.0

    @staticmethod
    def of(status: Status, current: Task | None = None) -> Screen:
        """Return the state of a job now; ``current`` is the task that was measured last."""
        several = len(status.models) > 1
        rows = [
            _row(status, each, current, several=several) for each in outlooks_of(status.sites, status.policy)
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
            ahead=tuple(ahead_lines(status)),
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
        head = [*self._head(width, height, ascii_only=ascii_only), Text("")]
        room = height - len(head) - 1  # the header of the table takes one
        shown = self.rows if len(self.rows) <= room else self.rows[: max(0, room - 1)]
        hidden = len(self.rows) - len(shown)
        names = _names(shown, width)
        table = [_table_line(width, None), *map(partial(_table_line, width), shown, names)]
        rest = [Text(f"{more} {hidden} more", style="dim")] if hidden else []
        found = [*head, *table, *rest][: max(1, height)]
        for line in found:
            line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
        return found

    def _head(self, width: int, height: int, *, ascii_only: bool) -> Iterator[Text]:
        yield Text(printable(f"{self.model}, {self.target}"), style="bold")
        yield from (Text(printable(gain)) for gain in self.gains)
        yield self._bar(width, ascii_only=ascii_only)
        yield Text(f"{counted(self.trials, 'trial')}, {self.trials_per_second:.1f}/s")
        if self.failures:
            yield Text("failed: " + ", ".join(f"{n} {name}" for name, n in self.failures), style="yellow")
        yield Text(printable(f"{self.phase}: {self.note}" if self.note else self.phase), style="dim")
        room = max(0, (height - 8) // 3)  # most of the lines are the table's
        yield from (Text(printable(line), style="dim") for line in self.ahead[:room])

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


def _row(status: Status, each: Outlook, current: Task | None, *, several: bool) -> SiteRow:
    site, model = each.site, status.models[each.site.model]
    regions = dict.fromkeys(region.key for option in site.options for region in option.regions)
    tasks = [status.sites.task_of[key] for key in regions if key in status.sites.task_of]
    used = "" if each.used.name == site.default.name else f" {each.used.name}"
    times = f" ×{len(site.names)}" if len(site.names) > 1 else ""
    where = f" ({site.model})" if several else ""
    known = all(status.sites.task_of[region.key].default_ns for region in site.default.regions)
    changed = each.posterior.mean != 0.0 or each.posterior.error != 0.0
    return SiteRow(
        name=f"{site.names[0]}{times}{used}{where}",
        runs=sum(len(task.curve) for task in tasks),
        default_ns=each.untuned_ns if known else None,
        now_ns=each.ns if known else None,
        total_ns=len(site.names) * each.ns,
        gain=_speedup(each.posterior) if known and changed else "",
        confirmed=any(key in model.gains for key in regions),
        current=current is not None and current.workload.key in regions,
    )


def _speedup(known: Posterior) -> str:
    """Return a speed-up with its interval as numbers, whatever it excludes."""
    if not known.error:
        return f"{math.exp(-known.mean):.2f}× alone"
    ratio = known.ratio
    assert ratio.interval is not None
    return f"{1 / ratio.median:.2f}× ({1 / ratio.interval[1]:.2f}× to {1 / ratio.interval[0]:.2f}×)"


_WIDE = 64
"""Columns of a terminal that has room for all figures beside the name."""
_MOST_NAME = 60


def _figures(width: int, row: SiteRow | None) -> str:
    """Return the figures of a row, or their header; narrow terminals have fewer of them."""
    if row is None:
        figures = [f"{'runs':>5}", f"{'default':>9}", f"{'now':>9}", f"{'in the model':>22}  "]
    else:
        default, now = nanoseconds(row.default_ns), nanoseconds(row.now_ns)
        sure = " +" if row.confirmed else "  "
        figures = [f"{row.runs:>5}", f"{default:>9}", f"{now:>9}", f"{row.gain or '-':>22}{sure}"]
    return "  " + "  ".join(figures if width >= _WIDE else figures[3:])


def _names(rows: Sequence[SiteRow], width: int) -> list[str]:
    """Return the names of rows, as long as there is room for, no two of them the same."""
    room = max(1, min(_MOST_NAME, width - len(_figures(width, None))))
    return cut_apart([printable(row.name) for row in rows], room)


def _table_line(width: int, row: SiteRow | None, name: str = "dispatch, longest first") -> Text:
    """Return a row of the table, or its header."""
    end = _figures(width, row)
    shown = Text(name)
    shown.truncate(max(1, min(_MOST_NAME, width - len(end))), overflow="ellipsis", pad=True)
    sure = "green" if row is not None and row.confirmed else ""
    style = "dim" if row is None else "bold" if row.current else sure
    return Text.assemble(shown, end, style=style)


__all__ = ["Screen", "SiteRow"]
