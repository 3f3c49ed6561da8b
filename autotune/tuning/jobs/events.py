"""Events of a tuning job for a user's callback, and the way to end the job there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autotune.database.records import Ratio, Run
from autotune.suggest import counted
from autotune.tuning.jobs.forecast import Forecast
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status


class StopTuning(Exception):
    """Raised by a callback to end the search early: as after Ctrl-C the best so far is kept, and the
    report says ``stopped``."""


@dataclass(frozen=True)
class TuningEvent:
    """A tuning job when something happened.

    ``event`` is ``started``, ``measured`` (a trial ended), ``phase`` (``phase`` or its ``note`` changed) or
    ``finished``. ``confirmed`` is what schedules confirmed inside the model make of the sum over its dispatches; None
    while there are none. ``forecast`` is what the job is expected to gain in its time. Latencies are in ns: of the
    model by the default schedules and by the smallest readings, as sums over its dispatches (None until all are known;
    they promise more than comes of them; of several models the geometric mean), and of the trial that was measured
    (None if it failed: ``outcome`` and ``message`` say how). ``origin`` says why it was: default, search, or near,
    found for a near workload. ``outcomes`` counts the trials of this session. ``report`` comes with ``finished``.
    """

    event: str
    model: str
    job: str
    phase: str
    note: str
    trials: int
    elapsed_s: float
    eta_s: float | None
    trials_per_second: float
    outcomes: Mapping[str, int]
    default_ns: float | None
    best_ns: float | None
    confirmed: Ratio | None = None
    forecast: Forecast | None = None
    dispatch: str = ""
    origin: str = ""
    outcome: str = ""
    latency_ns: float | None = None
    message: str = ""
    report: Report | None = None

    @property
    def speedup(self) -> float | None:
        """Return the speed-up of the model, as far as that is confirmed; None while nothing is."""
        return None if self.confirmed is None else self.confirmed.speedup


Callback = Callable[[TuningEvent], object]


class Calls(Progress):
    """Calls a function with every event of a job; what it returns is ignored, what it raises ends the job."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._last: Status | None = None

    def started(self, status: Status) -> None:
        """Report that the job begins or goes on."""
        self._last = status
        self._call(_event("started", status), status.database)

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Report one trial, after it was stored."""
        event = _event(
            "measured",
            status,
            dispatch=task.name,
            origin=run.origin.value,
            outcome=run.outcome.value,
            latency_ns=run.latency.min_ns if run.latency else None,
            message=run.message,
        )
        self._call(event, status.database)

    def phase(self, status: Status) -> None:
        """Report the next phase."""
        self._call(_event("phase", status), status.database)

    def finished(self, report: Report) -> None:
        """Report the end; there is nothing left to stop."""
        if self._last is not None:
            with suppress(StopTuning):
                self._call(_event("finished", self._last, report=report), report.database)

    def _call(self, event: TuningEvent, database: str) -> None:
        try:
            self._callback(event)
        except StopTuning:
            raise
        except Exception as error:
            error.add_note(
                f"raised by the callback of autotune.tune at the event {event.event!r}: tuning has ended after "
                f"{counted(event.trials, 'trial')}, which {database} has, and the same call goes on with them"
            )
            raise


class Several(Progress):
    """Several displays of one job."""

    def __init__(self, parts: Sequence[Progress]) -> None:
        self._parts = parts

    def preparing(self, note: str) -> None:
        """Pass it on."""
        for part in self._parts:
            part.preparing(note)

    def started(self, status: Status) -> None:
        """Pass it on."""
        for part in self._parts:
            part.started(status)

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Pass it on."""
        for part in self._parts:
            part.measured(status, task, run)

    def phase(self, status: Status) -> None:
        """Pass it on."""
        for part in self._parts:
            part.phase(status)

    def chosen(self, status: Status) -> None:
        """Pass it on."""
        for part in self._parts:
            part.chosen(status)

    def finished(self, report: Report) -> None:
        """Pass it on."""
        for part in self._parts:
            part.finished(report)

    def close(self) -> None:
        """Pass it on."""
        for part in self._parts:
            part.close()


def _event(event: str, status: Status, **fields: Any) -> TuningEvent:
    return TuningEvent(
        event=event,
        model=status.model,
        job=status.job,
        phase=status.phase,
        note=status.note,
        trials=status.meter.trials,
        elapsed_s=status.meter.elapsed_s,
        eta_s=status.eta_s,
        trials_per_second=status.trials_per_second,
        outcomes=dict(status.outcomes),
        default_ns=status.default_ns,
        best_ns=status.best_ns,
        confirmed=status.confirmed,
        forecast=status.forecast,
        **fields,
    )


__all__ = ["Callback", "Calls", "Several", "StopTuning", "TuningEvent"]
