"""The learned ranker: which of the candidates of a workload is fastest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError
from cost_models import booster as boosters
from cost_models import features, objectives
from cost_models.dataset import Dataset

_PRIOR = np.float32(2.0)  # a factor of two in predicted time is worth odds of e^2 to 1
_TRUST = np.float32(0.7)
"""Share of what trees add to the analytic ranking that is believed: on workloads that they have not seen, all of it
makes the first choice worse."""
ROUNDS = 60

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ranker:
    """Gradient-boosted trees that correct the analytic model: they start from its ranking, so that little data does
    no harm.

    A member a fold, trained on all workloads but those of its fold: so every workload is judged by a member that has
    not seen it (:meth:`held_out`), and the mean of all members is what is used. Only the order within one workload on
    one target is learned and predicted: absolute times of different machines never meet.
    """

    members: tuple[Any, ...]
    folds: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1

    @staticmethod
    def fit(
        data: Dataset,
        folds: Mapping[str, int],
        *,
        rounds: int = ROUNDS,
        threads: int | None = None,
        objective: str = objectives.DEFAULT,
        say: Say = lambda text: None,
    ) -> Ranker:
        """Train on the valid rows of ``data``, whose workload keys are in ``folds``.

        ``say`` hears of the progress. Raises CostModelError where a fold leaves nothing to learn from.
        """
        count = 1 + max(folds.values(), default=-1)
        usable = _comparable(data.take(data.valid))
        outside = [frozenset(key for key, fold in folds.items() if fold != number) for number in range(count)]
        parts = [usable.rows_of(keys) for keys in outside]
        if not parts or not all(rows.any() for rows in parts):
            raise CostModelError(
                "nothing to rank: no workload, or only those of one fold, has two runs of different latency; "
                "tune some more"
            )
        threads = threads or len(os.sched_getaffinity(0))
        fit = objectives.OBJECTIVES[objective]

        def member(number: int) -> Any:
            found = fit(_rows(usable, parts[number]), rounds, number)
            say(f"trained without fold {number + 1} of {count}: {parts[number].sum()} runs")
            return found

        with ThreadPoolExecutor(threads) as pool:
            return Ranker(tuple(pool.map(member, range(count))), dict(folds), threads)

    def each(self, x: features.Matrix) -> NDArray[np.float32]:
        """Return the scores of rows [n, F] by every member: float32 [members, n]."""
        margin = _PRIOR * analytic_scores(x)
        scores = np.stack([boosters.predict(member, x, self.threads, margin) for member in self.members])
        return np.asarray(margin + _TRUST * (scores - margin))

    def predict(self, x: features.Matrix) -> boosters.Scores:
        """Return scores float32 [n] for rows [n, F]: the higher, the faster within one workload."""
        return np.asarray(self.each(x).mean(axis=0), dtype=np.float32)

    def held_out(self, data: Dataset) -> boosters.Scores:
        """Return scores [n] that know nothing of the row's workload: of the member that has not seen it, or of all
        where none has."""
        scores = self.each(data.x)
        of_group = np.asarray([self.folds.get(key, -1) for key in data.workloads], np.intp)
        fold = of_group[data.groups]
        one = scores[fold, np.arange(len(data))]
        return np.asarray(np.where(fold < 0, scores.mean(axis=0), one), dtype=np.float32)


def _comparable(data: Dataset) -> Dataset:
    """Return the data without the groups that have nothing to compare: one row, or equal latencies."""
    count = len(data.workloads)
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, data.groups, data.latency)
    np.maximum.at(most, data.groups, data.latency)
    return data.take((least < most)[data.groups])


def _rows(data: Dataset, wanted: NDArray[np.bool_]) -> objectives.TrainingRows:
    """Return the wanted rows, sorted by groups; copied once, as they are most of what a training holds."""
    rows = np.flatnonzero(wanted)
    order = rows[np.argsort(data.groups[rows], kind="stable")]
    x = data.x[order]
    return objectives.TrainingRows(
        x, data.latency[order], data.noise[order], data.groups[order], _PRIOR * analytic_scores(x)
    )


def analytic_scores(x: features.Matrix) -> boosters.Scores:
    """Return the analytic model's ranking, read back from the features: minus the log of predicted seconds."""
    if x.ndim != 2 or x.shape[1] != len(features.names()):
        raise CostModelError(f"features of shape {x.shape}; this model reads [n, {len(features.names())}]")
    return np.asarray(-x[:, features.names().index("log_total")], dtype=np.float32)


__all__ = ["ROUNDS", "Ranker", "Say", "analytic_scores"]
