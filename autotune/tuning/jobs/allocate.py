"""The task that gets the next turn: the one from which the model gains most."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np

from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.task import Task

ALPHA = 0.2
"""The weight of the speed-up seen lately against the one hoped for."""
BETA = 2.0
"""The speed-up over the best similar task that a task may hope for."""
WINDOW = 16
"""Runs over which the gain seen lately is taken."""


class TaskScheduler:
    """Gradient-based task scheduling of Ansor (Zheng et al., OSDI 2020, 6.2).

    What is to be made smaller is the model's latency; a task that only options need which are ruled out gets no
    turn. With probability ``explore`` the turn goes to any unfinished task. Tasks on a plateau get a turn only when
    all are, and none then with ``stop_on_plateau``.
    """

    def __init__(
        self, sites: Sites, seed: int, explore: float = 0.05, *, stop_on_plateau: bool = False
    ) -> None:
        self._sites = sites
        self._stop_on_plateau = stop_on_plateau
        self._tasks = sites.tasks
        self._rng = np.random.default_rng(seed)
        self._explore = explore

    def choose(self, busy: Container[str] = ()) -> Task | None:
        """Return the task of the next turn, of those whose workload is not ``busy``; None when all are finished."""
        weights = self._sites.weights()
        open_tasks = [task for task in self._open(weights) if task.workload.key not in busy]
        if not open_tasks:
            return None
        if self._rng.random() < self._explore:
            return open_tasks[int(self._rng.integers(len(open_tasks)))]
        return max(open_tasks, key=lambda task: self._gain(task, weights[task.workload.key]))

    @property
    def untried(self) -> list[Task]:
        """The tasks whose default comes first."""
        return self._sites.untried

    @property
    def open_tasks(self) -> list[Task]:
        """The tasks that may get a turn."""
        return self._open(self._sites.weights())

    def _open(self, weights: Mapping[str, float]) -> list[Task]:
        unfinished = [
            task
            for task in self._tasks
            if not (task.finished or task.at_floor) and task.workload.key in weights
        ]
        rising = [task for task in unfinished if not task.on_plateau]
        return rising if rising or self._stop_on_plateau else unfinished

    def _gain(self, task: Task, weight: float) -> float:
        """Return the expected gain of one more run of ``task``, in ns of the model's latency."""
        runs, best = len(task.curve), task.best_ns
        if not np.isfinite(best):
            return float("inf")  # nothing works yet: the model needs it before anything else
        before = task.curve[max(0, runs - 1 - WINDOW)]
        seen = (before - best) / min(WINDOW, runs) if np.isfinite(before) else best
        hoped = min(best / runs, max(0.0, best - max(task.floor_ns, self._similar(task) / BETA)))
        return weight * (ALPHA * seen + (1 - ALPHA) * hoped)

    def _similar(self, task: Task) -> float:
        """Return the latency of ``task`` at the best FLOP rate of any task of its kind, in ns."""
        rates = [
            other.workload.flops / other.best_ns
            for other in self._tasks
            if other.workload.kind == task.workload.kind and np.isfinite(other.best_ns)
        ]
        fastest = max(rates, default=0.0)
        return task.workload.flops / fastest if fastest > 0 else 0.0


__all__ = ["TaskScheduler"]
