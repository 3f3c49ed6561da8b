"""Latencies of made-up runs as those of recordings: learnt from what was measured, with the noise of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from autotune.bench.replay import recording
from autotune.database.inside import ALONE_NOISE
from autotune.errors import UsageError
from cost_models import booster as boosters
from cost_models import dataset, features, objectives
from cost_models.feature_cache import FeatureCache
from cost_models.ranker import analytic_scores
from search_spaces.population import Population
from search_spaces.space import Space

_TREES = 100


@dataclass(frozen=True)
class RecordedLatencies:
    """A booster that predicts minus the logarithm of a candidate's latency over the median of its workload."""

    booster: Any

    @staticmethod
    def of(folders: Sequence[Path]) -> RecordedLatencies:
        """Learn from the recordings of some folders, without those of spaces that have changed since."""
        tables = []
        for one in (one for folder in folders for one in recording.read_all(folder)):
            with suppress(UsageError):
                tables.append(one.training_table(inside=False))
        data = dataset.build(pandas.concat(tables, ignore_index=True), FeatureCache.of_user())
        data = data.take(data.valid)
        order = np.argsort(data.groups, kind="stable")
        x = data.x[order]
        rows = objectives.TrainingRows(
            x, data.latency[order], data.noise[order], data.groups[order], analytic_scores(x)
        )
        return RecordedLatencies(objectives.regression(rows, _TREES, 0))

    def ratios(self, space: Space, found: Population, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return latencies over that of the first candidate, the default [n], as they would be measured alone."""
        x = features.extract(space, found)
        margin = analytic_scores(x)
        scores = boosters.predict(self.booster, x, 1, margin - np.median(margin)).astype(np.float64)
        noise = rng.normal(scale=ALONE_NOISE, size=len(scores))
        return np.asarray(np.exp(np.clip(scores[0] - scores, -3, 3) + noise))


__all__ = ["RecordedLatencies"]
