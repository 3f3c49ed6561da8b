"""Progress displays: a live table on a terminal, plain lines elsewhere, JSON lines for machines."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TextIO

from autotune.database.records import Run
from autotune.tuning.report import Report, lines_of, nanoseconds, summary, times
from autotune.tuning.status import Progress, Status
from autotune.tuning.task import Task

if TYPE_CHECKING:
    from rich.console import Group


class Silent:
    """Shows nothing."""

    def started(self, status: Status) -> None:
        """Nothing."""

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Nothing."""

    def phase(self, status: Status) -> None:
        """Nothing."""

    def finished(self, report: Report) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class JsonLines:
    """One JSON object a line, with an ``event`` each: started, measured, phase, finished."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _say(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._out, flush=True)

    def started(self, status: Status) -> None:
        """Which job, and how many tasks."""
        tasks = [{"name": t.name, "workload": t.workload.key, "weight": t.weight} for t in status.tasks]
        self._say(
            "started",
            job=status.job,
            model=status.model,
            database=status.database,
            target=status.target,
            continued=status.continued,
            recalled=status.recalled,
            tasks=tasks,
        )

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """One run, after it was stored."""
        self._say(
            "measured",
            task=task.name,
            workload=run.key.workload,
            trace=run.trace_key,
            outcome=run.outcome.value,
            latency_ns=run.latency.min_ns if run.latency else None,
            message=run.message,
            **status.to_json(),
        )

    def phase(self, status: Status) -> None:
        """What comes next."""
        self._say("phase", **status.to_json())

    def finished(self, report: Report) -> None:
        """The whole report."""
        self._say("finished", **report.to_json())

    def close(self) -> None:
        """Nothing to give back."""


class PlainLines:
    """A line every few seconds, for logs; ``brief`` without the table of dispatches at the end."""

    def __init__(self, out: TextIO, every_s: float = 5.0, *, brief: bool = False) -> None:
        self._out = out
        self._brief = brief
        self._every_s = every_s
        self._said = 0.0

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def started(self, status: Status) -> None:
        """What is tuned, for what, into which database."""
        self._said = time.monotonic()
        for line in headline(status):
            self._say(line)

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """A line if the last one is old enough."""
        if time.monotonic() - self._said >= self._every_s:
            self._said = time.monotonic()
            self._say(state_line(status))

    def phase(self, status: Status) -> None:
        """What comes next."""
        self._say(f"{status.phase} after {status.meter.trials} trials{_note(status)}")

    def finished(self, report: Report) -> None:
        """The whole report, or the end of it."""
        for line in summary(report) if self._brief else lines_of(report):
            self._say(line)

    def close(self) -> None:
        """Nothing to give back."""


class Live:
    """A table of the tasks that is redrawn in place on a terminal."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(file=out)
        self._live = RichLive(console=self._console, refresh_per_second=4, transient=True)

    def started(self, status: Status) -> None:
        """Draw the first table."""
        for line in headline(status):
            self._console.print(line, highlight=False)
        self._live.start()

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Redraw."""
        self._live.update(_table(status, task, self._console.height))

    def phase(self, status: Status) -> None:
        """Redraw."""
        self._live.update(_table(status, None, self._console.height))

    def finished(self, report: Report) -> None:
        """Remove the table and print the report."""
        self._live.stop()
        for line in lines_of(report, self._console.width):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Stop drawing."""
        self._live.stop()


def _note(status: Status) -> str:
    return f": {status.note}" if status.note else ""


def headline(status: Status) -> list[str]:
    """What is tuned, for what, into which database."""
    dispatches, ways = status.objective.dispatches, len(status.objective.forks)
    more = f" ({ways} with several algorithms)" if ways else ""
    lines = [
        f"tuning {status.model}: {dispatches} dispatches, {len(status.tasks)} workloads{more}, for {status.target}",
        f"database {status.database}, budget {status.meter.budget}",
    ]
    if status.continued:
        lines.append(
            f"continuing job {status.job}: {status.meter.trials} trials done, {status.recalled} runs known"
        )
    elif status.recalled:
        lines.append(f"the database knows {status.recalled} runs of these workloads")
    return lines


def state_line(status: Status) -> str:
    """Trials, speed, best so far, time left and failures in one line."""
    limit = status.meter.budget.trials
    done = f"{status.meter.trials}" + (f"/{limit}" if limit else "")
    eta = "" if status.eta_s is None else f", {_duration(status.eta_s)} left"
    bad = {name: n for name, n in status.outcomes.items() if name != "ok"}
    failures = "".join(f", {n} {name}" for name, n in sorted(bad.items()))
    return (
        f"{done} trials, {status.trials_per_second:.1f}/s, dispatches "
        f"{nanoseconds(status.default_ns)} → {nanoseconds(status.best_ns)}{eta}{failures}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _table(status: Status, current: Task | None, height: int) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("dispatch", "kind", "runs", "default", "best", "speed-up"):
        table.add_column(name, justify="left" if name in ("dispatch", "kind") else "right")
    tasks = sorted(status.tasks, key=lambda task: -task.weight * (task.default_ns or 0.0))
    for task in tasks[: max(3, height - 6)]:
        speedup = task.default_ns / task.best_ns if task.default_ns else None
        table.add_row(
            task.name,
            task.workload.kind,
            str(len(task.curve)),
            nanoseconds(task.default_ns),
            nanoseconds(task.best_ns),
            times(speedup),
            style="bold" if task is current else None,
        )
    bar = ProgressBar(total=1.0, completed=_share_done(status), width=40)
    return Group(table, bar, Text(f"{status.phase}{_note(status)}; {state_line(status)}"))


def _share_done(status: Status) -> float:
    meter, budget = status.meter, status.meter.budget
    shares = [meter.trials / budget.trials if budget.trials else 0.0]
    if budget.limit_s:
        shares.append(meter.elapsed_s / budget.limit_s)
    return min(1.0, max(shares))


def display(out: TextIO, *, as_json: bool = False) -> Progress:
    """The display that fits ``out``."""
    if as_json:
        return JsonLines(out)
    return Live(out) if out.isatty() else PlainLines(out)


__all__ = ["JsonLines", "Live", "PlainLines", "Silent", "display", "headline", "state_line"]
