"""Which schedule of a key is used, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Select, and_, func, select
from sqlalchemy.engine import Connection

from autotune.database import rows, schema, statements
from autotune.database.front import Point, points
from autotune.database.goal import Goal, Saving, smallest
from autotune.database.inside import Estimate, estimates, latencies
from autotune.database.query import Hit, Miss, miss
from autotune.database.records import Comparison, Key, Origin, Outcome, Reading, Run

CLEARLY = 0.9
"""A run that was never compared is believed only if it seems to take this little of what the one in use takes."""
_PROCESSES = 2
"""And if it was read inside a model in so many processes, faster than all that have lost the newest comparison."""


def lookup(connection: Connection, key: Key, goal: Goal) -> Hit | Miss:
    """What :meth:`autotune.Database.lookup` describes."""
    readings = readings_of(connection, key)
    found = best_of(connection, key, readings)
    if found is None:
        return diagnose(connection, key)
    found, saving = for_goal(connection, key, found, goal)
    outcomes = outcomes_of(connection, key)
    default = one(connection, statements.select_default(key))
    ok, trials = outcomes.get(Outcome.OK.value, 0), trials_of(connection, key)
    compared, crashes = comparison_of(connection, key), crashes_of(connection, key)
    read = latencies(readings, found)
    return Hit(found, default, sum(outcomes.values()), ok, trials, compared, read, crashes, saving)


def best_of(connection: Connection, key: Key, readings: Iterable[Reading]) -> Run | None:
    """The run that :meth:`autotune.Database.best` describes; ``readings`` are those inside models of the key's runs."""
    alive = ~statements.crashed(schema.runs.c.id)
    safe = one(connection, statements.select_winner(key)) or one(
        connection, statements.select_default(key).where(alive)
    )
    if safe is None:
        return one(connection, statements.select_fastest(key, 1).where(alive))
    known = estimates(readings)
    fast = clearly_faster(known, safe.trace_key)
    if fast:
        refuted = [known[trace].ratio for trace in _losers(connection, key) if trace in known]
        fast = [trace for trace in fast if known[trace].ratio < min(refuted, default=math.inf)]
    runs = (one(connection, statements.select_run(key, trace)) for trace in fast)
    usable = (run for run in runs if run is not None and run.confirmed_ns is None and not run.crashed)
    return next(usable, safe)


def clearly_faster(known: Mapping[str, Estimate], safe: str) -> list[str]:
    """The trace keys of runs that seem clearly faster inside a model than the one that is used, fastest first."""
    limit = CLEARLY * known.get(safe, Estimate()).ratio
    found = [t for t, e in known.items() if e.processes >= _PROCESSES and e.ratio < limit]
    return sorted(found, key=lambda trace: known[trace].ratio)


def _losers(connection: Connection, key: Key) -> list[str]:
    """The trace keys of the candidates that have not won the newest comparison.

    Where those are no faster, neither is what was read beside them as slower: the least of many readings is lucky.
    """
    return [row.name for row in comparison_of(connection, key) if row.ratio is not None and not row.won]


def for_goal(connection: Connection, key: Key, fastest: Run, goal: Goal) -> tuple[Run, Saving | None]:
    """The run to use for a goal, and what it saves where that is not the fastest."""
    if goal.is_latency:
        return fastest, None
    return smallest(points_of(connection, key), fastest, goal) or (fastest, None)


def readings_of(connection: Connection, key: Key) -> list[Reading]:
    """What the runs of a key took inside models, the oldest first."""
    return [rows.reading_from_row(row) for row in connection.execute(statements.select_readings(key))]


def one(connection: Connection, query: Select[Any]) -> Run | None:
    """The first run of a query."""
    row = connection.execute(query).first()
    return rows.from_row(row) if row else None


def outcomes_of(connection: Connection, key: Key) -> dict[str, int]:
    """Number of runs of a key by outcome."""
    return rows.counts(connection.execute(statements.select_outcomes(statements.of(key))).all())


def trials_of(connection: Connection, key: Key) -> int:
    """Number of runs of a key beside the default's."""
    mine = and_(statements.of(key), schema.runs.c.origin != Origin.DEFAULT.value)
    return connection.execute(select(func.count()).select_from(schema.runs).where(mine)).scalar_one()


def crashes_of(connection: Connection, key: Key) -> tuple[str, ...]:
    """How runs of a key that worked alone crashed inside a model."""
    return tuple(rows.from_row(row).crashed for row in connection.execute(statements.select_crashed(key)))


def comparison_of(connection: Connection, key: Key) -> tuple[Comparison, ...]:
    """The candidates of the newest comparison of a key's schedules."""
    query = statements.select_comparison(key.workload, key.target, "schedule", key.space)
    return tuple(rows.comparison_from_row(row) for row in connection.execute(query))


def points_of(connection: Connection, key: Key) -> list[Point]:
    """The runs of a key with their latencies and footprints, as far as both are known."""
    runs = [rows.from_row(row) for row in connection.execute(statements.select_ok(key))]
    compared = connection.execute(statements.select_compared(key)).all()
    newest = {row.run_id: rows.comparison_from_row(row) for row in compared}
    return points(runs, newest, readings_of(connection, key))


def diagnose(connection: Connection, key: Key) -> Miss:
    """Why there is no run for a key."""
    columns = schema.runs.c
    same = columns.workload_key == key.workload
    targets = (
        select(schema.targets)
        .where(schema.targets.c.key.in_(select(columns.target_key).where(same)))
        .where(schema.targets.c.key != key.target)
    )
    here = and_(same, columns.target_key == key.target, columns.space_key != key.space)
    spaces = select(func.count(columns.space_key.distinct())).where(here)
    return miss(
        key,
        [rows.target_from_row(row).name for row in connection.execute(targets)],
        connection.execute(spaces).scalar_one(),
        outcomes_of(connection, key),
    )


__all__ = [
    "CLEARLY",
    "best_of",
    "clearly_faster",
    "comparison_of",
    "crashes_of",
    "diagnose",
    "for_goal",
    "lookup",
    "one",
    "outcomes_of",
    "points_of",
    "readings_of",
    "trials_of",
]
