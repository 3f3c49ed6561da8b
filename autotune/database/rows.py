"""The mapping between rows and the values that they hold."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import Row

from autotune.database.records import (
    CRASHED_INSIDE,
    Comparison,
    Footprint,
    JobRow,
    Key,
    Latency,
    Origin,
    Outcome,
    PlacementReading,
    PlanReading,
    Ratio,
    Reading,
    Run,
    WorkloadRow,
    WorkloadSummary,
)
from autotune.errors import DatabaseError, TargetError
from autotune.foreign import parse_json
from autotune.target import Target

_TEXTS = ("trace_key", "trace_json", "config_json", "message", "host", "versions")
"""Texts of a run, in columns of the same name."""
_SIZES = ("memory_bytes", "artifact_bytes", "scratch_bytes")
_KEYS = ("workload_key", "target_key", "space_key")
_LATEST = 253402300799.0
"""The last second of the year 9999, in seconds since 1970."""


def key_columns(key: Key) -> dict[str, str]:
    """Return the columns of a key."""
    return {"workload_key": key.workload, "target_key": key.target, "space_key": key.space}


def summary_from_row(row: Row[Any]) -> WorkloadSummary:
    """Return the counts of :func:`select_summary`."""
    with _sound(f"a run of workload {str(row.workload_key)[:12]}"):
        default, best = (
            None if ns is None else _number(ns, "latency") for ns in (row.default_ns, row.best_ns)
        )
        return WorkloadSummary(row.workload_key, row.target_key, row.runs, default, best, _ratio(row))


def counts(rows: Iterable[Any]) -> dict[str, int]:
    """Return rows of name and count as a dictionary."""
    return {str(row[0]): int(row[1]) for row in rows}


def stats(latency: Latency | None) -> dict[str, Any]:
    """Return the latency columns."""
    if latency is None:
        return {"n": 0}
    return {
        "n": latency.n,
        "latency_min_ns": latency.min_ns,
        "latency_median_ns": latency.median_ns,
        "latency_spread_ns": latency.spread_ns,
    }


def sizes(footprint: Footprint | None) -> dict[str, int | None]:
    """Return the columns of a footprint."""
    return {name: None if footprint is None else getattr(footprint, name) for name in _SIZES}


def storable(text: str) -> str:
    """Return the text that every database takes: without NUL, and without bytes that are no text."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def to_row(run: Run) -> dict[str, Any]:
    """Return the columns of a run that is about to be stored."""
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
    """Return the columns of a job that is about to be stored."""
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
    """Return the latency of a row; None for what failed."""
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
    """Return a run from a row of :func:`select_runs`; raises DatabaseError for a damaged one."""
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
    """Return a workload; raises DatabaseError for a damaged row."""
    with _sound(f"workload {str(row.key)[:12]}"):
        sizes = [_whole(row.flops, "flops"), _whole(row.bytes, "bytes")]
        return WorkloadRow(_text(row.key, "key"), _text(row.text, "text"), _text(row.kind, "kind"), *sizes)


def target_from_row(row: Row[Any]) -> Target:
    """Return a target; raises DatabaseError for a damaged row."""
    with _sound(f"target {str(row.key)[:12]}"):
        _text(row.key, "key")
        return Target.from_json(row.json)


def job_from_row(row: Row[Any]) -> JobRow:
    """Return a job; raises DatabaseError for a damaged row."""
    with _sound(f"job {row.id}"):
        for name in ("elapsed_s", "created", "updated"):
            _time(getattr(row, name), name)
        for name in ("id", "target_key", "fingerprint", "model", "options", "state", "owner"):
            _text(getattr(row, name), name)
        return JobRow(**row._mapping)


def layers_from_row(row: Row[Any]) -> tuple[str, ...]:
    """Return names of dispatches; raises DatabaseError for a damaged row."""
    with _sound(f"the layers of job {row.job}"):
        names = parse_json(row.names)
        if not isinstance(names, list):
            raise TypeError(f"its names are {names!r:.40}")
        return tuple(_text(name, "name") for name in names)


def comparison_to_row(found: Comparison) -> dict[str, Any]:
    """Return the columns of a candidate that is about to be stored."""
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
    """Return a candidate of a comparison; raises DatabaseError for a damaged row."""
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


def _ratio_columns(ratio: Ratio | None) -> dict[str, float | None]:
    low, high = (ratio and ratio.interval) or (None, None)
    return {"ratio": None if ratio is None else ratio.median, "ratio_low": low, "ratio_high": high}


def plan_to_row(plan: PlanReading) -> dict[str, Any]:
    """Return the columns of a plan that is about to be stored."""
    return {
        "key": hashlib.sha256(plan.text.encode()).hexdigest(),
        "json": plan.text,
        **_ratio_columns(plan.ratio),
        "rounds": plan.rounds,
        "won": plan.won,
    }


def plan_from_row(row: Row[Any]) -> PlanReading:
    """Return a plan that was read; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of plans"):
        ratio = _ratio(row)
        made = parse_json(_text(row.json, "json"))
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


def placement_to_row(placement: PlacementReading) -> dict[str, Any]:
    """Return the columns of a placement that is about to be stored."""
    same = {
        name: getattr(placement, name) for name in ("code", "expected_ns", "measured_ns", "rounds", "won")
    }
    name = hashlib.sha256(placement.text.encode()).hexdigest()
    return {"name": name, "json": storable(placement.text), **same, **_ratio_columns(placement.ratio)}


def placement_from_row(row: Row[Any]) -> PlacementReading:
    """Return a placement that was searched; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of placements"):
        made = parse_json(_text(row.json, "json"))
        devices, placement = made["devices"], made["placement"]
        if not all(isinstance(text, str) for text in (*devices, *placement, *placement.values())):
            raise ValueError("its placement has no names")
        return PlacementReading(
            tuple(devices),
            dict(placement),
            _number(row.expected_ns, "expected_ns"),
            _text(row.code, "code"),
            None if row.measured_ns is None else _number(row.measured_ns, "measured_ns"),
            _ratio(row),
            _whole(row.rounds, "rounds"),
            bool(row.won),
            _text(row.inside, "inside"),
            _time(row.created, "created"),
        )


def reading_from_row(row: Row[Any]) -> Reading:
    """Return a reading inside a model; raises DatabaseError for a damaged row."""
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
