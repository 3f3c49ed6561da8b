"""Rankings that are judged beside each other on workloads that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.suggest import counted
from cost_models import booster as boosters
from cost_models import objectives
from cost_models.dataset import Dataset
from cost_models.objectives import DEFAULT, OBJECTIVES
from cost_models.ranker import ROUNDS, Ranker, Say, analytic_scores

RANDOM, ANALYTIC, KNOBS = "random", "analytic", "knobs"
NAMES = (RANDOM, ANALYTIC, KNOBS, *OBJECTIVES)
"""The rankers that can be judged: chance, the analytic model alone, a model that sees the values of the knobs only,
and a ranker for each objective."""


def scores(
    data: Dataset,
    folds: Mapping[str, int],
    names: Sequence[str] = (RANDOM, ANALYTIC, KNOBS, DEFAULT),
    *,
    rounds: int = ROUNDS,
    say: Say = lambda text: None,
) -> dict[str, boosters.Scores]:
    """Return scores [n] of valid rows by the name of what gave them, each row by a model that has not seen its fold."""
    found = {}
    for name in names:
        say(f"{name}: {counted(len(data), 'run')}")
        if name == RANDOM:
            found[name] = np.random.default_rng(0).random(len(data), dtype=np.float32)
        elif name == ANALYTIC:
            found[name] = analytic_scores(data.x)
        elif name == KNOBS:
            found[name] = _by_knobs(data, folds, rounds)
        else:
            found[name] = Ranker.fit(data, folds, rounds=rounds, objective=name).held_out(data)
    return found


def _by_knobs(data: Dataset, folds: Mapping[str, int], rounds: int) -> boosters.Scores:
    """Return scores by the knobs' values and nothing else: a baseline that knows no loop nest."""
    of_row = np.asarray([folds[key] for key in data.workloads], np.intp)[data.groups]
    found = np.zeros(len(data), np.float32)
    order = np.argsort(data.groups, kind="stable")
    for fold in range(1 + max(folds.values())):
        seen = order[of_row[order] != fold]
        nothing = np.zeros(len(seen), np.float32)
        rows = objectives.TrainingRows(
            data.knobs[seen], data.latency[seen], data.noise[seen], data.groups[seen], nothing
        )
        booster = OBJECTIVES[DEFAULT](rows, rounds, fold)
        mine = np.flatnonzero(of_row == fold)
        found[mine] = booster.inplace_predict(
            data.knobs[mine],
            predict_type="margin",
            validate_features=False,
            base_margin=np.zeros(len(mine), np.float32),
        )
    return found


__all__ = ["ANALYTIC", "KNOBS", "NAMES", "RANDOM", "scores"]
