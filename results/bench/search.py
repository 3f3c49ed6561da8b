"""How fast the search itself is: measured trials, and candidates scored, a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.problem import Case
from autotune.bench.suites import operators
from autotune.bench.tables import NOTHING
from autotune.compiler import distinct_workloads, divide
from autotune.database.inside import ALONE_NOISE
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.budget import Budget
from cost_models import features
from cost_models.dataset import Dataset
from cost_models.folds import FOLDS

SUITE: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("GMM", (1, 512, 512, 512)),
    ("C2D", (1, 14, 14, 256, 256, 3, 1, 1)),
    ("DEP", (1, 112, 112, 32, 3, 1, 1)),
    ("CBR", (1, 56, 56, 64, 128, 3, 2, 1)),
    ("TBG", (1, 128, 12, 64)),
    ("SFM", (1024, 1024)),
)
"""One operator of each kind: those that published tuners are timed on."""
_TRAINING = 256


@dataclass(frozen=True)
class TrialSpeed:
    """One tuning job from nothing; latencies are medians of the whole operator, ``gain`` is in words."""

    name: str
    trials: int
    seconds: float
    default_ns: float | None
    best_ns: float | None
    gain: str
    outcomes: dict[str, int]

    @property
    def per_second(self) -> float:
        """Measured trials a second, everything included: start, search, building, checking, timing."""
        return self.trials / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class ScoreSpeed:
    """Candidates of one workload scored on one core: features, then prediction."""

    name: str
    candidates: int
    features_s: float
    score_s: float

    @property
    def per_second(self) -> float:
        """Candidates a second, features and prediction together."""
        return self.candidates / self.score_s if self.score_s else 0.0


def cases(families: Sequence[str] = ()) -> list[Case]:
    """The operators of the suite, of some families or of all."""
    return [operators.case(f, p) for f, p in SUITE if not families or f in families]


def trial_speed(case: Case, trials: int, threads: int, folder: Path) -> TrialSpeed:
    """Tune an operator from nothing, in a database of its own. Raises what tuning raises."""
    database = folder / f"{case.family}-{threads}.db"
    begin = time.perf_counter()
    report = tune(
        case.build().graph, budget=Budget(trials=trials), database=database, threads=threads, quiet=True
    )
    seconds = time.perf_counter() - begin
    return TrialSpeed(
        f"{case.family} {case.name}",
        report.session_trials,
        seconds,
        report.gain.before.median_ns if report.gain else None,
        report.gain.after.median_ns if report.gain else None,
        str(report.gain.ratio) if report.gain else NOTHING,
        dict(report.outcomes),
    )


def score_speed(case: Case, candidates: int, rounds: int = 3) -> ScoreSpeed:
    """Score random candidates of the operator's largest workload on one thread; the fastest of ``rounds``.

    The ranker learns from the analytic model's estimates: what it learns does not change how long it
    takes.
    """
    from cost_models import analytic
    from cost_models.ranker import Ranker
    from search_spaces.spaces import space_for

    workload = max(distinct_workloads(divide(case.build().graph)), key=lambda w: w.flops)
    space = space_for(workload, Target.detect())
    rng = np.random.default_rng(0)
    known = space.sample(rng, _TRAINING)
    estimates = analytic.predict(space, known)
    ranker = Ranker.fit(_as_workloads(features.extract(space, known), estimates), _PARTS, threads=1)
    population = space.sample(rng, candidates)
    features_s, score_s = [], []
    for _ in range(rounds):
        features_s.append(_seconds(lambda: features.extract(space, population)))
        score_s.append(_seconds(lambda: ranker.predict(features.extract(space, population))))
    return ScoreSpeed(f"{case.family} {case.name}", len(population), min(features_s), min(score_s))


_PARTS = {str(fold): fold for fold in range(FOLDS)}


def _as_workloads(x: features.Matrix, latency: NDArray[np.float64]) -> Dataset:
    """Candidates of one workload as if they were of several, a fold each."""
    count, names = len(x), tuple(_PARTS)
    same = ("",) * len(names)
    return Dataset(
        x,
        x[:, :0],
        latency,
        np.full(count, ALONE_NOISE),
        np.arange(count) % len(names),
        names,
        same,
        same,
        same,
        {},
    )


def _seconds(work: Any) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


__all__ = ["SUITE", "ScoreSpeed", "TrialSpeed", "cases", "score_speed", "trial_speed"]
