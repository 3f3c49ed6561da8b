"""The quality of a ranking on workloads that its model has not seen.

Every workload counts alike, whatever it takes: sums of nanoseconds would let the slowest decide. Intervals are over
workloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.suggest import counted
from cost_models import proposals
from cost_models.dataset import Dataset
from cost_models.interval import ConfidenceInterval

BATCH = 8
"""So many candidates are built together: how fast the best of the first ones is, matters."""
_BEYOND = 2.0
"""Pairs count whose latencies differ by so many standard deviations of their noise."""
_MOST = 2000
MEASURES = ("pairwise", "top1", "top5", "regret", "batch")
"""``pairwise``: share of the pairs beyond noise in the right order. ``top1``, ``top5``: best latency over the best of
the first k that a job would try by the scores (:mod:`cost_models.proposals`; the measure of Zheng et al., TenSet,
NeurIPS 2021). ``regret``: the latency of the first over the best, less 1. ``batch``: log(best latency over the best of
the first k), the mean over k up to :data:`BATCH`."""


@dataclass(frozen=True)
class Judgement:
    """The quality of scores on each of ``workloads``: ``values`` [workloads, :data:`MEASURES`], of so many ``rows``."""

    workloads: tuple[str, ...]
    families: tuple[str, ...]
    models: tuple[str, ...]
    values: NDArray[np.float64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.workloads)

    def of(self, measure: str) -> NDArray[np.float64]:
        """Return one measure [workloads]; NaN for a workload that has no pair beyond noise."""
        return np.asarray(self.values[:, MEASURES.index(measure)])

    def interval(self, measure: str) -> ConfidenceInterval:
        """Return the interval of the mean over the workloads."""
        found = self.of(measure)
        return ConfidenceInterval.of(found[~np.isnan(found)])

    def take(self, rows: NDArray[np.bool_]) -> Judgement:
        """Return the given workloads."""
        picked = np.flatnonzero(rows)
        return Judgement(
            tuple(self.workloads[i] for i in picked),
            tuple(self.families[i] for i in picked),
            tuple(self.models[i] for i in picked),
            self.values[picked],
            self.rows[picked],
        )

    def split(self, by: Iterable[str]) -> dict[str, Judgement]:
        """Return the workloads of each of the names ``by``, such as :attr:`families`."""
        names = np.asarray(list(by), dtype=str)
        return {str(name): self.take(names == name) for name in np.unique(names)}

    def to_dict(self) -> dict[str, Any]:
        """Return means with their intervals, and of how much they are."""
        found = {name: self.interval(name) for name in MEASURES if len(self)}
        return {
            "workloads": len(self),
            "runs": int(self.rows.sum()),
            **{name: [i.mean, i.low, i.high] for name, i in found.items()},
        }

    def __str__(self) -> str:
        shown = ", ".join(
            f"{text} {self.interval(name)}"
            for name, text in zip(MEASURES[:4], ("pairwise", "top-1", "top-5", "regret"), strict=True)
        )
        return f"{shown} over {counted(len(self), 'workload')} and {counted(self.rows.sum(), 'run')}"


def judge(scores: NDArray[np.floating[Any]], data: Dataset) -> Judgement:
    """Return the quality of ``scores`` [n] (higher = faster) of valid rows; groups of one row say nothing.

    A workload on several targets counts once, with the mean of them.
    """
    found: dict[str, list[tuple[list[float], int]]] = {}
    about: dict[str, tuple[str, str]] = {}
    for group in np.unique(data.groups):
        mine = np.flatnonzero(data.groups == group)
        if len(mine) < 2:
            continue
        key = data.workloads[group]
        about.setdefault(key, (data.families[group], data.models[group]))
        values = _measured(scores[mine], data.latency[mine], data.noise[mine], data.knobs[mine])
        found.setdefault(key, []).append((values, len(mine)))
    keys = sorted(found)
    return Judgement(
        tuple(keys),
        tuple(about[key][0] for key in keys),
        tuple(about[key][1] for key in keys),
        np.asarray([np.mean([v for v, _ in found[key]], axis=0) for key in keys]).reshape(-1, len(MEASURES)),
        np.asarray([sum(n for _, n in found[key]) for key in keys], np.int64),
    )


def _measured(
    scores: NDArray[Any], latency: NDArray[np.float64], noise: NDArray[np.float64], knobs: NDArray[np.float32]
) -> list[float]:
    """Return the measures of one group; of equal scores any may be first."""
    chance = np.random.default_rng(0).permutation(len(scores))
    choices = np.nan_to_num(knobs[:, ~np.isnan(knobs).all(axis=0)], nan=np.inf)
    tried = latency[chance][proposals.first(scores[chance], choices[chance], BATCH)]
    first = float(latency.min()) / np.minimum.accumulate(tried)
    return [
        pairwise_accuracy(scores, latency, noise),
        float(first[0]),
        float(first[:5][-1]),
        float(1 / first[0] - 1),
        float(np.log(first[:BATCH]).mean()),
    ]


def pairwise_accuracy(
    scores: NDArray[Any], latency: NDArray[np.float64], noise: NDArray[np.float64]
) -> float:
    """Return the share of the pairs beyond noise that the scores order right, a tied score counts half;
    NaN without any."""
    if len(scores) > _MOST:
        picked = np.random.default_rng(0).choice(len(scores), _MOST, replace=False)
        scores, latency, noise = scores[picked], latency[picked], noise[picked]
    left, right = np.triu_indices(len(scores), 1)
    slower = np.log(latency[right] / latency[left])
    differ = np.abs(slower) > _BEYOND * np.hypot(noise[left], noise[right])
    if not differ.any():
        return float("nan")
    better = np.sign(scores[left].astype(np.float64) - scores[right])
    return float(((1.0 + np.sign(slower) * better)[differ] / 2.0).mean())


__all__ = ["BATCH", "MEASURES", "Judgement", "judge", "pairwise_accuracy"]
