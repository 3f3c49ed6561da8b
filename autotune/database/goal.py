"""The objective of a schedule: latency, or memory or bytes of the artifact within an allowed slowdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from autotune.database.front import FrontPoint, FrontReading
from autotune.database.records import Footprint, Ratio, Run
from autotune.errors import UsageError
from autotune.suggest import listing

MAX_SLOWDOWN = 1.1
"""The allowed latency of a schedule for another objective, over that of the fastest."""


class Objective(StrEnum):
    """The quantity that is minimised."""

    LATENCY = "latency"
    MEMORY = "memory"
    """The memory of a dispatch beside its inputs and outputs: workspaces, scratch memory, values between its steps."""
    SIZE = "size"
    """The bytes that it adds to an artifact: object file and constants."""


FRONT = "front"
"""All of them: what a job searches for a Pareto front."""


def searched(objective: str) -> tuple[Objective, ...]:
    """Return the objectives that a search minimises, latency first. Raises UsageError.

    >>> [str(found) for found in searched("memory")]
    ['latency', 'memory']
    """
    _check_known(objective, [*Objective, FRONT])
    wanted = Objective if objective == FRONT else (Objective.LATENCY, Objective(objective))
    return tuple(dict.fromkeys(wanted))


def _check_known(objective: str, names: Sequence[str]) -> None:
    if objective not in names:
        raise UsageError(f"unknown objective {objective!r}\n  one of {listing(objective, names)}")


@dataclass(frozen=True)
class Goal:
    """The objective, and how much longer than the fastest a dispatch may take for it (1: no longer)."""

    objective: Objective = Objective.LATENCY
    max_slowdown: float = MAX_SLOWDOWN
    most_scratch: int | None = None
    """Bytes of scratch memory that a model has anyway: memory counts beside that, and nothing may take more."""

    @staticmethod
    def of(objective: str, max_slowdown: float = MAX_SLOWDOWN) -> Goal:
        """Return the goal of an objective's name. Raises UsageError."""
        _check_known(objective, [*Objective])
        if not 1 <= max_slowdown < float("inf"):
            raise UsageError(f"max_slowdown {max_slowdown}; allowed: 1 (no slower than the fastest) or more")
        return Goal(Objective(objective), max_slowdown)

    @property
    def is_latency(self) -> bool:
        """Return whether the fastest is wanted, whatever else it takes."""
        return self.objective is Objective.LATENCY

    def after(self, slowdown: float) -> Goal:
        """Return the goal of what is left to choose where a choice before costs so much already."""
        return replace(self, max_slowdown=max(1.0, self.max_slowdown / slowdown))

    def bytes_of(self, footprint: Footprint) -> int:
        """Return the quantity that is minimised."""
        if self.objective is not Objective.MEMORY:
            return footprint.artifact_bytes
        return footprint.memory_bytes if self.most_scratch is None else footprint.workspace_bytes

    def order(self, footprint: Footprint, slowdown: float) -> tuple[bool, int, int, float]:
        """Return the sort key: the smallest comes first; of equal ones the one with less of the rest."""
        both = footprint.memory_bytes + footprint.artifact_bytes
        return self.exceeded(footprint), self.bytes_of(footprint), both, slowdown

    def exceeded(self, footprint: Footprint) -> bool:
        """Return whether it takes more scratch memory than there is."""
        return self.most_scratch is not None and footprint.scratch_bytes > self.most_scratch

    def better(self, footprint: Footprint, fastest: Footprint) -> bool:
        """Return whether something is used instead of the fastest."""
        mine, its = (self.order(found, 0.0)[:2] for found in (footprint, fastest))
        return mine < its


FASTEST = Goal()


def goals_of(objective: str) -> tuple[Goal, ...]:
    """Return the goals whose winners a job for an objective compares, beside the fastest."""
    return tuple(Goal(found) for found in searched(objective) if found is not Objective.LATENCY)


@dataclass(frozen=True)
class Saving:
    """Why something is used that is not the fastest: it takes ``nbytes`` instead of ``before`` of ``objective``.

    ``ratio`` is its latency over that of the fastest. It is ``confirmed`` if a comparison read it beside that, and all
    of the interval is within the allowed slowdown.
    """

    objective: Objective
    nbytes: int
    before: int
    ratio: Ratio
    confirmed: bool

    @staticmethod
    def by(goal: Goal, footprint: Footprint, before: Footprint, ratio: Ratio) -> Saving:
        """Return the saving of one footprint over another for a goal."""
        confirmed = ratio.interval is not None and ratio.interval[1] <= goal.max_slowdown
        plain = replace(goal, most_scratch=None)
        return Saving(goal.objective, plain.bytes_of(footprint), plain.bytes_of(before), ratio, confirmed)

    def __str__(self) -> str:
        """Return the goal in words.

        >>> print(Saving(Objective.SIZE, 300, 400, Ratio(1.05, (1.02, 1.08)), True))
        0.75 of the size, 1.05 (1.02 to 1.08) of the latency
        >>> print(Saving(Objective.MEMORY, 0, 64, Ratio(0.99), False))
        0.00 of the memory, 0.99 of the latency, unconfirmed
        """
        bounds = self.ratio.interval
        interval = "" if bounds is None else f" ({bounds[0]:.2f} to {bounds[1]:.2f})"
        doubt = "" if self.confirmed else ", unconfirmed"
        share = f"{self.nbytes / max(self.before, 1):.2f} of the {self.objective}"
        return f"{share}, {self.ratio.median:.2f}{interval} of the latency{doubt}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON, of reports and of ``--json``."""
        return {
            "objective": self.objective.value,
            "bytes": self.nbytes,
            "bytes_of_fastest": self.before,
            "slowdown": self.ratio.median,
            "interval": self.ratio.interval,
            "confirmed": self.confirmed,
        }


def smallest(points: Iterable[FrontPoint], fastest: Run, goal: Goal) -> tuple[Run, Saving] | None:
    """Return the run to use instead of the fastest, and its saving; None where the fastest is the one to use.

    It was read beside the default inside a model, and took at most the allowed slowdown times what the fastest took.
    """
    known = {point.run.trace_key: point for point in points if point.read is not FrontReading.ALONE}
    base = known.get(fastest.trace_key)
    if goal.is_latency or base is None:
        return None
    slowdowns = {trace: point.ratio.over(base.ratio) for trace, point in known.items()}
    enough = [point for trace, point in known.items() if slowdowns[trace].median <= goal.max_slowdown]
    best = min([base, *enough], key=lambda p: goal.order(p.footprint, slowdowns[p.run.trace_key].median))
    if not goal.better(best.footprint, base.footprint):
        return None
    ratio = slowdowns[best.run.trace_key]
    return best.run, Saving.by(goal, best.footprint, base.footprint, ratio)


__all__ = [
    "FASTEST",
    "FRONT",
    "MAX_SLOWDOWN",
    "Goal",
    "Objective",
    "Saving",
    "goals_of",
    "searched",
    "smallest",
]
