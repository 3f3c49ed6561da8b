"""The schedule that is used for a key, or the reason why there is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select
from sqlalchemy.engine import Connection

from autotune.database import rows, statements
from autotune.database.front import FrontPoint, points
from autotune.database.goal import Goal, Saving, smallest
from autotune.database.inside import Estimate, claim_of, estimates, latencies
from autotune.database.posterior import CERTAIN, INERTIA, SCHEDULE, Posterior, decided
from autotune.database.query import Hit, Miss, miss
from autotune.database.records import CRASHED_INSIDE, Comparison, Key, Outcome, Reading, Run


def lookup(connection: Connection, key: Key, goal: Goal) -> Hit | Miss:
    """Look a key up, as :meth:`autotune.Database.lookup` describes."""
    comparisons = comparisons_of(connection, key)
    used = _used(connection, key, comparisons)
    if used is None:
        return diagnose(connection, key)
    found, saving = for_goal(connection, key, used, goal)
    crashes = crashes_of(connection, key)
    alone = outcomes_alone(connection, key)
    runs, ok = sum(alone.values()), alone.get(Outcome.OK.value, 0) - len(crashes)
    default = one(connection, statements.select_default(), key)
    compared = comparison_of(connection, key)
    read = latencies(_readings_of_runs(connection, [found.id]), found)
    trials = runs - _defaults(connection, key)
    claim = claim_of(comparisons, found.trace_key) if found.id == used.id else None
    return Hit(found, default, runs, ok, trials, compared, read, crashes, saving, claim)


def best_of(connection: Connection, key: Key) -> Run | None:
    """Return the run that :meth:`autotune.Database.best` describes."""
    return _used(connection, key, comparisons_of(connection, key))


def comparisons_of(connection: Connection, key: Key) -> list[Comparison]:
    """Return the candidates of all comparisons of a key's schedules, the oldest first."""
    found = connection.execute(statements.select_compared(), statements.parameters(key))
    return [rows.comparison_from_row(row) for row in found]


def _used(connection: Connection, key: Key, comparisons: Sequence[Comparison]) -> Run | None:
    """Return the run that is decided (:func:`autotune.database.posterior.decided`), all measurements inside models
    pooled; where the default never worked the winner of the newest comparison, else the fastest alone.
    """
    default = one(connection, statements.select_default(alive=True), key)
    incumbent = one(connection, statements.select_winner(), key) or default
    if incumbent is None or default is None:
        return incumbent or one(connection, statements.select_fastest(alive=True), key, count=1)
    known = _contenders(connection, key, comparisons)
    traces = {trace: estimate.posterior for trace, estimate in known.items()} | {default.trace_key: CERTAIN}
    runs = {run.trace_key: run for run in (default, incumbent)}
    traces.setdefault(incumbent.trace_key, Posterior(0.0, SCHEDULE))
    while (trace := decided(traces, incumbent.trace_key)) not in runs:
        run = one(connection, statements.select_run(), key, trace=trace)
        if run is not None and run.outcome is Outcome.OK and not run.crashed:
            runs[trace] = run
        else:
            del traces[trace]
    return runs[trace]


def _contenders(connection: Connection, key: Key, comparisons: Sequence[Comparison]) -> dict[str, Estimate]:
    """Return the estimates of the runs that were compared, and of all others that may be decided instead: of
    thousands of candidates few.

    A posterior mean is not less than the smallest of the logs that were measured. So one that is below a bound has
    a measurement below it.
    """
    compared = [row for row in comparisons if row.latency is not None]
    known = estimates(_readings_of_runs(connection, {row.run for row in compared}), compared)
    least = min((estimate.posterior.cautious for estimate in known.values()), default=0.0)
    values = statements.parameters(key, bound=math.exp(min(least, 0.0) - INERTIA))
    below = [
        rows.reading_from_row(row) for row in connection.execute(statements.select_readings_below(), values)
    ]
    return estimates(reading for reading in below if reading.trace_key not in known) | known


def _readings_of_runs(connection: Connection, numbers: Iterable[int | None]) -> list[Reading]:
    """Return the in-model measurements of runs, the oldest first."""
    wanted = {"numbers": [number for number in numbers if number is not None]}
    return [rows.reading_from_row(row) for row in connection.execute(statements.select_readings_of(), wanted)]


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


def outcomes_by_job(connection: Connection) -> dict[str, dict[str, int]]:
    """Return the number of runs by job and the outcome that each had alone; of no job its name is empty."""
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(statements.select_outcomes_by_job()):
        found.setdefault(row.job or "", {})[row.outcome] = int(row.runs)
    return found


def all_outcomes(
    connection: Connection, by_job: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, int]:
    """Return the number of all runs by outcome, from those of each job."""
    alone = Counter[str]()
    for each in (outcomes_by_job(connection) if by_job is None else by_job).values():
        alone.update(each)
    return _with_crashes(connection, alone)


def outcomes(connection: Connection, *where: ColumnElement[bool]) -> dict[str, int]:
    """Return the number of some runs by outcome."""
    alone = rows.counts(connection.execute(statements.select_outcomes(*where)))
    return _with_crashes(connection, Counter(alone), *where)


def _with_crashes(connection: Connection, alone: Counter[str], *where: ColumnElement[bool]) -> dict[str, int]:
    """Return the outcomes of runs from those that they had alone: what crashed or hung inside a model has that one."""
    for outcome, inside, hung in connection.execute(statements.select_outcomes_of_crashed(*where)).all():
        alone[outcome] -= inside
        alone[Outcome.CRASHED.value] += inside - hung
        alone[Outcome.TIMEOUT.value] += hung
    return {name: count for name, count in alone.items() if count}


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
    compared = comparisons_of(connection, key)
    newest = {row.run: row for row in compared if row.run is not None and row.part is None}
    return points(runs, newest, readings_of(connection, key))


def leaders_of(connection: Connection, key: Key, count: int) -> list[tuple[Run, float]]:
    """Return the fastest runs, as :meth:`autotune.Database.leaders` describes."""
    compared = connection.execute(statements.select_compared(), statements.parameters(key))
    known = estimates(readings_of(connection, key), map(rows.comparison_from_row, compared))
    ratios = {trace: estimate.ratio for trace, estimate in known.items()}
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
    mine = statements.parameters(key)
    targets = connection.execute(statements.select_other_targets(), mine)
    return miss(
        key,
        [rows.target_from_row(row).name for row in targets],
        connection.execute(statements.count_other_spaces(), mine).scalar_one(),
        outcomes(connection, statements.of(key)) if outcomes_alone(connection, key) else {},
    )


__all__ = [
    "all_outcomes",
    "best_of",
    "diagnose",
    "for_goal",
    "leaders_of",
    "lookup",
    "outcomes",
    "outcomes_alone",
    "outcomes_by_job",
    "points_of",
    "readings_of",
]
