"""Our own entries: a problem compiled untuned and tuned, and tuned up to a number of trials before."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.bench.columns import TUNED, UNTUNED
from autotune.bench.problem import Problem, write_inputs
from autotune.bench.side_by_side import Competitor
from autotune.bench.systems import OURS
from autotune.compiler import compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.database.opening import opened
from autotune.errors import UsageError
from autotune.passes.preference import TOLERANCE, Preference
from autotune.runtime.artifacts import artifact
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.model import work_of
from autotune.tuning.measure.gain import Gain, gain_of
from autotune.tuning.report.history import History, history

if TYPE_CHECKING:
    from autotune.tuning.report.result import Report
    from autotune.tuning.report.status import Progress

_NOTHING_TO_SEARCH = Budget(per_workload=1)
"""All that is left is to compare what a job that was killed has found, and its default is among that."""


@dataclass(frozen=True)
class Own:
    """Our entries of a problem. ``hits`` of ``dispatches`` were confirmed faster than the default.

    ``gain`` is what tuning changed, read as a job reads it; None where the code is the same.
    """

    entries: tuple[Competitor, ...]
    compile_s: float
    hits: int
    dispatches: int
    gain: Gain | None = None


def enter(problem: Problem, folder: Path, threads: int, database: str | None) -> Own:
    """Compile without and, where that makes other machine code, with the database, and read what that changes.

    Raises what compiling raises.
    """
    inputs = write_inputs(problem, folder / "inputs", peer=False)
    begin = time.perf_counter()
    plain = compile_in_detail(CompileRequest(problem.graph, target="host", threads=threads))
    compile_s = time.perf_counter() - begin
    path = folder / "default.atm"
    artifact.save(plain.image, path)
    entries = [Competitor(UNTUNED, OURS, str(path), inputs)]
    hits, gain = 0, None
    if database is not None:
        done = compile_in_detail(
            CompileRequest(problem.graph, target="host", threads=threads, database=database)
        )
        hits = sum(dispatch.is_tuned for dispatch in done.image.dispatches)
        if not done.image.same_code(plain.image):
            tuned = folder / "tuned.atm"
            artifact.save(done.image, tuned)
            entries.append(Competitor(TUNED, OURS, str(tuned), inputs))
            gain = gain_of(plain.image, done.image, 0, lambda: False)
    return Own(tuple(entries), compile_s, hits, len(plain.image.dispatches), gain)


def tune_up_to(
    problem: Problem,
    trials: int,
    threads: int,
    database: str | None,
    *,
    per_workload: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Tune until the database has ``trials`` runs of the problem's workloads, and compare what was found.

    With ``per_workload`` the number is of each distinct workload at most: one that gains nothing any more
    gets fewer. ``seconds`` ends it earlier. What was done before is not done again. Raises what tuning
    raises, and UsageError without a database.
    """
    if database is None:
        raise UsageError("tuning needs a database to keep its runs: give --db FILE")
    budget = Budget(per_workload=trials, seconds=seconds)
    if not per_workload:
        missing = trials - runs_known(problem, threads, database)
        budget = Budget(trials=missing, seconds=seconds) if missing > 0 else _NOTHING_TO_SEARCH
    return tune(
        problem.graph,
        budget=budget,
        database=database,
        threads=threads,
        progress=progress,
        time_model=False,
    )


def runs_known(problem: Problem, threads: int, database: str) -> int:
    """Runs that the database holds for the problem on this machine, those of all algorithms included."""
    return known_history(problem, threads, database).trials


def known_history(problem: Problem, threads: int, database: str) -> History:
    """Return what the database's jobs did for the problem on this machine, all algorithms included."""
    target = Target.detect(threads)
    parts = divide(problem.graph, target=target)
    with opened(database) as store:
        return history(store, *work_of(parts, target, Preference(TOLERANCE)))


__all__ = ["Own", "enter", "known_history", "runs_known", "tune_up_to"]
