"""The learned ranker: which of the candidates of a workload is fastest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError
from cost_models import booster as boosters
from cost_models import features

_GRADES = 31
_PRIOR = np.float32(2.0)  # a factor of two in predicted time is worth odds of e^2 to 1

PARAMETERS: Mapping[str, object] = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 16,
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.08,
    "subsample": 0.9,
    "colsample_bytree": 0.7,
    "min_child_weight": 2.0,
    "seed": 0,
    "verbosity": 0,
}


@dataclass(frozen=True)
class Ranker:
    """Gradient-boosted trees trained on pairs within a workload (Burges, LambdaMART, 2010).

    The trees correct the analytic model: they start from its ranking, so that little data does no harm.
    Only the order within one workload on one target is learned and predicted: absolute times of different
    machines never meet.
    """

    booster: Any
    threads: int = 1

    @staticmethod
    def fit(
        x: features.Matrix,
        latency: NDArray[np.floating[Any]],
        groups: NDArray[np.integer[Any]],
        *,
        rounds: int = 150,
        threads: int | None = None,
        parameters: Mapping[str, object] = PARAMETERS,
    ) -> Ranker:
        """Train on rows ``x`` [n, F] with ``latency`` [n] in any unit, ranked within ``groups`` [n].

        Raises CostModelError where no group has two different latencies to learn from.
        """
        if not len(x) == len(latency) == len(groups):
            raise CostModelError(f"{len(x)} feature rows, {len(latency)} latencies and {len(groups)} groups")
        grades = graded(latency, groups)
        if not len(x) or not np.any(grades != _GRADES):
            raise CostModelError(
                "nothing to rank: no workload has two runs of different latency; tune some more"
            )
        order = np.argsort(groups, kind="stable")
        threads = threads or len(os.sched_getaffinity(0))
        settings = {**parameters, "nthread": threads}
        booster = boosters.train(
            settings,
            rounds,
            x[order],
            grades[order],
            groups=groups[order],
            margin=_PRIOR * analytic_scores(x[order]),
        )
        return Ranker(booster, threads)

    def predict(self, x: features.Matrix) -> boosters.Scores:
        """Scores float32 [n] for rows [n, F]: the higher, the faster within one workload."""
        return boosters.predict(self.booster, x, self.threads, _PRIOR * analytic_scores(x))


def analytic_scores(x: features.Matrix) -> boosters.Scores:
    """The analytic model's ranking, read back from the features: minus the log of predicted seconds."""
    if x.ndim != 2 or x.shape[1] != len(features.names()):
        raise CostModelError(f"features of shape {x.shape}; this model reads [n, {len(features.names())}]")
    return np.asarray(-x[:, features.names().index("log_total")], dtype=np.float32)


def graded(latency: NDArray[np.floating[Any]], groups: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Relevance 0 to 31 [n]: the best latency of the group over the row's own, in 32 grades."""
    _, inverse = np.unique(groups, return_inverse=True)
    best = np.full(int(inverse.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, inverse, latency)
    return np.asarray(np.round(_GRADES * best[inverse] / latency), dtype=np.float32)


__all__ = ["PARAMETERS", "Ranker", "analytic_scores", "graded"]
