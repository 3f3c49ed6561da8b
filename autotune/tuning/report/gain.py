"""The speed-up of a whole model by a change, as it was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from autotune.database.records import SAME_CODE, Latency, Ratio
from autotune.suggest import counted
from autotune.tuning.report.units import error_in_words, nanoseconds

LEAST = 6
"""An interval needs so many."""


@dataclass(frozen=True)
class Gain:
    """Latencies of a model before and after a change, over all processes, and their ratio with its interval.

    ``error`` is that of the changed model from end to end, where it was asked for. ``load``: the processors that other
    processes took meanwhile, in the mean.
    """

    before: Latency
    after: Latency
    ratio: Ratio
    processes: int
    error: float | None = None
    load: float = 0.0

    def __str__(self) -> str:
        """Return a line such as ``4.84 ms untuned, 4.55 ms tuned (medians of 9 processes): 1.06× (1.04× to 1.08×)``."""
        before, after = nanoseconds(self.before.median_ns), nanoseconds(self.after.median_ns)
        exact = "" if self.error is None else f"; {error_in_words(self.error)}"
        if self.ratio == SAME_CODE:
            return f"{before}, {self.ratio}{exact}"
        many = counted(self.processes, "process")
        few = "" if self.ratio.interval else f", which takes {LEAST} processes"
        return f"{before} untuned, {after} tuned (medians of {many}): {self.ratio}{few}{exact}"

    def to_json(self) -> dict[str, Any]:
        """Return the ratio's values, and latencies in ns."""
        return {
            **self.ratio.to_json(),
            "before": asdict(self.before),
            "after": asdict(self.after),
            "processes": self.processes,
            "error": self.error,
            "load": self.load,
        }


__all__ = ["LEAST", "Gain"]
