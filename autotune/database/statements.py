"""SQL queries over runs, comparisons and readings."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, select

from autotune.database import schema
from autotune.database.records import Key, Origin, Outcome


def of(key: Key) -> ColumnElement[bool]:
    """The condition that a run belongs to ``key``."""
    columns = schema.runs.c
    return and_(
        columns.workload_key == key.workload,
        columns.target_key == key.target,
        columns.space_key == key.space,
    )


_CRASHES = schema.comparisons.alias("crashes")


def crashed(run_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """The condition that a run ended its process inside a model: a row of comparisons has it without a latency."""
    mine = _CRASHES.c
    return exists().where(mine.run_id == run_id, mine.latency_min_ns.is_(None))


@cache
def select_runs() -> Select[Any]:
    """All columns of runs, what the newest comparison read of each and where, and whether it crashed there."""
    compared = schema.comparisons.c

    def newest(column: ColumnElement[Any]) -> ColumnElement[Any]:
        mine = select(column).where(compared.run_id == schema.runs.c.id)
        return mine.order_by(compared.created.desc(), compared.id.desc()).limit(1).scalar_subquery()

    confirmed_ns = newest(compared.latency_median_ns).label("confirmed_ns")
    inside = newest(compared.inside).label("inside")
    return select(schema.runs, confirmed_ns, inside, _crash(schema.runs.c.id).label("crashed"))


def _crash(run_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """How a run ended its process inside a model the last time; null if it did not."""
    mine = _CRASHES.c
    found = select(mine.message).where(mine.run_id == run_id, mine.latency_min_ns.is_(None))
    return found.order_by(mine.created.desc(), mine.id.desc()).limit(1).scalar_subquery()


def select_ok(key: Key) -> Select[Any]:
    """The runs of a key that worked, the oldest first."""
    columns = schema.runs.c
    return select_runs().where(of(key), columns.outcome == Outcome.OK.value).order_by(columns.id)


def select_crashed(key: Key) -> Select[Any]:
    """The runs of a key that worked alone and crashed inside a model, the oldest first."""
    return select_ok(key).where(crashed(schema.runs.c.id))


def select_fastest(key: Key, count: int) -> Select[Any]:
    """The fastest runs of a key, by their first reading."""
    columns = schema.runs.c
    return select_ok(key).order_by(None).order_by(columns.latency_min_ns, columns.id).limit(count)


def select_default(key: Key) -> Select[Any]:
    """The first run of a key's default schedule that was timed."""
    return select_fastest(key, 1).where(schema.runs.c.origin == Origin.DEFAULT.value)


def select_winner(key: Key) -> Select[Any]:
    """The run that won the newest comparison of a key's schedules; one that crashed inside a model does not count."""
    columns = schema.comparisons.c
    same = and_(_of_schedules(key), columns.won, ~crashed(columns.run_id))
    order = (columns.created.desc(), columns.id.desc())
    newest = select(columns.run_id).where(same).order_by(*order).limit(1).scalar_subquery()
    return select_runs().where(schema.runs.c.id == newest)


def select_outcomes(*where: ColumnElement[bool]) -> Select[Any]:
    """Number of runs by outcome; what crashed inside a model has crashed."""
    columns = schema.runs.c
    outcome = case((crashed(columns.id), Outcome.CRASHED.value), else_=columns.outcome)
    found = select(outcome.label("outcome")).select_from(schema.runs).where(*where).subquery()
    return select(found.c.outcome, func.count()).group_by(found.c.outcome)


def select_summary() -> Select[Any]:
    """Number of runs and least latencies by workload and target."""
    columns = schema.runs.c
    default = case((columns.origin == Origin.DEFAULT.value, columns.latency_min_ns))
    groups = (columns.workload_key, columns.target_key)
    return select(
        *groups,
        func.count().label("runs"),
        func.min(default).label("default_ns"),
        func.min(columns.latency_min_ns).label("best_ns"),
        *(_of_winner(name) for name in ("ratio", "ratio_low", "ratio_high")),
    ).group_by(*groups)


def _of_winner(name: str) -> ColumnElement[Any]:
    """A column of the row that won the newest comparison of a workload's schedules on a target."""
    mine, columns = schema.runs.c, schema.comparisons.c
    same = and_(
        columns.workload_key == mine.workload_key,
        columns.target_key == mine.target_key,
        columns.site == "schedule",
        columns.won,
    )
    newest = select(columns[name]).where(same).order_by(columns.created.desc(), columns.id.desc()).limit(1)
    return newest.correlate(schema.runs).scalar_subquery().label(name)


def select_comparison(workload: str, target: str, site: str, key: str | None = None) -> Select[Any]:
    """The candidates of the newest comparison of a kind of site of a workload on a target; of schedules with ``key``,
    that of a search space. Rows without a winner beside them are no comparison."""
    columns = schema.comparisons.c
    same = and_(columns.workload_key == workload, columns.target_key == target, columns.site == site)
    same = same if key is None else and_(same, columns.key == key)
    newest = select(func.max(columns.created)).where(same, columns.won).scalar_subquery()
    return select(schema.comparisons).where(same, columns.created == newest).order_by(columns.id)


def select_compared(key: Key) -> Select[Any]:
    """What all comparisons of a key's schedules found of each run, the oldest first."""
    columns = schema.comparisons.c
    return select(schema.comparisons).where(_of_schedules(key)).order_by(columns.created, columns.id)


def _of_schedules(key: Key) -> ColumnElement[bool]:
    """Whether a row is of a comparison of a key's schedules."""
    columns = schema.comparisons.c
    return and_(
        columns.workload_key == key.workload,
        columns.target_key == key.target,
        columns.site == "schedule",
        columns.key == key.space,
    )


def select_all_readings() -> Select[Any]:
    """What runs took inside models, with the keys of the runs, the oldest first."""
    runs = schema.runs.c
    keys = (runs.workload_key, runs.target_key, runs.space_key, runs.trace_key)
    joined = schema.readings.join(schema.runs, schema.readings.c.run_id == runs.id)
    return select(schema.readings, *keys).select_from(joined).order_by(schema.readings.c.id)


def select_readings(key: Key) -> Select[Any]:
    """Those of the runs of a key."""
    return select_all_readings().where(of(key))


def select_run(key: Key, trace_key: str) -> Select[Any]:
    """The run of a schedule."""
    return select_runs().where(of(key), schema.runs.c.trace_key == trace_key)


def run_number(key: Key, trace_key: str) -> Select[Any]:
    """The number of a run."""
    return select(schema.runs.c.id).where(of(key), schema.runs.c.trace_key == trace_key)


def select_records(
    workload: str | None, target: str | None, space: str | None, job: str | None, after: int
) -> Select[Any]:
    """Runs by the order in which they were stored, those after a row id; each key given narrows."""
    columns = schema.runs.c
    wanted = {
        columns.workload_key: workload,
        columns.target_key: target,
        columns.space_key: space,
        columns.job: job,
    }
    given = [column == value for column, value in wanted.items() if value is not None]
    return select_runs().where(columns.id > after, *given).order_by(columns.id)
