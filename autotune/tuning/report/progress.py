"""Progress displays: plain lines for logs, JSON lines for machines; ``live`` has those that are redrawn in place."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from autotune.database.records import Outcome, Run
from autotune.foreign import printable
from autotune.suggest import counted
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.result import Report, lines_of, summary
from autotune.tuning.report.status import ModelStatus, Progress, Status, headline
from autotune.tuning.report.units import duration, nanoseconds
from autotune.tuning.report.width import columns_of, wrapped

NOTABLE = 0.02
"""A gain in the readings that is worth a line."""
ALIVE_S = 5.0
"""Seconds after which work before the search says again that it goes on."""
QUIET_S = 600.0
"""After so long without a line there is one anyway: it still works."""


class JsonLines(Progress):
    """One JSON object a line, with an ``event`` each: preparing, started, next, measured, phase,
    finished."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _say(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._out, flush=True)

    def preparing(self, note: str) -> None:
        """Report what takes time before the job begins."""
        self._say("preparing", note=note)

    def started(self, status: Status) -> None:
        """Report the job, and the number of tasks."""
        tasks = [{"name": t.name, "workload": t.workload.key, "weight": t.weight} for t in status.tasks]
        self._say(
            "started",
            job=status.job,
            models=[*status.models],
            database=status.database,
            target=status.target,
            continued=status.continued,
            recalled=status.recalled,
            tasks=tasks,
            forecast=None if status.forecast is None else status.forecast.to_json(),
        )

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Report one run, after it was stored."""
        self._say(
            "measured",
            task=task.name,
            workload=run.key.workload,
            trace=run.trace_key,
            origin=run.origin.value,
            outcome=run.outcome.value,
            latency_ns=run.latency.min_ns if run.latency else None,
            message=run.message,
            **status.to_json(),
        )

    def phase(self, status: Status) -> None:
        """Report the next phase."""
        self._say("phase", **status.to_json())

    def chosen(self, status: Status) -> None:
        """Report what comes next."""
        action = status.policy.last
        if action is not None:
            then = [other.to_json() for other in status.policy.others]
            self._say("next", **action.to_json(), then=then, elapsed_s=round(status.meter.elapsed_s, 3))

    def finished(self, report: Report) -> None:
        """Show the whole report."""
        self._say("finished", **report.to_json())


class PlainLines(Progress):
    """A line for each event worth reading, for logs; ``brief`` without the table of dispatches at the end.

    These are: the start, the defaults measured, a gain of :data:`NOTABLE`, the first failure of a kind, what
    comes next, the end; and after :data:`QUIET_S` without any of them a sign of life.
    """

    def __init__(self, out: TextIO, *, brief: bool = False) -> None:
        self._out = out
        self._brief = brief
        self._said = time.monotonic()
        self._best_ns: float | None = None
        self._phase = ""
        self._failures: set[str] = set()

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        _print([text], self._out)

    def preparing(self, note: str) -> None:
        """Report what takes time before the search."""
        self._say(note)

    def started(self, status: Status) -> None:
        """Report what is tuned, for what, into which database."""
        for line in headline(status):
            self._say(line)
        self._best_ns = status.best_ns

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Print a line if this was worth one."""
        kind, best = run.outcome.value, status.best_ns
        if run.outcome is not Outcome.OK and kind not in self._failures:
            self._failures.add(kind)
            self._say(f"first {kind}, of {task.name}: {run.message}")
        if best is not None and self._best_ns is None:
            self._best_ns = best
            self._say(f"defaults measured: {state_line(status)}")
        elif best is not None and self._best_ns is not None and best < (1 - NOTABLE) * self._best_ns:
            self._best_ns = best
            self._say_state(status)
        elif time.monotonic() - self._said >= QUIET_S:
            self._say_state(status)

    def _say_state(self, status: Status) -> None:
        self._say(state_line(status))
        for line in ahead_lines(status):
            self._say(f"  {line}")

    def phase(self, status: Status) -> None:
        """Report the next phase."""
        text = f"{status.phase} after {counted(status.meter.trials, 'trial')}{_note(status)}"
        if text != self._phase:
            self._phase = text
            self._say(text)

    def finished(self, report: Report) -> None:
        """Show the whole report, or the end of it."""
        for line in summary(report) if self._brief else lines_of(report):
            self._say(line)


