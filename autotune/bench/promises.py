"""Do tuning jobs keep what they promise: the gain that a job reports, and the same change read again afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.bench import search
from autotune.bench.problem import Case
from autotune.bench.same_code import SameCode
from autotune.bench.suites import models, operators
from autotune.bench.tables import NOTHING, Table, duration, geometric_mean, ratio
from autotune.compiler import compile_in_detail
from autotune.files import scratch_folder
from autotune.frontends import zoo
from autotune.tuning.api import tune
from autotune.tuning.budget import Budget
from autotune.tuning.gain import Gain, gain_of
from autotune.tuning.measure.pool import ProcessPool
from autotune.tuning.report import Report

MODELS = ("mlp", "squeezenet", "shufflenet", "mobilenetv2")
AGAIN = 18
"""Processes that read a change again: more than a job has, as this is what it is held against."""
_NOTES = (
    "reported: what the job said of the whole model, with its 95 % interval; no change counts as 1.00, and what is "
    "unconfirmed is no promise",
    "again: the model compiled without and with the job's database afterwards, in fresh processes of other seeds",
    "covered: the reported interval holds the median of the second reading",
)
_SAME = (
    "every candidate is read with the machine code of its default, and the job does not know that: it finds only noise",
    "dispatches: what the job says of each; a gain would be wrong",
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


def promises(chosen: Sequence[Case], budget: Budget | str, threads: int, processes: int) -> Iterator[Promise]:
    """A job after the other, each with a database of its own. Raises what tuning raises."""
    for seed, case in enumerate(chosen):
        with scratch_folder("autotune-bench-") as folder:
            yield _promise(case, budget, threads, processes, seed, folder / "tuning.db")


def _promise(
    case: Case, budget: Budget | str, threads: int, processes: int, seed: int, database: Path
) -> Promise:
    graph = case.build().graph
    begin = time.perf_counter()
    report = tune(graph, budget=budget, database=database, threads=threads, seed=seed, quiet=True)
    seconds, again = time.perf_counter() - begin, None
    if report.gain is not None:
        untuned = compile_in_detail(graph, target="host", threads=threads).image
        tuned = compile_in_detail(graph, target="host", threads=threads, database=database).image
        again = gain_of(untuned, tuned, 1000 + seed, lambda: False, processes, patience_s=float("inf"))
    return Promise(f"{case.family} {case.name}", report.session_trials, seconds, report.gain, again)


@dataclass(frozen=True)
class Unchanged:
    """A job from nothing whose candidates all have their default's machine code: no gain that it reports is one."""

    name: str
    report: Report

    @property
    def claims(self) -> int:
        """How many dispatches it says to be faster than their defaults."""
        return sum(row.evidence.state.tuned for row in self.report.dispatches)

    @property
    def kept(self) -> bool:
        """Whether it reports no change, of dispatches and of the whole."""
        return not self.claims and self.report.speedup is None

    def to_json(self) -> dict[str, Any]:
        """The report, and whether it is right."""
        return {"name": self.name, "kept": self.kept, "claims": self.claims, "report": self.report.to_json()}


def unchanged(chosen: Sequence[Case], budget: Budget | str, threads: int) -> Iterator[Unchanged]:
    """A job after the other, each with a database of its own. Raises what tuning raises."""
    for seed, case in enumerate(chosen):
        with scratch_folder("autotune-bench-") as folder:
            report = tune(
                case.build().graph,
                budget=budget,
                database=folder / "tuning.db",
                threads=threads,
                seed=seed,
                quiet=True,
                measurer=lambda cores: SameCode(ProcessPool.started(cores)),
            )
            yield Unchanged(f"{case.family} {case.name}", report)


def unchanged_table(title: str, found: Sequence[Unchanged]) -> Table:
    """A row a job; the last one counts those that report no change."""
    rows = [
        (
            job.name,
            str(job.report.session_trials),
            f"{job.report.seconds:.0f} s",
            "; ".join(str(row.evidence) for row in job.report.dispatches),
            str(job.report.gain.ratio) if job.report.gain else NOTHING,
            "yes" if job.kept else "no",
        )
        for job in found
    ]
    rows.append(("all", "", "", "", "", f"{sum(job.kept for job in found)} of {len(found)}"))
    head = ("job", "trials", "time", "dispatches", "reported", "no change")
    return Table(title, head, tuple(rows), _SAME)


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


__all__ = [
    "AGAIN",
    "MODELS",
    "Promise",
    "Unchanged",
    "cases",
    "promises",
    "table",
    "unchanged",
    "unchanged_table",
]
