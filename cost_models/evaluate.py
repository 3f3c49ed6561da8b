"""How good is a ranking on workloads that its model has not seen?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.dataset import Dataset

_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Metrics:
    """Quality of scores over groups (workload × target); all but ``regret`` and ``groups`` are 1 at best.

    ``pairwise``: share of pairs with different latency in the right order, mean over groups.
    ``top1``, ``top5``: Σ best latency / Σ best latency among the model's first k (Zheng et al., TenSet,
    NeurIPS 2021). ``regret``: mean over groups of (latency of the model's first / best) - 1.
    """

    pairwise: float
    top1: float
    top5: float
    regret: float
    groups: int
    rows: int

    def to_dict(self) -> dict[str, float]:
        """As a plain dictionary."""
        return {name: float(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return (
            f"pairwise {self.pairwise:.3f}, top-1 {self.top1:.3f}, top-5 {self.top5:.3f}, "
            f"regret {self.regret:.1%} over {self.groups} workloads and {self.rows} runs"
        )


def evaluate(
    scores: NDArray[np.floating[Any]],
    latency: NDArray[np.floating[Any]],
    groups: NDArray[np.integer[Any]],
    weights: Mapping[int, float] | None = None,
) -> Metrics | None:
    """Metrics of ``scores`` [n] (higher = faster); None where no group has two rows.

    ``weights`` maps a group to its weight in the top-k sums: how often a model runs that workload.
    """
    pairs, regrets = [], []
    best_sum, first_sum, five_sum = 0.0, 0.0, 0.0
    rows = 0
    for group in np.unique(groups):
        mine = groups == group
        if mine.sum() < 2:
            continue
        order = np.argsort(-scores[mine], kind="stable")
        ranked = latency[mine][order]
        weight = 1.0 if weights is None else weights.get(int(group), 1.0)
        best = float(ranked.min())
        best_sum += weight * best
        first_sum += weight * float(ranked[0])
        five_sum += weight * float(ranked[:5].min())
        regrets.append(float(ranked[0]) / best - 1.0)
        pairs.append(pairwise_accuracy(scores[mine], latency[mine]))
        rows += int(mine.sum())
    if not regrets:
        return None
    return Metrics(
        pairwise=float(np.mean(pairs)),
        top1=best_sum / first_sum,
        top5=best_sum / five_sum,
        regret=float(np.mean(regrets)),
        groups=len(regrets),
        rows=rows,
    )


def pairwise_accuracy(scores: NDArray[np.floating[Any]], latency: NDArray[np.floating[Any]]) -> float:
    """Share of pairs with different latency that the scores order right; a tied score counts half."""
    if len(scores) > 2000:
        picked = np.random.default_rng(0).choice(len(scores), 2000, replace=False)
        scores, latency = scores[picked], latency[picked]
    upper = np.triu_indices(len(scores), 1)
    faster = np.sign(latency[upper[1]] - latency[upper[0]])
    better = np.sign(scores[upper[0]].astype(np.float64) - scores[upper[1]])
    differ = faster != 0
    if not differ.any():
        return 1.0
    return float(((1.0 + faster[differ] * better[differ]) / 2.0).mean())


def by_family(scores: NDArray[np.floating[Any]], data: Dataset) -> dict[str, Metrics]:
    """Metrics of each family of spaces; rows without a latency are left out."""
    found = {}
    of_row = np.asarray(data.families)[data.groups] if len(data) else np.zeros(0, dtype=str)
    for family in sorted(set(data.families)):
        rows = (of_row == family) & data.valid
        metrics = evaluate(scores[rows], data.latency_ns[rows], data.groups[rows])
        if metrics is not None:
            found[family] = metrics
    return found


def is_held_out(workload_key: str) -> bool:
    """Whether a workload is never trained on: decided by its key alone, so for ever and everywhere."""
    digest = hashlib.sha256(f"held-out:{workload_key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < _HELD_OUT_SHARE * 2**64


def split(workloads: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Workload keys to train on and to hold out (a fifth); with few keys, one is moved if a side is empty."""
    keys = sorted(set(workloads))
    held = {key for key in keys if is_held_out(key)}
    if len(keys) >= 2 and not held:
        held = {keys[0]}
    if len(keys) >= 2 and len(held) == len(keys):
        held.remove(keys[0])
    return frozenset(set(keys) - held), frozenset(held)


__all__ = ["Metrics", "by_family", "evaluate", "is_held_out", "pairwise_accuracy", "split"]
