"""Schedules from the Python that a trace prints."""

from __future__ import annotations

from autotune import te
from autotune.schedule import Schedule


def run_printed(text: str, schedule: Schedule) -> Schedule:
    """Run what ``print(trace)`` showed on a schedule of the same program; returns the schedule."""
    exec(text, {"s": schedule, "te": te})
    return schedule


__all__ = ["run_printed"]
