"""Made-up runs, jobs and comparisons for tests of the database."""

from __future__ import annotations

import time
from dataclasses import replace

from autotune.compiler.build.build import generated_key
from autotune.compiler.planned import GIVEN, Planned
from autotune.database import (
    Comparison,
    Database,
    JobRow,
    Key,
    Latency,
    Origin,
    Outcome,
    Ratio,
    Run,
    WorkloadRow,
)
from autotune.graph.region import Workload
from autotune.schedule.trace import Trace
from autotune.target import Target
from search_spaces.spaces import space_for

HOST = Target.parse("x86-64-v3", threads=2)
OTHER = Target.parse("x86-64-v4", threads=8)
KEY = Key("w" * 64, HOST.key, "s" * 64)


def run(trace: str, ns: float | None, **changes: object) -> Run:
    latency = Latency(5, ns, ns * 1.1, ns * 0.05) if ns is not None else None
    outcome = Outcome.OK if latency else Outcome.CRASHED
    base = Run(KEY, trace, "[]", '{"tile": 4}', outcome, latency, created=1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def record(
    database: Database,
    workload: Workload,
    target: Target,
    trace_json: str,
    ns: float = 1000.0,
    name: str = "t",
    origin: Origin = Origin.SEARCH,
    config: str = "{}",
    code: str | None = None,
) -> None:
    """Store a run of a workload of today: a schedule that took so many ns; ``code`` is the key of its code today."""
    space = space_for(workload, target)
    database.add_workload(
        WorkloadRow(workload.key, workload.text, workload.kind, workload.flops, workload.bytes)
    )
    database.add_target(target)
    database.add_space(space.key, workload.key, "{}")
    key, took = Key(workload.key, target.key, space.key), Latency(3, ns, ns, 0.0)
    if code is None:
        code = generated_key(Planned(workload, Trace.from_json(trace_json), GIVEN), target)
    found = Run(key, 64 * name, trace_json, config, Outcome.OK, took, 0.0, origin=origin, created=time.time())
    assert database.record(replace(found, code=code))


def prepare(database: Database) -> None:
    database.add_workload(WorkloadRow(KEY.workload, "text", "contraction", 10, 20))
    for target in (HOST, OTHER):
        database.add_target(target)
    for space in (KEY.space, "t" * 64):
        database.add_space(space, KEY.workload, "{}")


def latency(ns: float) -> Latency:
    return Latency(9, 0.9 * ns, ns, 1.0)


def job(fingerprint: str = "f", owner: str = "me", name: str = "j1") -> JobRow:
    return JobRow(name, fingerprint, "m", HOST.key, "{}", JobRow.RUNNING, owner, 0.0, 1.0, 1.0)


def schedules(*found: tuple[Run, float], won: str) -> list[Comparison]:
    """Runs from the database that took so many ns beside each other, the incumbent first; that with the trace ``won``
    won."""
    incumbent = found[0][1]
    return [
        Comparison(
            r.trace_key,
            r.key.space,
            latency(ns),
            r.trace_key == won,
            Ratio(ns / incumbent, (0.99 * ns / incumbent, 1.01 * ns / incumbent)) if number else None,
            run=r.id,
        )
        for number, (r, ns) in enumerate(found)
    ]


def compare(database: Database, found: list[Comparison], inside: str = "net") -> None:
    """Store a comparison of schedules of ``KEY``'s workload."""
    database.compared(KEY.workload, KEY.target, "schedule", found, inside)


def options(*named: tuple[str, float | None], won: str) -> list[Comparison]:
    """Options with different figures in all columns."""
    return [
        Comparison(
            name,
            "k" * 64,
            None if ns is None else latency(ns),
            name == won,
            Ratio(0.9, (0.85, 0.95)) if name == won else Ratio(1.5) if ns else None,
            None,
            1e-6,
            "m",
            "net",
        )
        for name, ns in named
    ]
