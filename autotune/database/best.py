"""The schedule that is used for a key, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.engine import Connection

from autotune.database import rows, schema, statements
from autotune.database.front import FrontPoint, points
from autotune.database.goal import Goal, Saving, smallest
from autotune.database.inside import Estimate, estimates, latencies
from autotune.database.query import Hit, Miss, miss
from autotune.database.records import CRASHED_INSIDE, Comparison, Key, Outcome, Reading, Run

CLEARLY = 0.9
"""A run that was never compared is believed only if it seems to take this little of what the one in use takes."""
_PROCESSES = 2
"""And if it was measured in a model in so many processes, faster than all that have lost the newest comparison."""


def lookup(connection: Connection, key: Key, goal: Goal) -> Hit | Miss:
    """Look a key up, as :meth:`autotune.Database.lookup` describes."""
    safe = _safe(connection, key)
    if safe is None:
        return diagnose(connection, key)
    found, saving = for_goal(connection, key, _faster(connection, key, safe) or safe.run, goal)
    crashes = crashes_of(connection, key)
    alone = outcomes_alone(connection, key)
    runs, ok = sum(alone.values()), alone.get(Outcome.OK.value, 0) - len(crashes)
    default = one(connection, statements.select_default(), key)
    compared = comparison_of(connection, key)
    readings = safe.readings if found.id == safe.run.id else _readings_of_runs(connection, [found.id])
    read = latencies(readings, found)
    return Hit(found, default, runs, ok, runs - _defaults(connection, key), compared, read, crashes, saving)


@dataclass(frozen=True)
class _Safe:
    """The run that is used unless another is clearly faster, and its in-model measurements.

    ``alone``: neither a winner nor the default is known to work, so that it is the fastest of readings alone.
    """

    run: Run
    readings: list[Reading]
    alone: bool


def best_of(connection: Connection, key: Key) -> Run | None:
    """Return the run that :meth:`autotune.Database.best` describes."""
    safe = _safe(connection, key)
    return None if safe is None else _faster(connection, key, safe) or safe.run


def _safe(connection: Connection, key: Key) -> _Safe | None:
    """Return the winner of the newest comparison, else the default, else the fastest that worked."""
    default = statements.select_default(alive=True)
    run = one(connection, statements.select_winner(), key) or one(connection, default, key)
    alone = run is None
    run = run or one(connection, statements.select_fastest(alive=True), key, count=1)
    return None if run is None else _Safe(run, _readings_of_runs(connection, [run.id]), alone)


def _faster(connection: Connection, key: Key, safe: _Safe) -> Run | None:
    """Return a run that is clearly faster than the one in use, by in-model measurements."""
    if safe.alone:
        return None
    known = estimates(_contenders(connection, key, safe))
    fast = clearly_faster(known, safe.run.trace_key)
    if fast:
        losers = [row for row in comparison_of(connection, key) if row.ratio is not None and not row.won]
        refuted = estimates(_readings_of_runs(connection, [row.run for row in losers]))
        least = min((estimate.ratio for estimate in refuted.values()), default=math.inf)
        fast = [trace for trace in fast if known[trace].ratio < least]
    runs = (one(connection, statements.select_run(), key, trace=trace) for trace in fast)
    return next(
        (run for run in runs if run is not None and run.confirmed_ns is None and not run.crashed), None
    )


def _contenders(connection: Connection, key: Key, safe: _Safe) -> list[Reading]:
    """Return the in-model measurements of a run, and of all that may be clearly faster: of thousands of
    candidates few.

    Of n rounds that all read b or more the estimate is b^(n ÷ (n + 2)) or more (:class:`Estimate`). So a run is no
    contender if all its readings are above the limit, or above its cube where that is larger.
    """
    limit = _limit(estimates(safe.readings), safe.run.trace_key)
    values = statements.parameters(key, bound=max(limit, limit**3))
    below = connection.execute(statements.select_readings_below(), values)
    return safe.readings + [rows.reading_from_row(row) for row in below if row.run_id != safe.run.id]


def _readings_of_runs(connection: Connection, numbers: Iterable[int | None]) -> list[Reading]:
    """Return the in-model measurements of runs, the oldest first."""
    wanted = {"numbers": [number for number in numbers if number is not None]}
    return [rows.reading_from_row(row) for row in connection.execute(statements.select_readings_of(), wanted)]


def clearly_faster(known: Mapping[str, Estimate], safe: str) -> list[str]:
    """Return the trace keys of runs that seem clearly faster inside a model than the one that is used,
    fastest first."""
    limit = _limit(known, safe)
    found = [t for t, e in known.items() if e.processes >= _PROCESSES and e.ratio < limit]
    return sorted(found, key=lambda trace: known[trace].ratio)


def _limit(known: Mapping[str, Estimate], safe: str) -> float:
    """Return the ratio below which a run is clearly faster than one."""
    return CLEARLY * known.get(safe, Estimate()).ratio


def for_goal(connection: Connection, key: Key, fastest: Run, goal: Goal) -> tuple[Run, Saving | None]:
    """Return the run to use for a goal, and its saving where it is not the fastest."""
    if goal.is_latency:
        return fastest, None
    return smallest(points_of(connection, key), fastest, goal) or (fastest, None)


def readings_of(connection: Connection, key: Key) -> list[Reading]:
    """Return the in-model measurements of the runs of a key, the oldest first."""
    found = connection.execute(statements.select_readings(), statements.parameters(key))
    return [rows.reading_from_row(row) for row in found]


def one(connection: Connection, query: Select[Any], key: Key, **parameters: object) -> Run | None:
    """Return the first run of a query of a key."""
    row = connection.execute(query, statements.parameters(key, **parameters)).first()
    return rows.from_row(row) if row else None


def outcomes_alone(connection: Connection, key: Key) -> dict[str, int]:
    """Return the number of runs of a key by the outcome that each had alone."""
    return rows.counts(connection.execute(statements.count_outcomes(), statements.parameters(key)))


def outcomes(connection: Connection, *where: ColumnElement[bool]) -> dict[str, int]:
    """Return the number of runs by outcome; what crashed or hung inside a model has that outcome."""
    found = rows.counts(connection.execute(statements.select_outcomes(*where)))
    for row in connection.execute(statements.select_outcomes_of_crashed(*where)).all():
        found[row.outcome] -= row[1]
        found[Outcome.CRASHED.value] = found.get(Outcome.CRASHED.value, 0) + row[1]
    for row in connection.execute(statements.select_outcomes_of_crashed(*where, statements.HUNG)).all():
        found[Outcome.CRASHED.value] -= row[1]
        found[Outcome.TIMEOUT.value] = found.get(Outcome.TIMEOUT.value, 0) + row[1]
    return {name: count for name, count in found.items() if count}


def _defaults(connection: Connection, key: Key) -> int:
    """Return the number of runs of a key's default."""
    found = connection.execute(statements.count_defaults(), statements.parameters(key))
    return int(found.scalar_one())


