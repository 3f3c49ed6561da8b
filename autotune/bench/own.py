"""Our own entries: a problem compiled untuned and tuned, and tuned up to a number of trials before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.bench.contest import Entry
from autotune.bench.problem import Problem, write_inputs
from autotune.bench.systems import OURS
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.choice import TUNED
from autotune.errors import UsageError
from autotune.runtime import artifact
from autotune.target import Target
from autotune.tuning.api import opened, tune
from autotune.tuning.budget import Budget

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.tuning.report import Report

UNTUNED_NAME, TUNED_NAME = "default", "tuned"


@dataclass(frozen=True)
class Own:
    """Our entries of a problem. ``hits`` of ``dispatches`` have a tuned schedule."""

    entries: tuple[Entry, ...]
    compile_s: float
    hits: int
    dispatches: int


def enter(problem: Problem, folder: Path, threads: int, database: str | None) -> Own:
    """Compile without and, where the database knows any of its workloads, with the database.

    Raises what compiling raises.
    """
    inputs = write_inputs(problem, folder / "inputs", peer=False)
    begin = time.perf_counter()
    plain = compile_in_detail(problem.graph, target="host", threads=threads)
    compile_s = time.perf_counter() - begin
    path = folder / "default.atm"
    artifact.save(plain.image, path)
    entries = [Entry(UNTUNED_NAME, OURS, str(path), inputs)]
    hits = 0
    if database is not None:
        done = compile_in_detail(problem.graph, target="host", threads=threads, database=database)
        hits = sum(dispatch.schedule_source == TUNED for dispatch in done.image.dispatches)
        if hits:
            tuned = folder / "tuned.atm"
            artifact.save(done.image, tuned)
            entries.append(Entry(TUNED_NAME, OURS, str(tuned), inputs))
    return Own(tuple(entries), compile_s, hits, len(plain.image.dispatches))


def tune_up_to(
    problem: Problem, trials: int, threads: int, database: str | None, *, per_workload: bool = False
) -> Report | None:
    """Tune until the database has ``trials`` runs of the problem's workloads; None when it has them.

    With ``per_workload`` the number is of each distinct workload. Raises what tuning raises, and
    UsageError without a database.
    """
    if database is None:
        raise UsageError("tuning needs a database to keep its runs: give --db FILE")
    workloads = distinct_workloads(divide(problem.graph))
    wanted = trials * len(workloads) if per_workload else trials
    missing = wanted - runs_known(workloads, threads, database)
    if missing <= 0:
        return None
    return tune(problem.graph, budget=Budget(trials=missing), database=database, threads=threads)


def runs_known(workloads: Sequence[Workload], threads: int, database: str) -> int:
    """Runs that the database holds for workloads on this machine."""
    from search_spaces.spaces import space_for

    target = Target.detect(threads)
    with opened(database) as store:
        return sum(
            len(store.runs(workload=w.key, target=target.key, space=space_for(w, target).key))
            for w in workloads
        )


__all__ = ["TUNED_NAME", "UNTUNED_NAME", "Own", "enter", "runs_known", "tune_up_to"]
