"""Do tuning jobs keep what they promise: the gain that a job reports, and the same change read again afterwards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.bench import search
from autotune.bench.problem import Case
from autotune.bench.suites import models, operators
from autotune.bench.tables import NOTHING, Table, duration, geometric_mean, ratio
from autotune.compiler import compile_in_detail
from autotune.frontends import zoo
from autotune.tuning.api import tune
from autotune.tuning.gain import Gain, gain_of

MODELS = ("mlp", "squeezenet", "shufflenet", "mobilenetv2")
AGAIN = 18
"""Processes that read a change again: more than a job has, as this is what it is held against."""
_NOTES = (
    "reported: what the job said of the whole model, with its 95 % interval; no change counts as 1.00, and what is "
    "unconfirmed is no promise",
    "again: the model compiled without and with the job's database afterwards, in fresh processes of other seeds",
    "covered: the reported interval holds the median of the second reading",
)


@dataclass(frozen=True)
class Promise:
    """One job from nothing. ``reported`` is None where the job had no time for it, ``again`` then too."""

    name: str
    trials: int
    seconds: float
    reported: Gain | None
    again: Gain | None

    @property
    def kept(self) -> float | None:
        """The speed-up that was reported over the one read afterwards; None where none was promised."""
        if self.reported is None or self.again is None or self.reported.ratio.interval is None:
            return None
        return (self.reported.ratio.speedup or 1.0) * self.again.ratio.median

    @property
    def covered(self) -> bool | None:
        """Whether the reported interval holds the second reading; None without an interval."""
        if self.reported is None or self.again is None or self.reported.ratio.interval is None:
            return None
        low, high = self.reported.ratio.interval
        return low <= self.again.ratio.median <= high

    def to_json(self) -> dict[str, Any]:
        """All of it, latencies in ns."""
        return {**asdict(self), "kept": self.kept, "covered": self.covered}


def cases(names: Sequence[str]) -> list[Case]:
    """Zoo models and operators such as ``GMM:1,512,512,512``; ten of both without names."""
    if not names:
        return [*models.models(MODELS), *search.cases()]
    return [case for name in names for case in _named(name)]


def _named(name: str) -> list[Case]:
    return models.models([name]) if name.removeprefix("zoo:") in zoo.names() else operators.named(name)


def promises(chosen: Sequence[Case], budget: str, threads: int, processes: int) -> Iterator[Promise]:
    """A job after the other, each with a database of its own. Raises what tuning raises."""
    for seed, case in enumerate(chosen):
        with tempfile.TemporaryDirectory(prefix="autotune-bench-") as folder:
            yield _promise(case, budget, threads, processes, seed, Path(folder) / "tuning.db")


def _promise(case: Case, budget: str, threads: int, processes: int, seed: int, database: Path) -> Promise:
    graph = case.build().graph
    begin = time.perf_counter()
    report = tune(graph, budget=budget, database=database, threads=threads, seed=seed, quiet=True)
    seconds, again = time.perf_counter() - begin, None
    if report.gain is not None:
        untuned = compile_in_detail(graph, target="host", threads=threads).image
        tuned = compile_in_detail(graph, target="host", threads=threads, database=database).image
        again = gain_of(untuned, tuned, 1000 + seed, lambda: False, processes, patience_s=float("inf"))
    return Promise(f"{case.family} {case.name}", report.session_trials, seconds, report.gain, again)


def table(title: str, found: Sequence[Promise]) -> Table:
    """A row a job; the last one has the mean and the share of intervals that cover."""
    rows = [
        (
            promise.name,
            str(promise.trials),
            f"{promise.seconds:.0f} s",
            duration(promise.reported.before.median_ns) if promise.reported else NOTHING,
            str(promise.reported.ratio) if promise.reported else NOTHING,
            str(promise.again.ratio) if promise.again else NOTHING,
            ratio(promise.kept, 3),
            NOTHING if promise.covered is None else "yes" if promise.covered else "no",
        )
        for promise in found
    ]
    judged = [promise.covered for promise in found if promise.covered is not None]
    share = f"{sum(judged)} of {len(judged)}"
    mean = ratio(geometric_mean(promise.kept for promise in found), 3)
    rows.append(("mean", "", "", "", "", "", mean, share))
    head = ("job", "trials", "time", "untuned", "reported", "again", "reported ÷ again", "covered")
    return Table(title, head, tuple(rows), _NOTES)


__all__ = ["AGAIN", "MODELS", "Promise", "cases", "promises", "table"]