def crashes_of(connection: Connection, key: Key) -> tuple[str, ...]:
    """Return the last crashes inside a model of runs of a key that worked in isolation."""
    found = connection.execute(statements.select_crashes(), statements.parameters(key))
    last = {row.run_id: row.message for row in found if row.outcome == Outcome.OK.value}
    return tuple(message or CRASHED_INSIDE for _, message in sorted(last.items()))


def comparison_of(connection: Connection, key: Key) -> tuple[Comparison, ...]:
    """Return the candidates of the newest comparison of a key's schedules."""
    found = connection.execute(statements.select_comparison(of_key=True), statements.parameters(key))
    return tuple(rows.comparison_from_row(row) for row in found)


def points_of(connection: Connection, key: Key) -> list[FrontPoint]:
    """Return the runs of a key with their latencies and footprints, as far as both are known."""
    mine = statements.parameters(key)
    runs = [rows.from_row(row) for row in connection.execute(statements.select_ok(), mine)]
    compared = connection.execute(statements.select_compared(), mine).all()
    newest = {row.run_id: rows.comparison_from_row(row) for row in compared}
    return points(runs, newest, readings_of(connection, key))


def leaders_of(connection: Connection, key: Key, count: int) -> list[tuple[Run, float]]:
    """Return the fastest runs, as :meth:`autotune.Database.leaders` describes."""
    ratios = {trace: estimate.ratio for trace, estimate in estimates(readings_of(connection, key)).items()}
    compared = connection.execute(statements.select_compared(), statements.parameters(key))
    for row in map(rows.comparison_from_row, compared):
        ratios |= {} if row.ratio is None else {row.name: row.ratio.median}
    found = list[tuple[Run, float]]()
    for trace in sorted((trace for trace, ratio in ratios.items() if ratio < 1), key=ratios.__getitem__):
        run = one(connection, statements.select_run(), key, trace=trace)
        if run is not None and run.outcome is Outcome.OK and not run.crashed:
            found.append((run, ratios[trace]))
        if len(found) == count:
            break
    return found


def diagnose(connection: Connection, key: Key) -> Miss:
    """Return the reason why there is no run for a key."""
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
        outcomes(connection, statements.of(key)),
    )


__all__ = [
    "CLEARLY",
    "best_of",
    "clearly_faster",
    "diagnose",
    "for_goal",
    "leaders_of",
    "lookup",
    "outcomes",
    "outcomes_alone",
    "points_of",
    "readings_of",
]
