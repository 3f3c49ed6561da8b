"""The limit of a job, in trials or in time; asked once a turn in every phase."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from numbers import Real
from typing import TypeAlias

from autotune.errors import UsageError
from autotune.suggest import counted

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, repr=False)
class Budget:
    """A limit on time, on measured trials, on those of each workload, or on several (the first one reached
    ends the job).

    ``time`` is a text such as ``90s``, ``10m``, ``8h`` or ``1h30m``, or a number of seconds; ``seconds``, ``minutes``
    and ``hours`` are added to it. ``per_workload`` counts what the database knows already. With ``stop_when`` the
    search ends as soon as the rest of it is expected to make less than this part of the model's latency go. ``whole``
    is the text of the budget that this one is a part of. Raises UsageError unless there is a positive limit.

    >>> Budget("1h30m", trials=2000)
    Budget('1h30m', trials=2000)
    >>> Budget(hours=8).limit_s, Budget(60)
    (28800.0, Budget('1m'))
    """

    time: InitVar[str | float | None] = None
    trials: int | None = None
    seconds: float | None = None
    minutes: float | None = None
    hours: float | None = None
    per_workload: int | None = None
    stop_when: float | None = None
    whole: str = ""

    def __post_init__(self, time: str | float | None) -> None:
        if time is not None:
            object.__setattr__(self, "seconds", _seconds(time) + (self.seconds or 0.0))
        if self.trials is None and self.limit_s is None and self.per_workload is None:
            raise UsageError("a budget needs trials=, per_workload=, seconds=, minutes= or hours=")
        for name in ("trials", "seconds", "minutes", "hours", "per_workload"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"a budget must be positive, got {name}={value}")
        if self.stop_when is not None and not 0 < self.stop_when < 1:
            raise UsageError(
                f"stop_when is a part of the latency, above 0 and below 1 (2 % is 0.02), got {self.stop_when}"
            )

    @property
    def limit_s(self) -> float | None:
        """The time limit in seconds, None for no limit."""
        parts = ((self.seconds, 1.0), (self.minutes, 60.0), (self.hours, 3600.0))
        given = [value * unit for value, unit in parts if value is not None]
        return float(sum(given)) if given else None

    @property
    def requested(self) -> str:
        """Return the text of the budget that a call was given, of which this may be a part."""
        return self.whole or str(self)

    @staticmethod
    def of(value: BudgetLike) -> Budget:
        """Return a budget, or the time budget of a text or of seconds; raises UsageError for anything else."""
        return value if isinstance(value, Budget) else Budget(value)

    def __repr__(self) -> str:
        counts = {"trials": self.trials, "per_workload": self.per_workload, "stop_when": self.stop_when}
        given = [f"{name}={value}" for name, value in counts.items() if value is not None]
        limit = [repr(_time_text(self.limit_s))] if self.limit_s is not None else []
        return f"Budget({', '.join(limit + given)})"

    def __str__(self) -> str:
        trials = [counted(self.trials, "trial")] if self.trials is not None else []
        each = [f"{counted(self.per_workload, 'trial')} a workload"] if self.per_workload is not None else []
        time_limit = [_time_text(self.limit_s)] if self.limit_s is not None else []
        enough = [f"less than {100 * self.stop_when:g} % to gain"] if self.stop_when is not None else []
        return " or ".join(trials + each + time_limit + enough)


BudgetLike: TypeAlias = Budget | str | float
"""A budget, the text of a time, or seconds."""


def _seconds(text: str | float) -> float:
    """Return seconds of a text such as ``90s``, or of a number; raises UsageError."""
    if isinstance(text, Real) and not isinstance(text, bool):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text) if isinstance(text, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(
            f"not a time budget: {text!r}; write 90s, 10m, 8h or 1h30m, in Python also a number of seconds "
            "(Budget(trials=200) counts candidates)"
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _time_text(seconds: float) -> str:
    """Return the text of a time budget."""
    whole, fraction = divmod(seconds, 1.0)
    minutes, rest = divmod(int(whole), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest + fraction, "s")]
    return "".join(f"{number:g}{unit}" for number, unit in parts if number)


def part_of(text: str) -> float:
    """Return the part that a text such as ``2%`` or ``0.02`` names; raises UsageError.

    >>> part_of("2%"), part_of("0.5 %"), part_of("0.02")
    (0.02, 0.005, 0.02)
    """
    number, percent, rest = text.strip().partition("%")
    try:
        found = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        found = math.nan
    if rest or not 0 < found < 1:
        raise UsageError(f"not a part of the latency: {text!r}; write 2% or 0.02")
    return found


def process_age() -> float:
    """Return seconds since this process was started: what a user has waited before anything was imported."""
    import psutil

    return max(0.0, time.time() - float(psutil.Process().create_time()))


@dataclass
class Meter:
    """The used part of a job's budget; ``trials`` and ``before_s`` come from earlier sessions.

    ``head_s``: seconds that this session took before there was a meter.
    """

    budget: Budget
    trials: int = 0
    before_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    head_s: float = 0.0
    reserve_s: float = 0.0
    """Time kept back from the search for what comes after it."""
    enough: str = ""
    """Why the search ends before its time."""
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock() - self.head_s

    @property
    def elapsed_s(self) -> float:
        """Seconds that the job worked, in all its sessions."""
        return self.before_s + self.clock() - self._start

    @property
    def session_s(self) -> float:
        """Seconds of this session alone."""
        return self.clock() - self._start

    @property
    def trials_left(self) -> float:
        """Trials that may still be measured; infinite without a limit."""
        limit = self.budget.trials
        return float("inf") if limit is None else max(0, limit - self.trials)

    @property
    def left_s(self) -> float:
        """Seconds until the budget is over, with all that follows the search; infinite without a limit."""
        limit = self.budget.limit_s
        return float("inf") if limit is None else max(0.0, limit - self.elapsed_s)

    @property
    def seconds_left(self) -> float:
        """Time left for the search; infinite without a limit."""
        if self.enough:
            return 0.0
        return max(0.0, self.left_s - self.reserve_s)

    def past(self) -> Callable[[], bool]:
        """Return what says if the time for the search is over."""
        return lambda: self.seconds_left <= 0

    def over(self, share: float) -> Callable[[], bool]:
        """Return asks whether this share of the seconds that are left now has passed."""
        if self.budget.limit_s is None:
            return lambda: False
        end = (1.0 - share) * self.left_s
        return lambda: self.left_s <= end

    @property
    def spent(self) -> bool:
        """Return whether the search has to end."""
        return self.trials_left < 1 or self.seconds_left <= 0


__all__ = ["Budget", "BudgetLike", "Meter", "part_of", "process_age"]
