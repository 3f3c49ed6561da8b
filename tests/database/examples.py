"""Made-up runs, jobs and contests for tests of the database."""

from __future__ import annotations

from dataclasses import replace

from autotune.database import ContestRow, Database, JobRow, Key, Latency, Outcome, Run, WorkloadRow
from autotune.target import Target

HOST = Target.parse("x86-64-v3", threads=2)
OTHER = Target.parse("x86-64-v4", threads=8)
KEY = Key("w" * 64, HOST.key, "s" * 64)


def run(trace: str, ns: float | None, **changes: object) -> Run:
    latency = Latency(5, ns, ns * 1.1, ns * 0.05) if ns is not None else None
    outcome = Outcome.OK if latency else Outcome.CRASHED
    base = Run(KEY, trace, "[]", '{"tile": 4}', outcome, latency, created=1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def prepare(database: Database) -> None:
    database.add_workload(WorkloadRow(KEY.workload, "text", "contraction", 10, 20))
    for target in (HOST, OTHER):
        database.add_target(target)
    for space in (KEY.space, "t" * 64):
        database.add_space(space, KEY.workload, "{}")


def latency(ns: float) -> Latency:
    return Latency(9, ns, ns + 1.0, 1.0)


def job(fingerprint: str = "f", owner: str = "me", name: str = "j1") -> JobRow:
    return JobRow(name, fingerprint, "m", HOST.key, "{}", JobRow.RUNNING, owner, 0.0, 1.0, 1.0)


def contestants(*named: tuple[str, float | None]) -> list[ContestRow]:
    return [
        ContestRow(name, "k" * 64, None if ns is None else Latency(5, ns, ns * 1.1, 1.0), 1e-6, "m")
        for name, ns in named
    ]
