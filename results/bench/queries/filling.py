"""Fills an empty tuning database with made-up runs of real workloads, in bulk."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, func, insert, select
from sqlalchemy.engine import Connection

from autotune.database import JobRow, Origin, Outcome, WorkloadRow, rows, schema
from autotune.database.records import RUNS, Comparison, Footprint, Key, Latency, Ratio, Run
from autotune.database.store import Database
from autotune.errors import UsageError
from autotune.schedule.knob import config_to_json
from autotune.target import Target
from results.bench.queries.latencies import RecordedLatencies
from results.bench.queries.material import Schedule, Tuned, TunedModel, held_out, tuned
from search_spaces.spaces import space_for

Row = dict[str, Any]

RECORDED = Path(__file__).parents[2] / "runs" / "avx512"
"""The recordings that latencies are made up from."""
_CHUNK = 20_000
"""Rows of a transaction."""
_FAILED = (Outcome.COMPILE_ERROR, Outcome.TIMEOUT, Outcome.CRASHED)
_SHARE_FAILED, _SHARE_READ = 0.03, 0.5
"""Of the runs: those that failed, and those with in-model measurements, twice each."""
_DISTINCT = 2048
"""So many configurations of a workload on a target at most; further runs are of these again."""
_COMPARED = 4
"""Candidates of a comparison."""
_SPREAD = 1.0
"""Standard deviation of the logarithm of the number of runs of a workload."""
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Filled:
    """A filled database: what was tuned, and how long it took to write ``runs`` runs with all that belongs to them."""

    tuned: tuple[Tuned, ...]
    runs: int
    readings: int
    comparisons: int
    seconds: float


def fill(
    database: Database,
    models: Sequence[TunedModel],
    machines: Sequence[Target],
    runs: int,
    seed: int,
    say: Callable[[str], None],
) -> Filled:
    """Fill a database with about so many runs on these machines; raises UsageError unless it is empty."""
    if database.workload_rows():
        raise UsageError(f"{database.where} is not empty; the benchmark fills a database of its own")
    rng = np.random.default_rng(seed)
    known = dict[tuple[str, str], Tuned]()
    for model in models:
        for target in machines:
            say(f"{model.name}: schedules for {target.name}")
            left_out = held_out(model)
            wanted = [workload for workload in model.workloads if workload not in left_out]
            found = list(tuned(wanted, target, rng))
            _describe(database, model, target, found)
            for one in found:
                known.setdefault((one.workload.key, target.key), one)
    everything = tuple(known.values())
    say(f"{runs} runs of {len(everything)} workloads and targets")
    latencies = RecordedLatencies.of([RECORDED])
    begin = time.perf_counter()
    _store(database, schema.runs, _runs(everything, runs, rng, latencies))
    _store(database, schema.readings, _readings(everything, rng, database))
    _store(database, schema.comparisons, _comparisons(everything, rng, database))
    seconds = time.perf_counter() - begin
    counts = [_count(database, table) for table in (schema.runs, schema.readings, schema.comparisons)]
    return Filled(everything, counts[0], counts[1], counts[2], seconds)


def _describe(database: Database, model: TunedModel, target: Target, found: Sequence[Tuned]) -> None:
    """Workloads, spaces and the job that runs refer to."""
    database.add_target(target)
    for one in found:
        database.add_workload(WorkloadRow.of(one.workload))
        database.add_space(one.space, one.workload.key, "{}")
    job = _job(model.name, target)
    database.claim_job(job, lambda owner: True)
    database.add_layers(
        job.id, {w.key: model.layers[w.key] for w in model.workloads if w not in held_out(model)}
    )


def _job(model: str, target: Target) -> JobRow:
    text = f"{model} {target.key}"
    name = hashlib.sha256(text.encode()).hexdigest()
    now = time.time()
    return JobRow(name[:32], name, model, target.key, "{}", JobRow.DONE, "bench", 3600.0, now, now)


def _store(database: Database, table: Table, values: Iterator[Row]) -> None:
    """Insert rows as they are made, so many a transaction."""
    empty = dict.fromkeys(column.name for column in table.c if column.name != "id")
    while chunk := [{**empty, **row} for row in islice(values, _CHUNK)]:
        _insert(database, table, chunk)


def _insert(database: Database, table: Table, chunk: list[Row]) -> None:
    """Insert rows in one transaction; a server takes them by COPY, which is several times as fast."""
    server = database.session.address.server is not None
    database.session.write(lambda connection: (_copy if server else _execute)(connection, table, chunk))


def _execute(connection: Connection, table: Table, chunk: list[Row]) -> None:
    connection.execute(insert(table), chunk)


def _copy(connection: Connection, table: Table, chunk: list[Row]) -> None:
    names = [column.name for column in table.c if column.name != "id"]
    raw = connection.connection.driver_connection
    assert raw is not None
    columns = ", ".join(f'"{name}"' for name in names)
    with raw.cursor() as cursor, cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
        for row in chunk:
            copy.write_row([row[name] for name in names])


def _count(database: Database, table: Table) -> int:
    def count(connection: Connection) -> int:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()

    return database.session.read(count)


def _base_ns(one: Tuned) -> float:
    """About what a workload takes: 100 GFLOP/s, or 10 GB/s."""
    return max(one.workload.flops / 100.0, one.workload.bytes / 10.0, 100.0)


def _runs(
    everything: Sequence[Tuned], runs: int, rng: np.random.Generator, latencies: RecordedLatencies
) -> Iterator[Row]:
    """The default of each workload and target, then what searches tried, most of it of few workloads."""
    weights = rng.lognormal(sigma=_SPREAD, size=len(everything))
    counts = np.maximum(1, runs * weights / weights.sum()).astype(int)
    begin = time.time() - _DAY_S
    for one, count in zip(everything, counts, strict=True):
        configs, ratios = _candidates(one, min(count, _DISTINCT), rng, latencies)
        times = _base_ns(one) * ratios
        failed = rng.random(count) < _SHARE_FAILED
        failed[0] = False
        common = {bad: [_run(one, schedule, bad) for schedule in one.schedules] for bad in (False, True)}
        for number in range(count):
            same = common[bool(failed[number])][number % len(one.schedules)]
            yield {
                **same,
                **_own(one, number, begin),
                "config_json": configs[number % len(configs)],
                **({} if failed[number] else _times(float(times[number % len(times)]))),
            }


def _candidates(
    one: Tuned, count: int, rng: np.random.Generator, latencies: RecordedLatencies
) -> tuple[list[str], NDArray[np.float64]]:
    """The default and random configurations as JSON texts, and their latencies over the default's."""
    space = space_for(one.workload, one.target)
    found = space.of([space.default(), *space.random(rng, count)][:count])
    return [config_to_json(config) for config in found.configs()], latencies.ratios(space, found, rng)


