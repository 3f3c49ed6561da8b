"""The noise of the machine while a job measures: at its start, and now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from autotune.database.records import Comparison
from autotune.hardware import stolen_s, usable_cores

_WINDOW_S = 10.0
"""Stolen time is told in ticks of 10 ms: it is counted over so many seconds."""


@dataclass(frozen=True)
class Disturbance:
    """The distance of the latencies of a comparison (quartiles, over the median), the processors that other processes
    took meanwhile, and the part of the processors' time that a hypervisor took; None of what is not known."""

    spread: float | None = None
    load: float | None = None
    stolen: float | None = None


class Noise:
    """The disturbances of a job at first and now."""

    def __init__(self) -> None:
        self.start = self.now = Disturbance()
        self._begun = time.monotonic(), stolen_s()

    def take(self, compared: Sequence[Comparison]) -> None:
        """Look at the machine, and at the rows of the last comparison."""
        spreads = [
            row.latency.spread_ns / row.latency.median_ns for row in compared if row.latency is not None
        ]
        if spreads:
            load = max(row.load for row in compared)
            self.now = replace(self.now, spread=median(spreads), load=load)
        seconds = time.monotonic() - self._begun[0]
        if seconds >= _WINDOW_S:
            taken = stolen_s() - self._begun[1]
            self.now = replace(self.now, stolen=max(0.0, taken / seconds / usable_cores()))
            self._begun = time.monotonic(), stolen_s()
        first = vars(self.start).items()
        self.start = Disturbance(**{n: vars(self.now)[n] if old is None else old for n, old in first})

    def __str__(self) -> str:
        """Return what is known now, and in brackets at the start; empty while nothing is."""
        now, start = self.now, self.start
        parts = []
        if now.spread is not None and start.spread is not None:
            parts.append(f"spread {100 * now.spread:.1f} % ({100 * start.spread:.1f})")
        if now.load is not None and start.load is not None:
            parts.append(f"others {now.load:.1f} CPUs ({start.load:.1f})")
        if now.stolen is not None and start.stolen is not None:
            parts.append(f"stolen {100 * now.stolen:.1f} % ({100 * start.stolen:.1f})")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return both."""
        return {"start": asdict(self.start), "now": asdict(self.now)}


__all__ = ["Disturbance", "Noise"]
