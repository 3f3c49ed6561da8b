"""SQL queries over runs, and the mapping between rows and the values that they hold."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, select
from sqlalchemy.engine import Row

from autotune.database import schema
from autotune.database.records import (
    CRASHED_INSIDE,
    Comparison,
    Footprint,
    JobRow,
    Key,
    Latency,
    Origin,
    Outcome,
    PlanReading,
    Ratio,
    Reading,
    Run,
    WorkloadRow,
    WorkloadSummary,
)
from autotune.errors import DatabaseError, TargetError
from autotune.target import Target

_TEXTS = ("trace_key", "trace_json", "config_json", "message", "host", "versions")
"""Texts of a run, in columns of the same name."""
_SIZES = ("memory_bytes", "artifact_bytes", "scratch_bytes")
_KEYS = ("workload_key", "target_key", "space_key")
_LATEST = 253402300799.0
"""The last second of the year 9999, in seconds since 1970."""


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


def key_columns(key: Key) -> dict[str, str]:
    """The columns of a key."""
    return {"workload_key": key.workload, "target_key": key.target, "space_key": key.space}


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


def summary_from_row(row: Row[Any]) -> WorkloadSummary:
    """What :func:`select_summary` counted."""
    with _sound(f"a run of workload {str(row.workload_key)[:12]}"):
        default, best = (
            None if ns is None else _number(ns, "latency") for ns in (row.default_ns, row.best_ns)
        )
        return WorkloadSummary(row.workload_key, row.target_key, row.runs, default, best, _ratio(row))


def counts(rows: Iterable[Any]) -> dict[str, int]:
    """Rows of name and count as a dictionary."""
    return {str(row[0]): int(row[1]) for row in rows}


def stats(latency: Latency | None) -> dict[str, Any]:
    """The latency columns."""
    if latency is None:
        return {"n": 0}
    return {
        "n": latency.n,
        "latency_min_ns": latency.min_ns,
        "latency_median_ns": latency.median_ns,
        "latency_spread_ns": latency.spread_ns,
    }


def sizes(footprint: Footprint | None) -> dict[str, int | None]:
    """The columns of a footprint."""
    return {name: None if footprint is None else getattr(footprint, name) for name in _SIZES}


def storable(text: str) -> str:
    """Text that every database takes: without NUL, and without bytes that are no text."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def to_row(run: Run) -> dict[str, Any]:
    """The columns of a run that is about to be stored."""
    return {
        **{name: getattr(run, name) for name in _TEXTS},
        "seed": run.seed,
        **stats(run.latency),
        **sizes(run.footprint),
        **key_columns(run.key),
        "message": storable(run.message),
        "error": None if run.error is None or math.isnan(run.error) else run.error,
        "outcome": run.outcome.value,
        "origin": run.origin.value,
        "job": run.job or None,
        "created": run.created or time.time(),
    }


def to_job_row(job: JobRow) -> dict[str, Any]:
    """The columns of a job that is about to be stored."""
    return {**vars(job), "model": storable(job.model)}


ADVICE = "; `autotune db verify` lists all that is"


@contextmanager
def _sound(what: str) -> Iterator[None]:
    """Turn what a damaged row leads to into a DatabaseError that names it."""
    try:
        yield
    except (ValueError, TypeError, TargetError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DatabaseError(f"{what} is damaged: {why}{ADVICE}") from error


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"its {name} is no text but {value!r:.40}")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def _time(value: Any, name: str) -> float:
    if _number(value, name) > _LATEST:
        raise ValueError(f"its {name} is {value!r:.40}")
    return float(value)


def _latency(row: Row[Any]) -> Latency | None:
    """The latency of a row; None for what failed."""
    if row.latency_min_ns is None:
        return None
    for name in ("latency_min_ns", "latency_median_ns"):
        if not 0 < _number(getattr(row, name), name) < math.inf:
            raise ValueError(f"its {name} is {getattr(row, name)}")
    spread = _number(row.latency_spread_ns, "latency_spread_ns")
    return Latency(_whole(row.n, "n"), row.latency_min_ns, row.latency_median_ns, spread)


def _footprint(row: Row[Any]) -> Footprint | None:
    if row.scratch_bytes is None:
        return None
    return Footprint(*(_whole(getattr(row, name), name) for name in _SIZES))


def _error(row: Row[Any]) -> float | None:
    return None if row.error is None else _number(row.error, "error")


def from_row(row: Row[Any]) -> Run:
    """A run from a row of :func:`select_runs`; raises DatabaseError for a damaged one."""
    with _sound(f"run {row.id}"):
        run = Run(
            key=Key(*(_text(getattr(row, name), name) for name in _KEYS)),
            **{name: _text(getattr(row, name), name) for name in _TEXTS},
            seed=_whole(row.seed, "seed"),
            outcome=Outcome(row.outcome),
            origin=Origin(row.origin),
            latency=_latency(row),
            error=_error(row),
            job=_text(row.job or "", "job"),
            created=_time(row.created, "created"),
            id=row.id,
            confirmed_ns=None if row.confirmed_ns is None else _number(row.confirmed_ns, "confirmed_ns"),
            inside=_text(row.inside or "", "inside"),
            footprint=_footprint(row),
            crashed="" if row.crashed is None else _text(row.crashed, "message") or CRASHED_INSIDE,
        )
        if (run.outcome is Outcome.OK) != (run.latency is not None):
            raise ValueError(f"its outcome is {run.outcome.value}, its latency_min_ns {row.latency_min_ns}")
        return run


