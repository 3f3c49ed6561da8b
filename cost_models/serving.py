"""Scores of measured runs by the cost model in use: what a new one has to beat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autotune.target import Target
from cost_models import booster as boosters
from cost_models.dataset import Dataset
from cost_models.ranker import analytic_scores
from cost_models.registry import Registry

ANALYTIC = "the analytic model alone"


@dataclass(frozen=True)
class Serving:
    """The serving model, by name, and its held-out ``scores`` [n], None where that is the analytic model alone.

    ``note``: where the version in use cannot be compared, a word on why.
    """

    name: str = ANALYTIC
    scores: boosters.Scores | None = None
    note: str = ""


def serving(registry: Registry, data: Dataset, targets: Iterable[Target]) -> Serving:
    """Return the version in use or, without one that can be read, the models that are built in for the ``targets``."""
    name, note = registry.current(), ""
    if name is not None:
        found = registry.load(name) if registry.readable(name) else None
        if found is not None:
            return Serving(name, found.ranker.held_out(data))
        note = f" ({name} is of another version of autotune and was not compared)"
    names, scores = [], analytic_scores(data.x)
    for target in targets:
        model = registry.serving(target)
        rows = np.asarray([key == target.key for key in data.targets], np.bool_)[data.groups]
        if model is not None and rows.any():
            scores[rows] = model.ranker.held_out(data.take(rows))
            names.append(model.version)
    if not names:
        return Serving(note=note)
    return Serving(" and ".join(sorted(set(names))), scores, note)


__all__ = ["ANALYTIC", "Serving", "serving"]
