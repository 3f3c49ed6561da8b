"""The times of a question, and their quantiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Times:
    """Seconds that each repetition of a question took: on the clock, and of this process's processor time."""

    name: str
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, ask: Callable[[], object]) -> None:
        """Ask once more."""
        wall, processor = time.perf_counter(), time.process_time()
        ask()
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the others does not exceed.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


__all__ = ["Times", "quantile"]
