"""A user's preferences among algorithms and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.database.goal import FASTEST, Goal, Objective
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.passes.memory.dispatch_order import Aim

TOLERANCE = 1e-4
"""The error that is tolerated unless a user says otherwise, over the largest magnitude of the result."""


@dataclass(frozen=True)
class Preference:
    """Algorithms whose declared error is at most ``tolerance`` (0: direct computation only), or, of workloads that
    ``tolerances`` has by their keys, at most that.

    With ``finite`` only those that neither enlarge the range of what is computed nor spread what is not finite in an
    input beyond the results that it is part of. ``algorithm`` names the one to use wherever it applies, for benchmarks
    and tests. ``goal`` is what algorithms and schedules are chosen for.
    """

    tolerance: float = TOLERANCE
    algorithm: str | None = None
    goal: Goal = FASTEST
    finite: bool = False
    tolerances: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise UsageError(f"tolerance {self.tolerance}; allowed: 0 (exact algorithms only) or more")

    def tolerance_of(self, key: str) -> float:
        """Return the tolerance of the workload of a key."""
        return self.tolerances.get(key, self.tolerance)

    @property
    def aim(self) -> Aim:
        """Return the objective of the order of dispatches."""
        return "memory" if self.goal.objective is Objective.MEMORY else "concurrency"


__all__ = ["TOLERANCE", "Preference"]
