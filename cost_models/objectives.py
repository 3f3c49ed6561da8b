"""Training objectives of a learned model: the order of pairs, the latency itself, or to be among the fastest.

Labels are latencies with their noise. `autotune models evaluate --rankings` measures them on held-out workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.database.inside import ALONE_NOISE
from cost_models import booster as boosters
from cost_models import features

Floats: TypeAlias = NDArray[np.float64]

TREES: Mapping[str, object] = {
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.08,
    "subsample": 0.9,
    "colsample_bytree": 0.7,
    "min_child_weight": 2.0,
    "verbosity": 0,
    "nthread": 1,
}
"""On one thread: members are trained beside each other, and threads of one wait for each other on a busy machine."""
SHALLOW: Mapping[str, object] = {
    **TREES,
    "max_depth": 4,
    "subsample": 0.7,
    "colsample_bytree": 0.4,
    "min_child_weight": 5.0,
}
"""For what is to hold on workloads that were not seen: deeper trees learn the workloads that were."""
LAMBDARANK: Mapping[str, object] = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 16,
}
_GRADES = 31
_PAIRS = 16
"""So many others that each run is compared with, drawn once."""
_FASTEST = 0.1


@dataclass(frozen=True)
class TrainingRows:
    """Measured runs, sorted by ``groups`` [n]: features ``x`` [n, F], ``latency`` [n], the standard deviation ``noise``
    [n] of its logarithm, and the scores ``margin`` [n] that a model starts from."""

    x: features.Matrix
    latency: Floats
    noise: Floats
    groups: NDArray[np.int64]
    margin: boosters.Scores


Fit: TypeAlias = Callable[[TrainingRows, int, int], Any]
"""Rows, trees and seed to a booster."""


def pairs(rows: TrainingRows, rounds: int, seed: int) -> Any:
    """Return the order of pairs within a workload, each counted as far as the noise of its two readings
    leaves it certain.

    The logistic loss of RankNet (Burges et al., ICML 2005) times how far the probability that the faster reading is of
    the faster candidate is above a half.
    """
    left, right = _drawn(rows.groups, np.random.default_rng(seed))
    logs = np.log(rows.latency)
    slower = (logs[right] - logs[left]) / np.hypot(rows.noise[left], rows.noise[right])
    n, faster = len(logs), slower > 0
    weight = (
        n / max(len(left), 1) * np.abs(np.tanh(0.851 * slower))
    )  # the normal distribution, to within 0.01

    def loss(scores: NDArray[Any], _data: Any) -> tuple[Floats, Floats]:
        expected = 1 / (1 + np.exp(np.clip(scores[right] - scores[left], -50, 50)))
        slope = weight * (expected - faster)
        curve = weight * np.maximum(expected * (1 - expected), 1e-6)
        gradient = np.bincount(left, slope, n) - np.bincount(right, slope, n)
        curvature = np.bincount(left, curve, n) + np.bincount(right, curve, n)
        return gradient.astype(np.float64), curvature.astype(np.float64)

    return boosters.train({**SHALLOW, "seed": seed}, rounds, rows.x, logs, margin=rows.margin, loss=loss)


def _drawn(groups: NDArray[np.int64], rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs of rows of one group: each row with a few others."""
    lefts, rights = [], []
    for start, end in _ranges(groups):
        if end - start > 1:
            lefts.append(np.repeat(np.arange(start, end), _PAIRS))
            steps = rng.integers(1, end - start, size=len(lefts[-1]))
            rights.append(start + (lefts[-1] - start + steps) % (end - start))
    empty = np.zeros(0, np.intp)
    return np.concatenate([empty, *lefts]), np.concatenate([empty, *rights])


def _ranges(groups: NDArray[np.int64]) -> list[tuple[int, int]]:
    starts = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(groups)], strict=True))


def lambdarank(rows: TrainingRows, rounds: int, seed: int) -> Any:
    """Return the order of pairs, graded by the latency over the best of the workload (LambdaMART; Burges, 2010).

    XGBoost's pairs know no noise.
    """
    label, settings = graded(rows.latency, rows.groups), {**SHALLOW, **LAMBDARANK, "seed": seed}
    return boosters.train(settings, rounds, rows.x, label, groups=rows.groups, margin=rows.margin)


def regression(rows: TrainingRows, rounds: int, seed: int) -> Any:
    """Return the logarithm of the latency over the workload's median, where it is certain more than where it is not."""
    label, margin = -_centred(np.log(rows.latency), rows.groups), _centred(rows.margin, rows.groups)
    settings = {**SHALLOW, "objective": "reg:squarederror", "base_score": 0.0, "seed": seed}
    weights = (ALONE_NOISE / rows.noise) ** 2
    return boosters.train(settings, rounds, rows.x, label, margin=margin, weights=weights)


def fastest(rows: TrainingRows, rounds: int, seed: int) -> Any:
    """Return whether a candidate is among the fastest tenth of its workload."""
    label = np.zeros(len(rows.latency))
    for start, end in _ranges(rows.groups):
        label[start:end] = rows.latency[start:end] <= np.quantile(rows.latency[start:end], _FASTEST)
    settings = {**SHALLOW, "objective": "binary:logistic", "seed": seed}
    margin = _centred(rows.margin, rows.groups) + np.log(_FASTEST / (1 - _FASTEST))
    return boosters.train(settings, rounds, rows.x, label, margin=margin.astype(np.float32))


def _centred(values: NDArray[Any], groups: NDArray[np.int64]) -> NDArray[Any]:
    found = values.copy()
    for start, end in _ranges(groups):
        found[start:end] -= np.median(values[start:end])
    return found


def graded(latency: NDArray[np.floating[Any]], groups: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Return the relevance 0 to 31 [n]: the best latency of the group over the row's own, in 32 grades."""
    _, inverse = np.unique(groups, return_inverse=True)
    best = np.full(int(inverse.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, inverse, latency)
    return np.asarray(np.round(_GRADES * best[inverse] / latency), dtype=np.float32)


OBJECTIVES: Mapping[str, Fit] = {
    "pairs": pairs,
    "lambdarank": lambdarank,
    "regression": regression,
    "fastest": fastest,
}
DEFAULT = "lambdarank"
"""On 116 workloads none orders pairs significantly better, and the first choices of it and of regression lose least."""

__all__ = ["DEFAULT", "LAMBDARANK", "OBJECTIVES", "SHALLOW", "TREES", "Fit", "TrainingRows", "graded"]