def _own(one: Tuned, number: int, begin: float) -> Row:
    """Return the columns of one run alone; its trace's key is made up, as several runs share a trace."""
    key = hashlib.sha256(f"{one.space} {one.target.key} {number}".encode()).hexdigest()
    origin = Origin.SEARCH if number else Origin.DEFAULT
    return {"trace_key": key, "created": begin + number / 1000, "origin": origin.value}


def _times(ns: float) -> Row:
    return {
        "latency_min_ns": ns,
        "latency_median_ns": 1.02 * ns,
        "latency_spread_ns": 0.03 * ns,
    }


def _run(one: Tuned, schedule: Schedule, failed: bool) -> Row:
    """The columns that many runs of a workload have in common."""
    run = Run(
        key=Key(one.workload.key, one.target.key, one.space),
        trace_key="",
        trace_json=schedule.trace_json,
        config_json=schedule.config_json,
        outcome=_FAILED[len(schedule.config_json) % len(_FAILED)] if failed else Outcome.OK,
        latency=None if failed else Latency(5, 1.0, 1.0, 0.0),
        error=None if failed else 1e-6,
        message="it took too long" if failed else "",
        host="bench",
        versions=_VERSIONS,
        footprint=None if failed else Footprint(4096 * (1 + len(schedule.trace_json) % 64), 9000, 1024),
    )
    return RUNS.to_row(run)


_VERSIONS = json.dumps({"autotune": "0.1.0", "llvmlite": "0.50.0", "numpy": "2.3.0", "python": "3.11.7"})


def _numbers(database: Database, one: Tuned) -> list[tuple[int, str, float]]:
    """Numbers, trace keys and latencies of the runs that worked, the default first."""
    columns = schema.runs.c
    key = (
        columns.workload_key == one.workload.key,
        columns.target_key == one.target.key,
        columns.space_key == one.space,
    )
    query = select(columns.id, columns.trace_key, columns.latency_min_ns)
    query = query.where(*key, columns.outcome == Outcome.OK.value).order_by(columns.id)
    return database.session.read(lambda connection: [tuple(row) for row in connection.execute(query)])


def _readings(everything: Sequence[Tuned], rng: np.random.Generator, database: Database) -> Iterator[Row]:
    """Of half of the runs, in two processes each: a little slower than the default, as most of what is tried is."""
    now = time.time()
    for one in everything:
        key = Key(one.workload.key, one.target.key, one.space)
        for number, _, _ in _numbers(database, one)[1:]:
            if rng.random() >= _SHARE_READ:
                continue
            for process in range(2):
                ratio = float(rng.lognormal(0.1, 0.05))
                values = {
                    "run_id": number,
                    "ratio": ratio,
                    "rounds": 3,
                    "default_ns": _base_ns(one),
                    "load": 0.0,
                }
                yield {**values, **rows.key_columns(key), "inside": "bench", "created": now + process}


def _comparisons(everything: Sequence[Tuned], rng: np.random.Generator, database: Database) -> Iterator[Row]:
    """One of schedules for each workload and target, and one of options where there are several."""
    now = time.time()
    for one in everything:
        common: Row = {"workload_key": one.workload.key, "target_key": one.target.key, "inside": "bench"}
        common["created"] = now
        for found in _compared_schedules(_numbers(database, one)[:_COMPARED], one, rng):
            yield {**rows.comparison_to_row(found), **common, "site": "schedule"}
        for name, key in ({} if one.option is None else one.option.keys).items():
            won = one.option is not None and name == one.option.winner
            base = _base_ns(one) * (0.8 if won else 1.0)
            latency = Latency(5, base, base, 0.01 * base)
            found = Comparison(name, key, latency, won, Ratio(0.8 if won else 1.0, (0.78, 1.02)))
            yield {**rows.comparison_to_row(found), **common, "site": "option"}


def _compared_schedules(
    found: Sequence[tuple[int, str, float]], one: Tuned, rng: np.random.Generator
) -> Iterator[Comparison]:
    winner = int(rng.integers(len(found)))
    for index, (number, trace, ns) in enumerate(found):
        ratio = Ratio(0.9, (0.88, 0.92)) if index == winner else Ratio(1.0, (0.98, 1.02))
        yield Comparison(
            trace, one.space, Latency(5, ns, 1.02 * ns, 0.02 * ns), index == winner, ratio, number
        )


__all__ = ["RECORDED", "Filled", "fill"]
