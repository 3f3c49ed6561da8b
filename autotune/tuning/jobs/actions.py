"""Actions of a tuning job: one is chosen at each step by what it promises for the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune.passes.options import Option
from autotune.tuning.jobs.task import Task


class ActionKind(StrEnum):
    """The kinds of actions."""

    DEFAULTS = "defaults"
    """Build and time default schedules."""
    SEARCH = "search"
    """Propose, build and time candidates of a workload."""
    MEASURE = "measure"
    """Measure what a search has found in the model."""
    OPTIONS = "options"
    """Compare options in the model."""
    SCHEDULES = "schedules"
    """Compare schedules in the model."""


BUILDING = (ActionKind.DEFAULTS, ActionKind.SEARCH)
"""Those that build candidates."""


@dataclass(frozen=True)
class Action:
    """One thing to do next: ``gain`` is expected, as a part of the models' latency, with a standard deviation.

    ``tasks`` are those whose candidates are built, ``options`` those to compare by workload key of their site, and
    ``schedules`` trace keys to compare by workload key; ``model`` is the one that this is measured in.
    """

    work: ActionKind
    what: str
    gain: float
    error: float
    seconds: float
    tasks: tuple[Task, ...] = ()
    options: Mapping[str, Sequence[Option]] = field(default_factory=dict)
    schedules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    model: str = ""

    @property
    def workloads(self) -> set[str]:
        """Return the keys of the workloads that are compared."""
        of_options = {r.key for options in self.options.values() for o in options for r in o.regions}
        return {*of_options, *self.schedules}

    @property
    def rate(self) -> float:
        """Return the gain for each second."""
        return self.gain / self.seconds

    def __str__(self) -> str:
        if self.gain == math.inf:
            return f"{self.work} {self.what}, before anything else"
        return (
            f"{self.work} {self.what}, because it promises {100 * self.gain:.2g} % ± {100 * self.error:.2g} "
            f"for {self.seconds:.1f} s"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what is done next and what it promises; null where it comes before anything else."""
        gain = None if self.gain == math.inf else self.gain
        named = {"action": self.work.value, "what": self.what, "text": str(self)}
        return {**named, "gain": gain, "error": self.error, "seconds": self.seconds}


__all__ = ["BUILDING", "Action", "ActionKind"]
