"""The tuning database: every measured run, by workload, target and search space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.database.evidence import Evidence, State
from autotune.database.query import Hit, Miss, MissReason
from autotune.database.records import (
    Comparison,
    Footprint,
    JobRow,
    Key,
    Latency,
    Origin,
    Outcome,
    Ratio,
    Run,
    WorkloadRow,
)

if TYPE_CHECKING:
    from autotune.database.store import Database


def __getattr__(name: str) -> Any:
    """Return the database on first use: SQLAlchemy costs 0.3 s to import."""
    if name == "Database":
        from autotune.database.store import Database

        return Database
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Comparison",
    "Database",
    "Evidence",
    "Footprint",
    "Hit",
    "JobRow",
    "Key",
    "Latency",
    "Miss",
    "MissReason",
    "Origin",
    "Outcome",
    "Ratio",
    "Run",
    "State",
    "WorkloadRow",
]
