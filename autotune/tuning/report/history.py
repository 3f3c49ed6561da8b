"""The fall of a model's latency while it was tuned: the runs of a tuning database in the order of their time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.database.records import JobRow, Run
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.samplers import GUIDED, factory
from autotune.tuning.search.study import Search

if TYPE_CHECKING:
    from autotune.database import Database
    from autotune.tuning.jobs.subject import Subject


@dataclass(frozen=True)
class Improvement:
    """After ``seconds`` of tuning the model took ``ns``, by the best runs known then."""

    seconds: float
    ns: float


@dataclass(frozen=True)
class History:
    """The number of runs in the seconds of all jobs, and every step down."""

    trials: int
    seconds: float
    steps: tuple[Improvement, ...]

    def reached(self, ns: float) -> float | None:
        """Return the seconds after which the model first took ``ns`` or less; None if it never did."""
        return next((step.seconds for step in self.steps if step.ns <= ns), None)


def history(database: Database, subjects: Sequence[Subject], sites: Sequence[Site]) -> History:
    """Return the history of the database's jobs for a model of these workloads, one job after the other.

    A run counts at the time when it was stored, from its job's beginning on: worker processes were
    started before that. The model's latency is the sum over its dispatches of the least latency read, each
    by the option that was fastest then.
    """
    make = factory(GUIDED, OnlineModel(None), 1)
    tasks = {
        s.workload.key: Task(s.names, s.workload, s.space, Search(s.space, make, 0), s.default)
        for s in subjects
    }
    model = Sites(list(tasks.values()), sites)
    runs = [
        run
        for task in tasks.values()
        for run in database.records(workload=task.key.workload, target=task.key.target, space=task.key.space)
    ]
    jobs = [job for job in database.jobs() if job.id in {run.job for run in runs}]
    steps: list[Improvement] = []
    for seconds, run in sorted(_timed(runs, jobs), key=lambda pair: pair[0]):
        curve = tasks[run.key.workload].curve
        curve.append(min([run.latency_ns, *curve[-1:]]))
        total = model.total(lambda task: task.best_ns)
        if total < (steps[-1].ns if steps else float("inf")):
            steps.append(Improvement(seconds, total))
    return History(len(runs), sum(job.elapsed_s for job in jobs), tuple(steps))


def _timed(runs: Iterable[Run], jobs: Iterable[JobRow]) -> list[tuple[float, Run]]:
    """Return each run with the seconds of tuning before it; runs that came from elsewhere have no time and count as 0.

    A job that was continued worked for fewer seconds than passed since it began: no run is later than its end.
    """
    before, known = 0.0, dict[str, tuple[JobRow, float]]()
    for job in sorted(jobs, key=lambda job: job.created):
        known[job.id] = (job, before)
        before += job.elapsed_s

    def seconds(run: Run) -> float:
        if run.job not in known:
            return 0.0
        job, before = known[run.job]
        return before + min(max(0.0, run.created - job.created), job.elapsed_s)

    return [(seconds(run), run) for run in runs]


__all__ = ["History", "Improvement", "history"]
