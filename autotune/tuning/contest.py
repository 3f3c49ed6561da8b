"""The contest step: whole alternatives of a workload are checked and timed taking turns.

The sum over its dispatches, each timed alone, is not what an alternative takes: what one dispatch leaves
in the caches, the next one finds there.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.compiler.decision import alternative_key
from autotune.database import Database, Miss
from autotune.database.records import ContestRow
from autotune.errors import NoReferenceError
from autotune.passes.alternatives import Alternative
from autotune.tuning.confirm import ROUNDS, code_of
from autotune.tuning.measure.interface import Contest, Entry, Measurer
from autotune.tuning.objective import Fork, Objective
from autotune.tuning.task import Task


def contest(
    objective: Objective,
    database: Database,
    measurer: Measurer,
    job: str,
    out_of_time: Callable[[], bool],
) -> int:
    """Decide among the alternatives of each fork; how many forks were decided.

    The readings are stored, and from then on they decide (see :func:`autotune.compiler.decision.decide`).
    """
    done = 0
    tasks = {task.workload.key: task for task in objective.tasks}
    for fork in sorted(objective.forks, key=lambda fork: -len(fork.names) * fork.workload.flops):
        if out_of_time():
            break
        done += _decide(fork, objective, tasks, database, measurer, job)
    return done


def _decide(
    fork: Fork,
    objective: Objective,
    tasks: dict[str, Task],
    database: Database,
    measurer: Measurer,
    job: str,
) -> bool:
    rivals = _entrants(fork, objective)
    target = tasks[fork.workload.key].space.target
    if not rivals or not _is_news(fork, rivals, tasks, database):
        return False
    payloads = _payloads({region.key for a in rivals for region in a.regions}, tasks, database, measurer)
    entries = [Entry(a.name, {region.key: payloads[region.key] for region in a.regions}) for a in rivals]
    seed = tasks[fork.workload.key].seed
    asked = Contest(fork.workload.text, target.to_json(), seed, tuple(entries))
    try:
        results = measurer.contest(asked, ROUNDS)
    except NoReferenceError:  # no failure of the alternatives: nothing is stored of them
        return False
    rows = [
        ContestRow(a.name, alternative_key(a, target), m.latency, m.error, m.message)
        for a, m in zip(rivals, results, strict=True)
    ]
    database.record_contest(fork.workload.key, target.key, rows, job)
    return True


def _entrants(fork: Fork, objective: Objective) -> list[Alternative]:
    """The rivals, and always the direct way: it is timed as one dispatch, and sums of several may mislead."""
    rivals = objective.rivals(fork)
    ruled_out = [a for a in fork.alternatives if a.steps is None and a not in rivals]
    return [a for a in (*rivals, *ruled_out) if objective.latency(a) < float("inf")]


def _is_news(fork: Fork, rivals: list[Alternative], tasks: dict[str, Task], database: Database) -> bool:
    """Whether there was no contest of these rivals yet, or one of their dispatches got faster since."""
    target = tasks[fork.workload.key].space.target
    rows = {row.name: row for row in database.contest(fork.workload.key, target.key)}
    for rival in rivals:
        row = rows.get(rival.name)
        if row is None or row.key != alternative_key(rival, target):
            return True
        for region in rival.regions:
            key = tasks[region.key].key
            best = database.best(key.workload, key.target, key.space)
            if not isinstance(best, Miss) and best.created > row.created:
                return True
    return False


def _payloads(
    keys: set[str], tasks: dict[str, Task], database: Database, measurer: Measurer
) -> dict[str, dict[str, object]]:
    """The code of the best schedule of each workload, by key."""
    found = []
    for key in sorted(keys):
        task = tasks[key]
        best = database.best(task.key.workload, task.key.target, task.key.space)
        assert not isinstance(best, Miss), "a rival's regions have all been measured"
        found.append((task, best))
    return dict(zip(sorted(keys), (dict(b.payload) for b in code_of(found, measurer)), strict=True))


__all__ = ["contest"]