def workload_from_row(row: Row[Any]) -> WorkloadRow:
    """A workload; raises DatabaseError for a damaged row."""
    with _sound(f"workload {str(row.key)[:12]}"):
        sizes = [_whole(row.flops, "flops"), _whole(row.bytes, "bytes")]
        return WorkloadRow(_text(row.key, "key"), _text(row.text, "text"), _text(row.kind, "kind"), *sizes)


def target_from_row(row: Row[Any]) -> Target:
    """A target; raises DatabaseError for a damaged row."""
    with _sound(f"target {str(row.key)[:12]}"):
        _text(row.key, "key")
        return Target.from_json(row.json)


def job_from_row(row: Row[Any]) -> JobRow:
    """A job; raises DatabaseError for a damaged row."""
    with _sound(f"job {row.id}"):
        for name in ("elapsed_s", "created", "updated"):
            _time(getattr(row, name), name)
        for name in ("id", "target_key", "fingerprint", "model", "options", "state", "owner"):
            _text(getattr(row, name), name)
        return JobRow(**row._mapping)


def layers_from_row(row: Row[Any]) -> tuple[str, ...]:
    """Names of dispatches; raises DatabaseError for a damaged row."""
    with _sound(f"the layers of job {row.job}"):
        names = json.loads(row.names)
        if not isinstance(names, list):
            raise TypeError(f"its names are {names!r:.40}")
        return tuple(_text(name, "name") for name in names)


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


def comparison_to_row(found: Comparison) -> dict[str, Any]:
    """The columns of a candidate that is about to be stored."""
    ratio = found.ratio
    low, high = (ratio.interval if ratio else None) or (None, None)
    return {
        "name": found.name,
        "key": found.key,
        "run_id": found.run,
        "won": found.won,
        **stats(found.latency),
        "ratio": None if ratio is None else ratio.median,
        "ratio_low": low,
        "ratio_high": high,
        "error": found.error,
        "message": storable(found.message),
    }


def comparison_from_row(row: Row[Any]) -> Comparison:
    """A candidate of a comparison; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of comparisons"):
        return Comparison(
            _text(row.name, "name"),
            _text(row.key, "key"),
            _latency(row),
            bool(row.won),
            _ratio(row),
            row.run_id,
            _error(row),
            _text(row.message, "message"),
            _text(row.inside, "inside"),
            _time(row.created, "created"),
        )


def _ratio(row: Row[Any]) -> Ratio | None:
    if row.ratio is None:
        return None
    bounds = (row.ratio_low, row.ratio_high)
    interval = None if None in bounds else tuple(_number(bound, "ratio") for bound in bounds)
    return Ratio(_number(row.ratio, "ratio"), interval)  # type: ignore[arg-type]


def select_all_readings() -> Select[Any]:
    """What runs took inside models, with the keys of the runs, the oldest first."""
    runs = schema.runs.c
    keys = (runs.workload_key, runs.target_key, runs.space_key, runs.trace_key)
    joined = schema.readings.join(schema.runs, schema.readings.c.run_id == runs.id)
    return select(schema.readings, *keys).select_from(joined).order_by(schema.readings.c.id)


def select_readings(key: Key) -> Select[Any]:
    """Those of the runs of a key."""
    return select_all_readings().where(of(key))


def plan_to_row(plan: PlanReading) -> dict[str, Any]:
    """The columns of a plan that is about to be stored."""
    low, high = plan.ratio.interval or (None, None)
    return {
        "key": hashlib.sha256(plan.text.encode()).hexdigest(),
        "json": plan.text,
        "ratio": plan.ratio.median,
        "ratio_low": low,
        "ratio_high": high,
        "rounds": plan.rounds,
        "won": plan.won,
    }


def plan_from_row(row: Row[Any]) -> PlanReading:
    """A plan that was read; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of plans"):
        ratio = _ratio(row)
        made = json.loads(_text(row.json, "json"))
        if ratio is None or not isinstance(made, dict):
            raise ValueError("it has no plan or no ratio")
        return PlanReading(
            dict(made["options"]),
            dict(made["schedules"]),
            ratio,
            _whole(row.rounds, "rounds"),
            bool(row.won),
            _text(row.inside, "inside"),
            _time(row.created, "created"),
        )


def select_run(key: Key, trace_key: str) -> Select[Any]:
    """The run of a schedule."""
    return select_runs().where(of(key), schema.runs.c.trace_key == trace_key)


def run_number(key: Key, trace_key: str) -> Select[Any]:
    """The number of a run."""
    return select(schema.runs.c.id).where(of(key), schema.runs.c.trace_key == trace_key)


def reading_from_row(row: Row[Any]) -> Reading:
    """A reading inside a model; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of readings"):
        for name in ("ratio", "default_ns"):
            if not 0 < _number(getattr(row, name), name) < math.inf:
                raise ValueError(f"its {name} is {getattr(row, name)}")
        return Reading(
            _text(row.trace_key, "trace_key"),
            row.ratio,
            _whole(row.rounds, "rounds"),
            row.default_ns,
            _text(row.inside, "inside"),
            _time(row.created, "created"),
        )
