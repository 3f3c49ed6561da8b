"""Do tuning jobs keep what they promise: the gain that a job reports, and the same change read again afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.bench.problem import Case
from autotune.bench.suites import models, operators
from autotune.bench.tables import NOTHING, Table, duration, geometric_mean, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import UsageError
from autotune.files import scratch_folder
from autotune.frontends import zoo
from autotune.tuning.api import tune
from autotune.tuning.budget import Budget
from autotune.tuning.gain import Gain, gain_of
from autotune.tuning.measure.pool import ProcessPool
from autotune.tuning.report import Report
from results.bench import search
from results.bench.same_code import SameCode

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage

MODELS = ("mlp", "squeezenet", "shufflenet", "mobilenetv2")
SAME_TIME = 0.03
"""Winners of two jobs that differ by less are as good as each other."""
AGAIN = 18
"""Processes that read a change again: more than a job has, as this is what it is held against."""
_NOTES = (
    "reported: what the job said of the whole model, with its 95 % interval; no change counts as 1.00, and what is "
    "unconfirmed is no promise",
    "again: the model compiled without and with the job's database afterwards, in fresh processes of other seeds",
    "covered: the reported interval holds the median of the second reading",
)
_WINNERS = (
    "two independent jobs, each from nothing: the model as the one and as the other has it tuned, in turns in fresh "
    "processes",
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


@dataclass(frozen=True)
class Jobs:
    """Independent jobs of one case, and the first one's winner beside the second's, as before and after."""

    promises: tuple[Promise, ...]
    winners: Gain | None

    def to_json(self) -> dict[str, Any]:
        """All of it, latencies in ns."""
        winners = self.winners.to_json() if self.winners else None
        return {"jobs": [promise.to_json() for promise in self.promises], "winners": winners}


def promises(
    chosen: Sequence[Case],
    budget: Budget | str,
    threads: int,
    processes: int,
    *,
    twice: bool = False,
    keep: Path | None = None,
) -> Iterator[Jobs]:
    """A job of each after the other, or two of each, every one with a new database, which ``keep`` receives.

    Raises what tuning raises, and UsageError where ``keep`` has such a database.
    """
    seeds = count()
    for case in chosen:
        with nullcontext(keep) if keep else scratch_folder("autotune-bench-") as folder:
            jobs = [_Job(case, threads, next(seeds), folder) for _ in range(1 + twice)]
            made = tuple(job.promise(budget, processes) for job in jobs)
            yield Jobs(made, _between(jobs, processes) if twice else None)


@dataclass(frozen=True)
class _Job:
    case: Case
    threads: int
    seed: int
    folder: Path

    def promise(self, budget: Budget | str, processes: int) -> Promise:
        graph = self.case.build().graph
        if self.database.exists():
            raise UsageError(f"{self.database} exists; a job from nothing makes it: name another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        report = tune(
            graph, budget=budget, database=self.database, threads=self.threads, seed=self.seed, quiet=True
        )
        seconds, again = time.perf_counter() - begin, None
        if report.gain is not None:
            untuned = compile_in_detail(CompileRequest(graph, target="host", threads=self.threads)).image
            again = _read(untuned, self.winner(), self.seed, processes)
        return Promise(self.name, report.session_trials, seconds, report.gain, again)

    @property
    def name(self) -> str:
        return f"{self.case.family} {self.case.name}"

    @property
    def database(self) -> Path:
        return self.folder / f"{re.sub('[^a-z0-9]+', '-', self.name.lower()).strip('-')}-{self.seed}.db"

    def winner(self) -> ModuleImage:
        """The model as its database has it compiled."""
        graph = self.case.build().graph
        return compile_in_detail(
            CompileRequest(graph, target="host", threads=self.threads, database=self.database)
        ).image


def _between(jobs: Sequence[_Job], processes: int) -> Gain | None:
    first, second = (job.winner() for job in jobs)
    return _read(first, second, jobs[0].seed, processes)


def _read(before: ModuleImage, after: ModuleImage, seed: int, processes: int) -> Gain | None:
    return gain_of(before, after, 1000 + seed, lambda: False, processes, patience_s=float("inf"))


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


def winners_table(title: str, found: Sequence[Jobs]) -> Table:
    """A row for each pair of jobs; the last one counts those whose winners take the same time within 3 %."""
    pairs = [(jobs.promises[0].name, jobs.winners) for jobs in found]
    rows = [
        (
            name,
            duration(gain.before.median_ns) if gain else NOTHING,
            duration(gain.after.median_ns) if gain else NOTHING,
            str(gain.ratio) if gain else NOTHING,
            NOTHING if gain is None else "yes" if _alike(gain) else "no",
        )
        for name, gain in pairs
    ]
    rows.append(
        ("all", "", "", "", f"{sum(gain is not None and _alike(gain) for _, gain in pairs)} of {len(pairs)}")
    )
    head = ("jobs of", "first winner", "second winner", "first ÷ second", "within 3 %")
    return Table(title, head, tuple(rows), _WINNERS)


def _alike(gain: Gain) -> bool:
    return abs(gain.ratio.median - 1) < SAME_TIME


__all__ = [
    "AGAIN",
    "MODELS",
    "Jobs",
    "Promise",
    "Unchanged",
    "cases",
    "promises",
    "table",
    "unchanged",
    "unchanged_table",
    "winners_table",
]
