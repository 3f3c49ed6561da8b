"""Summaries of workloads on targets: the number of runs, the least latencies, and the newest winner.

To count a million runs takes longer than anything else here. Who asks again and again keeps the :class:`RunCounts` of
before, to which the runs that are new are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, func, literal_column, select
from sqlalchemy.engine import Connection

from autotune.database import rows, schema
from autotune.database.records import Origin, WorkloadSummary

Place = tuple[str, str]
"""The keys of a workload and a target."""
_RUNS, _COMPARED = schema.runs.c, schema.comparisons.c


@dataclass(frozen=True)
class RunCounts:
    """The number of runs and the least latency of each place; ``last`` is the number of the newest of ``total``."""

    last: int = 0
    total: int = 0
    places: Mapping[Place, tuple[int, float | None]] = field(default_factory=dict)

    def updated(self, connection: Connection) -> RunCounts:
        """Return the counts as they are now: all are counted anew where runs were removed, or came late to a server."""
        last = int(connection.execute(select(func.max(_RUNS.id))).scalar() or 0)
        total = int(connection.execute(select(func.count()).select_from(schema.runs)).scalar_one())
        if self.total:
            new = _counted(connection, _NEW.where(_RUNS.id > self.last))
            if self.total + sum(count for count, _ in new.values()) == total:
                return RunCounts(last, total, _added(self.places, new))
        return RunCounts(last, total, _counted(connection, _COUNTED))


NO_RUNS = RunCounts()
_COUNTED = select(
    _RUNS.workload_key,
    _RUNS.target_key,
    func.count().label("runs"),
    func.min(_RUNS.latency_min_ns).label("best_ns"),
).group_by(_RUNS.workload_key, _RUNS.target_key)
_NEW = _COUNTED.with_hint(schema.runs, "NOT INDEXED", "sqlite")
"""Those by their numbers: SQLite, which does not know that they are few, would go through an index of all."""


def _counted(connection: Connection, query: Select[Any]) -> dict[Place, tuple[int, float | None]]:
    found = connection.execute(query)
    return {(row.workload_key, row.target_key): (row.runs, row.best_ns) for row in found}


def _added(
    before: Mapping[Place, tuple[int, float | None]], new: Mapping[Place, tuple[int, float | None]]
) -> dict[Place, tuple[int, float | None]]:
    found = dict(before)
    for place, (count, ns) in new.items():
        known, least = found.get(place, (0, None))
        found[place] = known + count, min((each for each in (least, ns) if each is not None), default=None)
    return found


def summaries(connection: Connection, counts: RunCounts) -> list[WorkloadSummary]:
    """Return a summary of each place that has runs."""
    defaults = {(row.workload_key, row.target_key): row.ns for row in connection.execute(_DEFAULTS)}
    winners = {(row.workload_key, row.target_key): row for row in connection.execute(_WINNERS)}
    return [
        rows.summary_of(*place, count, (defaults.get(place), best_ns), winners.get(place))
        for place, (count, best_ns) in sorted(counts.places.items())
    ]


_DEFAULTS = (
    select(_RUNS.workload_key, _RUNS.target_key, func.min(_RUNS.latency_min_ns).label("ns"))
    .where(_RUNS.origin == literal_column(f"'{Origin.DEFAULT}'"))
    .group_by(_RUNS.workload_key, _RUNS.target_key)
)
_WINNERS: Select[Any] = (
    select(
        _COMPARED.id,
        _COMPARED.workload_key,
        _COMPARED.target_key,
        _COMPARED.ratio,
        _COMPARED.ratio_low,
        _COMPARED.ratio_high,
    )
    .where(_COMPARED.site == "schedule", _COMPARED.won)
    .order_by(_COMPARED.created, _COMPARED.id)
)
"""All winners, the newest of each place last."""


__all__ = ["NO_RUNS", "RunCounts", "summaries"]
