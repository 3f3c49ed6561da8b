"""The speed of the search itself: measured trials, and candidates scored, a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites import operators
from autotune.bench.tables import duration, number
from autotune.compiler import distinct_workloads, divide
from autotune.database.inside import ALONE_NOISE
from autotune.files import scratch_folder
from autotune.suggest import counted
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.jobs.budget import Budget
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


_TRIALS, _SCORES = "trials", "scores"
"""The kind of a record: a tuning job from nothing, or candidates of one workload scored on one core."""


def cases(families: Sequence[str] = ()) -> list[BenchmarkCase]:
    """The operators of the suite, of some families or of all."""
    return [operators.case(f, p) for f, p in SUITE if not families or f in families]


def trial_speed(case: BenchmarkCase, trials: int, threads: int, folder: Path) -> Record:
    """Tune an operator from nothing, in a database of its own. Raises what tuning raises."""
    database = folder / f"{case.family}-{threads}.db"
    begin = time.perf_counter()
    report = tune(
        case.build().graph, budget=Budget(trials=trials), database=database, threads=threads, quiet=True
    )
    seconds = time.perf_counter() - begin
    gain = report.gain
    return {
        "of": _TRIALS,
        "operator": f"{case.family} {case.name}",
        "threads": threads,
        "trials": report.session_trials,
        "seconds": seconds,
        "default_ns": gain and gain.before.median_ns,
        "best_ns": gain and gain.after.median_ns,
        "gain": gain and str(gain.ratio),
        "outcomes": dict(report.outcomes),
    }


def score_speed(case: BenchmarkCase, candidates: int, rounds: int = 3) -> Record:
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
    return {
        "of": _SCORES,
        "operator": f"{case.family} {case.name}",
        "candidates": len(population),
        "features_s": min(features_s),
        "score_s": min(score_s),
    }


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


def measure(
    say: Say, names: Sequence[str], trials: int, candidates: int, threads: Sequence[int]
) -> Iterator[Sequence[Record]]:
    """Tune each operator from nothing, then score candidates of each."""
    options.check_known(names, (family for family, _ in SUITE), "operator")
    with scratch_folder("autotune-bench-") as folder:
        for count in threads:
            for case in cases(names):
                say(f"{case.family} {case.name}: {trials} trials, {counted(count, 'thread')}")
                yield [trial_speed(case, trials, count, folder)]
    for case in cases(names):
        say(f"{case.family} {case.name}: {candidates} candidates")
        yield [score_speed(case, candidates)]


ABOUT = (
    "How fast the search is. A trial is one measured candidate; its time includes starting the job, proposing, "
    "building, checking against the reference and timing. Scoring a candidate is computing its features and "
    "predicting its rank, on one core."
)


def _sum(column: str) -> Callable[[FrameRows], float]:
    return lambda rows: sum(rows.all(column))


def _outcomes(rows: FrameRows) -> str:
    if len(rows) > 1:
        return ""
    return ", ".join(f"{count} {name}" for name, count in sorted(rows.get("outcomes").items()))


def _one(column: str) -> Callable[[FrameRows], Any]:
    """Return what reads a column of one operator, and nothing of all together."""
    return lambda rows: rows.get(column) if len(rows) == 1 else None


def _thousands(rate: float) -> str:
    return f"{rate:,.0f}"


EXPERIMENT = Experiment(
    title="Search speed",
    about=ABOUT,
    summary="""Measure trials a second of tuning jobs, and candidates scored a second; NAMES are operator families.

    Another tuner's trials beside ours: autotune bench operators --peers metaschedule.""",
    example="GMM C2D --trials 128 --threads 2 -o results/search.md",
    options=(
        options.words(),
        options.number("--trials", 64, "Of each operator."),
        options.number("--candidates", 20_000, "Candidates to score."),
        options.threads("2"),
    ),
    measure=measure,
    views=(
        TableView(
            "Trials, {threads}",
            ("operator",),
            (
                Column("operator", "operator"),
                Column("trials", _sum("trials")),
                Column("time", _sum("seconds"), number(1, " s")),
                Column("trials/s", over(_sum("trials"), _sum("seconds")), number(1)),
                Column("default", _one("default_ns"), duration),
                Column("tuned", _one("best_ns"), duration),
                Column("speed-up", _one("gain")),
                Column("outcomes", _outcomes),
            ),
            ("threads",),
            of=_TRIALS,
            overall="all",
        ),
        TableView(
            "Candidates scored on one core",
            ("operator",),
            (
                Column("operator", "operator"),
                Column("candidates", _sum("candidates")),
                Column("features only, a second", over(_sum("candidates"), _sum("features_s")), _thousands),
                Column("scored a second", over(_sum("candidates"), _sum("score_s")), _thousands),
            ),
            of=_SCORES,
            overall="all",
        ),
    ),
)

__all__ = ["EXPERIMENT", "SUITE", "cases", "score_speed", "trial_speed"]
