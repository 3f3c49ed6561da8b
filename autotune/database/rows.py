"""The mapping between rows and the values that they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import Row

from autotune.database.columns import finite, moment, number, positive, storable, text, whole
from autotune.database.records import (
    RUNS,
    WHOLE,
    Comparison,
    JobRow,
    Key,
    Latency,
    Outcome,
    PartOfWhole,
    Ratio,
    Reading,
    Run,
    WorkloadRow,
    WorkloadSummary,
)
from autotune.errors import DatabaseError, TargetError, first_line
from autotune.foreign import parse_json
from autotune.target import Target


def key_columns(key: Key) -> dict[str, str]:
    """Return the values of the three columns that hold a key."""
    return {"workload_key": key.workload, "target_key": key.target, "space_key": key.space}


def summary_of(
    workload: str, target: str, runs: int, latencies: Iterable[Any], winner: Row[Any] | None
) -> WorkloadSummary:
    """Return what was measured of a workload on a target: ``latencies`` are the least of its defaults and of all."""
    with _sound(f"a run of workload {workload[:12]}"):
        default, best = (None if ns is None else number(ns, "latency") for ns in latencies)
        return WorkloadSummary(workload, target, runs, default, best, winner and _ratio(winner))


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
        why = first_line(error)
        raise DatabaseError(f"{what} is damaged: {why}{ADVICE}") from error


def _latency(row: Row[Any]) -> Latency | None:
    """Return the latency of a row; None for what failed."""
    if row.latency_min_ns is None:
        return None
    for name in ("latency_min_ns", "latency_median_ns"):
        positive(getattr(row, name), name)
    spread = number(row.latency_spread_ns, "latency_spread_ns")
    return Latency(whole(row.n, "n"), row.latency_min_ns, row.latency_median_ns, spread)


def _error(row: Row[Any]) -> float | None:
    return None if row.error is None else number(row.error, "error")


def from_row(row: Row[Any]) -> Run:
    """Return a run from a row of :func:`select_runs`; raises DatabaseError for a damaged one."""
    with _sound(f"run {row.id}"):
        run = Run(**RUNS.values(row))
        if (run.outcome is Outcome.OK) != (run.latency is not None):
            raise ValueError(f"its outcome is {run.outcome.value}, its latency_min_ns {row.latency_min_ns}")
        return run


def workload_from_row(row: Row[Any]) -> WorkloadRow:
    """Return a workload; raises DatabaseError for a damaged row."""
    with _sound(f"workload {str(row.key)[:12]}"):
        sizes = [whole(row.flops, "flops"), whole(row.bytes, "bytes")]
        return WorkloadRow(text(row.key, "key"), text(row.text, "text"), text(row.kind, "kind"), *sizes)


def target_from_row(row: Row[Any]) -> Target:
    """Return a target; raises DatabaseError for a damaged row."""
    with _sound(f"target {str(row.key)[:12]}"):
        text(row.key, "key")
        return Target.from_json(row.json)


def job_from_row(row: Row[Any]) -> JobRow:
    """Return a job; raises DatabaseError for a damaged row."""
    with _sound(f"job {row.id}"):
        for name in ("elapsed_s", "created", "updated"):
            moment(getattr(row, name), name)
        for name in ("id", "target_key", "fingerprint", "model", "options", "state", "owner", "status"):
            text(getattr(row, name), name)
        return JobRow(**row._mapping)


def layers_from_row(row: Row[Any]) -> tuple[str, ...]:
    """Return names of dispatches; raises DatabaseError for a damaged row."""
    with _sound(f"the layers of job {row.job}"):
        names = parse_json(row.names)
        if not isinstance(names, list):
            raise TypeError(f"its names are {names!r:.40}")
        return tuple(text(name, "name") for name in names)


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
        "detail": storable(found.detail) if found.part is None else json.dumps(vars(found.part)),
        "load": found.load,
    }


def comparison_from_row(row: Row[Any]) -> Comparison:
    """Return a candidate of a comparison; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of comparisons"):
        return Comparison(
            text(row.name, "name"),
            text(row.key, "key"),
            _latency(row),
            bool(row.won),
            _ratio(row),
            row.run_id,
            _error(row),
            text(row.message, "message"),
            text(row.inside, "inside"),
            moment(row.created, "created"),
            text(row.detail, "detail"),
            number(row.load, "load"),
            _part(row),
        )


def _part(row: Row[Any]) -> PartOfWhole | None:
    """Return the part of a candidate in a measurement of the whole model, where the row is one of that."""
    if not text(row.site, "site").endswith(WHOLE):
        return None
    made = parse_json(row.detail)
    if not isinstance(made, dict) or made.keys() != {"share", "expected", "whole", "error", "beside"}:
        raise ValueError("its detail is no part of a model")
    expected, all_of_it = (finite(made[name], name) for name in ("expected", "whole"))
    share, error = positive(made["share"], "share"), positive(made["error"], "error")
    return PartOfWhole(share, expected, all_of_it, error, text(made["beside"], "beside"))


def _ratio(row: Row[Any]) -> Ratio | None:
    if row.ratio is None:
        return None
    bounds = (row.ratio_low, row.ratio_high)
    interval = None if None in bounds else tuple(number(bound, "ratio") for bound in bounds)
    return Ratio(number(row.ratio, "ratio"), interval)  # type: ignore[arg-type]


def reading_from_row(row: Row[Any]) -> Reading:
    """Return an in-model measurement; raises DatabaseError for a damaged row."""
    with _sound(f"row {row.id} of readings"):
        for name in ("ratio", "default_ns"):
            positive(getattr(row, name), name)
        return Reading(
            text(row.trace_key, "trace_key"),
            row.ratio,
            whole(row.rounds, "rounds"),
            row.default_ns,
            text(row.inside, "inside"),
            moment(row.created, "created"),
            number(row.load, "load"),
            text(row.host, "host"),
        )