class Reasons(PlainLines):
    """The same, and a line for each step: what is done next, and what it promises."""

    def chosen(self, status: Status) -> None:
        """Report what comes next, and why."""
        if status.policy.last is not None:
            self._say(f"{duration(status.meter.elapsed_s)}  {status.policy.last}")


class Result(Progress):
    """The end of the report, and nothing before it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def finished(self, report: Report) -> None:
        """Show what came of it."""
        _print(summary(report), self._out)


def _print(lines: Iterable[str], out: TextIO) -> None:
    for line in wrapped(map(printable, lines), columns_of(out)):
        print(line, file=out, flush=True)


def _note(status: Status) -> str:
    return f": {status.note}" if status.note else ""


def state_line(status: Status) -> str:
    """Return trials, speed, best so far, time left and failures in one line."""
    limit = status.meter.budget.trials
    trials = status.meter.trials
    done = f"{trials}/{counted(limit, 'trial')}" if limit else counted(trials, "trial")
    eta = "" if status.eta_s is None else f", {duration(status.eta_s)} left"
    bad = {name: n for name, n in status.outcomes.items() if name != "ok"}
    failures = "".join(f", {n} {name}" for name, n in sorted(bad.items()))
    return f"{done}, {status.trials_per_second:.1f}/s, {'; '.join(gain_lines(status))}{eta}{failures}"


def gain_line(model: ModelStatus) -> str:
    """Return the confirmed speed-up of a model, and what single measurements promise beside it."""
    many = counted(len(model.gains), "workload")
    known = "nothing confirmed" if model.confirmed is None else f"confirmed {model.confirmed} in {many}"
    readings = f"{nanoseconds(model.default_ns)} → {nanoseconds(model.best_ns)}"
    return f"{known}, unconfirmed {readings}"


def gain_lines(status: Status) -> list[str]:
    """Return :func:`gain_line` of each model, with its name where there are several."""
    if len(status.models) == 1:
        return [gain_line(model) for model in status.models.values()]
    return [f"{name}: {gain_line(model)}" for name, model in status.models.items()]


def ahead_lines(status: Status) -> list[str]:
    """Return the forecast, what would be done instead of the next action, and the noise of the machine now and at the
    start."""
    found = status.forecast
    lines = [] if found is None else [f"forecast: {found.gain}", found.roofline]
    noise = str(status.noise)
    lines += [f"noise (at first): {noise}"] if noise else []
    return lines + [f"then: {action}" for action in status.policy.others]


@contextmanager
def signs_of_life(say: Callable[[str], None], note: str, every_s: float = ALIVE_S) -> Iterator[None]:
    """Say what takes time now, and again every few seconds as long as it does."""
    say(note)
    begun, over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not over.wait(every_s):
            say(f"{note}, {duration(time.monotonic() - begun)} so far")

    telling = threading.Thread(target=tell, name="autotune-alive", daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()


def display(out: TextIO, *, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> Progress:
    """Return the display that fits ``out``: JSON lines, a notebook's cell, a terminal or a log; ``quiet`` the result
    alone, ``verbose`` a line for each step."""
    if as_json:
        return JsonLines(out)
    if quiet or verbose:
        return Reasons(out) if verbose else Result(out)
    from autotune.tuning.report.live import Live, Notebook, in_notebook

    if in_notebook():
        return Notebook()
    return Live(out) if out.isatty() else PlainLines(out)


__all__ = [
    "NOTABLE",
    "QUIET_S",
    "JsonLines",
    "PlainLines",
    "Reasons",
    "Result",
    "ahead_lines",
    "display",
    "gain_lines",
    "signs_of_life",
    "state_line",
]
