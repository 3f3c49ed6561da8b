"""The confirm step: winners are read again beside the default before they are declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from autotune.database import Database, Miss
from autotune.database.records import Origin, Run
from autotune.tuning.measure.interface import Built, Measurer
from autotune.tuning.task import Task

TOP = 2
"""How many of the fastest runs are compared with the default."""
ROUNDS = 12


def unconfirmed(tasks: Sequence[Task], database: Database) -> list[Task]:
    """The tasks whose best run was found since the last confirmation, most promising first."""
    found = []
    for task in tasks:
        key = task.key
        best = database.best(key.workload, key.target, key.space)
        if not isinstance(best, Miss) and best.confirmed_ns is None and best.origin is not Origin.DEFAULT:
            found.append(task)
    return sorted(found, key=_gain, reverse=True)


def _gain(task: Task) -> float:
    return task.weight * ((task.default_ns or 0.0) - task.best_ns)


def confirm(
    tasks: Sequence[Task],
    database: Database,
    measurer: Measurer,
    job: str,
    out_of_time: Callable[[], bool],
) -> int:
    """Compare the fastest runs of each task with its default, taking turns; how many tasks were done.

    Readings are taken minutes apart while a machine drifts; only these are comparable. They are stored,
    and from then on they decide (see :meth:`Database.best`).
    """
    done = 0
    for task in unconfirmed(tasks, database):
        if out_of_time():
            break
        rivals = _rivals(task, database)
        built = code_of(task, rivals, measurer)
        alive = [(run, item) for run, item in zip(rivals, built, strict=True) if item.failed is None]
        if not alive:
            continue
        latencies = measurer.compare([item for _, item in alive], ROUNDS)
        for (run, _), latency in zip(alive, latencies, strict=True):
            if latency is not None:
                database.confirm(run, latency, job)
        done += 1
    return done


def code_of(task: Task, runs: Sequence[Run], measurer: Measurer) -> list[Built]:
    """The code of some runs: kept from when they were measured, else built again."""
    missing = [run for run in runs if run.trace_key not in task.built]
    again = measurer.build([task.candidate(json.loads(run.config_json)) for run in missing])
    found = task.built | {run.trace_key: item for run, item in zip(missing, again, strict=True)}
    return [found[run.trace_key] for run in runs]


def _rivals(task: Task, database: Database) -> list[Run]:
    top = database.top(task.key, TOP)
    default = database.default(task.key)
    known = {run.id for run in top}
    return top + ([default] if default is not None and default.id not in known else [])


__all__ = ["ROUNDS", "TOP", "code_of", "confirm", "unconfirmed"]
