"""The same run in two databases: whether the readings agree, and whose is kept where they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy.engine import Row

_NOTCH = 1.57
"""Times the distance of the quartiles over the root of the count: 95 % about a median (McGill, Tukey and Larsen)."""
PROCESSES = 0.1
"""The spread that fresh processes add on each side: the place of code and arrays changes the latency of
one machine code."""


class Prefer(StrEnum):
    """Whose reading is kept where two disagree."""

    MINE = "mine"
    """That of the database that is merged into."""
    THEIRS = "theirs"
    NEWER = "newer"
    """That which was measured later."""


@dataclass(frozen=True)
class Conflict:
    """A run that two databases read differently: intervals of the median in ns, or outcomes."""

    workload_key: str
    target_key: str
    trace_key: str
    mine: str
    theirs: str
    taken: bool
    """True if theirs is kept."""

    def __str__(self) -> str:
        """Return a line such as ``0e27b8de8bfc schedule 55ecc382fa5d: 10.0 µs (9.0 to 11.0) here, timeout there``."""
        found = (
            f"{self.workload_key[:12]} schedule {self.trace_key[:12]}: {self.mine} here, {self.theirs} there"
        )
        return f"{found}; theirs is kept" if self.taken else found


def conflict(mine: Row[Any], theirs: Row[Any], prefer: Prefer) -> Conflict | None:
    """Return the conflict of two rows of the same run; None where their intervals overlap, or both failed alike."""
    here, there = _interval(mine), _interval(theirs)
    if here is None or there is None:
        agree = mine.outcome == theirs.outcome
    else:
        agree = here[0] <= there[1] and there[0] <= here[1]
    if agree:
        return None
    newer = prefer is Prefer.NEWER and theirs.created > mine.created
    keys = mine.workload_key, mine.target_key, mine.trace_key
    return Conflict(*keys, _shown(mine), _shown(theirs), newer or prefer is Prefer.THEIRS)


def _interval(row: Row[Any]) -> tuple[float, float] | None:
    """Return the expected range of the median in other processes, in ns; None for what failed."""
    if row.latency_median_ns is None:
        return None
    notch = _NOTCH * (row.latency_spread_ns or 0.0) / math.sqrt(max(1, row.n))
    return (1 - PROCESSES) * (row.latency_median_ns - notch), (1 + PROCESSES) * (
        row.latency_median_ns + notch
    )


def _shown(row: Row[Any]) -> str:
    found = _interval(row)
    if found is None:
        return str(row.outcome)
    return f"{row.latency_median_ns / 1e3:.1f} µs ({found[0] / 1e3:.1f} to {found[1] / 1e3:.1f})"


__all__ = ["PROCESSES", "Conflict", "Prefer", "conflict"]
