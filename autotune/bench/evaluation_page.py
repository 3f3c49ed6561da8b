"""The page of plots of an evaluation: predicted against measured, top-k, calibration, importance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.bench.charts import Bars, Chart, Points, write_page
from autotune.bench.evaluation import Evaluation
from cost_models import features, folds
from cost_models.ranker import Ranker

if TYPE_CHECKING:
    from autotune.bench.tables import Document
    from cost_models.dataset import Dataset

_TOP = 32
_PAIRS = 20_000
_BINS = 10
_SHOWN = 20


def write(path: Path, document: Document, evaluations: Sequence[Evaluation], name: str, rounds: int) -> None:
    """Write it; ``name`` is the ranking that is looked at closely, of the first evaluation."""
    first = evaluations[0]
    charts = [
        Chart(
            f"The best of the first k candidates, held out by {one.by} (mean over workloads)",
            "k",
            "best ÷ best of the first k",
            {which: _top_curve(scores, one.data) for which, scores in one.scores.items()},
        )
        for one in evaluations
    ]
    charts += [
        Chart(
            f"Scores of {name} against latencies of held-out workloads, each workload in units of its own spread",
            "score",
            "log latency",
            {"": _scatter(first.scores[name], first.data)},
            dots=True,
        ),
        Chart(
            f"Calibration of {name}: how often the candidate that it prefers is the faster one",
            "probability by the scores",
            "share of pairs",
            {"": _calibration(first.scores[name], first.data)},
            diagonal=True,
        ),
    ]
    about = [document.about, document.command, *(f"{key}: {value}" for key, value in document.facts.items())]
    tables = [table.html() for table in document.tables]
    write_page(path, document.title, about, tables, [*charts, _importance(first.data, rounds)])


def _groups(data: Dataset) -> list[NDArray[np.intp]]:
    found = (np.flatnonzero(data.groups == group) for group in np.unique(data.groups))
    return [rows for rows in found if len(rows) > 1]


def _top_curve(scores: NDArray[np.float32], data: Dataset) -> Points:
    curves = []
    for rows in _groups(data):
        ranked = np.minimum.accumulate(data.latency[rows][np.argsort(-scores[rows], kind="stable")])[:_TOP]
        curves.append(data.latency[rows].min() / np.pad(ranked, (0, _TOP - len(ranked)), "edge"))
    return np.arange(1.0, _TOP + 1), np.mean(curves, axis=0)


def _scatter(scores: NDArray[np.float32], data: Dataset) -> Points:
    pairs = [(_unit(scores[rows]), _unit(np.log(data.latency[rows]))) for rows in _groups(data)]
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])


def _unit(values: NDArray[np.floating]) -> NDArray[np.float64]:
    spread = float(values.std()) or 1.0
    return np.asarray((values - values.mean()) / spread, np.float64)


def _calibration(scores: NDArray[np.float32], data: Dataset) -> Points:
    """Pairs in tenths of the probability that the scores give the preferred one."""
    rng = np.random.default_rng(0)
    chances, right = [], []
    groups = _groups(data)
    for rows in groups:
        left, other = (rng.choice(rows, max(1, _PAIRS // len(groups))) for _ in range(2))
        gap = scores[left].astype(np.float64) - scores[other]
        slower = np.log(data.latency[other] / data.latency[left])
        clear = np.abs(slower) > 2 * np.hypot(data.noise[left], data.noise[other])
        chances.append((1 / (1 + np.exp(-np.abs(gap))))[clear])
        right.append((np.sign(gap) * slower > 0)[clear])
    chance, correct = np.concatenate(chances), np.concatenate(right)
    bins = np.minimum(((chance - 0.5) * 2 * _BINS).astype(int), _BINS - 1)
    used = np.unique(bins)
    return (
        np.asarray([chance[bins == b].mean() for b in used]),
        np.asarray([correct[bins == b].mean() for b in used]),
    )


def _importance(data: Dataset, rounds: int) -> Bars:
    """The gain of each feature in a ranker of all the data."""
    ranker = Ranker.fit(data, folds.by_workload(data.workloads, ""), rounds=rounds)
    gains = dict.fromkeys(features.names(), 0.0)
    for member in ranker.members:
        for name, gain in member.get_score(importance_type="total_gain").items():
            gains[name] += gain
    total = sum(gains.values()) or 1.0
    most = sorted(gains, key=lambda name: -gains[name])[:_SHOWN]
    return Bars("Share of the gain of the trees, the features with most", {n: gains[n] / total for n in most})


__all__ = ["write"]
