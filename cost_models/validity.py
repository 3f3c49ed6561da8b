"""The validity classifier: which candidates will fail to build, crash or compute wrong numbers."""

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

_PARAMETERS: Mapping[str, object] = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 5,
    "eta": 0.2,
    "subsample": 0.9,
    "seed": 0,
    "verbosity": 0,
}


@dataclass(frozen=True)
class Validity:
    """Predicts the probability that a candidate runs and computes the right numbers."""

    booster: Any
    threads: int = 1

    @staticmethod
    def fit(
        x: features.Matrix,
        valid: NDArray[np.bool_],
        *,
        rounds: int = 60,
        threads: int | None = None,
    ) -> Validity:
        """Train on rows ``x`` [n, F] and whether each was ``valid`` [n].

        Raises CostModelError unless both kinds occur.
        """
        if len(x) != len(valid) or valid.all() or not valid.any():
            raise CostModelError(
                f"validity needs rows that worked and rows that failed; got {int(valid.sum())} "
                f"valid of {len(valid)} rows with {len(x)} feature rows"
            )
        threads = threads or len(os.sched_getaffinity(0))
        # Failures are rare: weigh both classes alike, so that the probability is a ranking at 0.5.
        balance = float((~valid).sum() / valid.sum())
        settings = {**_PARAMETERS, "nthread": threads, "scale_pos_weight": balance}
        return Validity(boosters.train(settings, rounds, x, valid.astype(np.float32)), threads)

    def predict(self, x: features.Matrix) -> boosters.Scores:
        """Balanced probability of being valid, float32 [n]; below 0.5 a failure is more likely."""
        return boosters.predict(self.booster, x, self.threads)


__all__ = ["Validity"]
