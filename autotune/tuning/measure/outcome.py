"""Measurements of candidates; the one place that decides their outcome."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from autotune.database.records import Latency, Outcome
from autotune.errors import (
    AutotuneError,
    DeviceMemoryError,
    DeviceTimeoutError,
    KnobError,
    LoweringError,
    ScheduleError,
    first_line,
)
from autotune.workers.process import Died


@dataclass(frozen=True)
class Measurement:
    """The end of one candidate; ``latency`` is set exactly when ``outcome`` is ok.

    ``error`` is the largest difference from the reference over the reference's largest magnitude,
    None when the candidate never ran to its end. ``details`` is what a worker that ended wrote last; it is not
    stored. ``host`` names the node that measured it; empty for this machine.
    """

    outcome: Outcome
    latency: Latency | None = None
    error: float | None = None
    message: str = ""
    details: str = ""
    host: str = ""

    @property
    def latency_ns(self) -> float:
        """The minimum, or infinity for a candidate that failed."""
        return self.latency.min_ns if self.latency else float("inf")


def of_exception(error: BaseException, *, running: bool) -> Measurement:
    """Return the outcome of a candidate whose building (or ``running``) raised ``error``."""
    if isinstance(error, ScheduleError | KnobError | LoweringError):
        return Measurement(Outcome.ILLEGAL, message=first_line(error))
    if isinstance(error, MemoryError):
        return Measurement(Outcome.OUT_OF_MEMORY, message="out of memory: more than it may take")
    if isinstance(error, DeviceMemoryError):
        return Measurement(Outcome.OUT_OF_MEMORY, message=first_line(error))
    if isinstance(error, DeviceTimeoutError):
        return Measurement(Outcome.TIMEOUT, message=first_line(error))
    outcome = Outcome.CRASHED if running else Outcome.COMPILE_ERROR
    if isinstance(error, AutotuneError):
        return Measurement(outcome, message=first_line(error))
    return Measurement(outcome, message=_bug(error))


def _bug(error: BaseException) -> str:
    """Return an exception that nobody raised on purpose: say where, so that it can be found and repaired."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"


def of_death(death: Died) -> Measurement:
    """Return the outcome of a candidate during which its worker process ended."""
    outcome = Outcome.TIMEOUT if death.timed_out else Outcome.CRASHED
    if death.out_of_memory:
        outcome = Outcome.OUT_OF_MEMORY
    return Measurement(outcome, message=str(death), details=death.stderr)


def of_difference(error: float, tolerance: float) -> Measurement:
    """Return the outcome of a candidate whose output is too far from the reference."""
    message = f"relative error {error:.3g} is above the tolerance {tolerance:.3g}"
    return Measurement(Outcome.WRONG_RESULT, error=error, message=message)


__all__ = [
    "Measurement",
    "of_death",
    "of_difference",
    "of_exception",
]
