"""The objective of a batch of proposals: latency, or a random weighting of latency, memory and bytes of the artifact.

Random weights for each batch make a sampler of one value search a Pareto front: ParEGO (Knowles, IEEE Transactions on
Evolutionary Computation 2006), with the augmented Chebyshev norm, which reaches concave parts of a front too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.population import Population

_SUM = 0.05
"""Share of the sum beside the largest of the weighted values: of two with the same largest the better one is better."""
_NEAREST = 3
"""So many measured candidates predict what another one takes of memory and bytes."""


@dataclass(frozen=True)
class Aim:
    """``weights`` [k] of the objectives, latency first, and the ``values`` [n, k] of what was ``measured``."""

    weights: NDArray[np.float64]
    measured: Population
    values: NDArray[np.float64]

    @property
    def best(self) -> NDArray[np.intp]:
        """Rows of what was measured, the best first."""
        return np.argsort(_norm(self.values, self.weights), kind="stable")

    def worth(self, candidates: Population, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the worth of candidates [n], the higher the better: by scores of a cost model (the higher, the
        faster) and, for the other objectives, by what the nearest measured candidates take."""
        if len(self.weights) == 1 or not len(self.measured):
            return scores
        near = np.argsort(candidates.distances(self.measured), axis=1, kind="stable")[:, :_NEAREST]
        sizes = self.values[near, 1:].mean(axis=1)
        values = np.column_stack([-np.asarray(scores, np.float64), sizes])
        return -_norm(values, self.weights)


def _norm(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the augmented Chebyshev norm [n] of weighted values, each objective from 0 to 1."""
    if not len(values):
        return np.zeros(0)
    least, most = values.min(axis=0), values.max(axis=0)
    weighted = weights * (values - least) / np.where(most > least, most - least, 1.0)
    return np.asarray(weighted.max(axis=1) + _SUM * weighted.sum(axis=1))


__all__ = ["Aim"]
