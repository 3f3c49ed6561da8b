"""Do tuning jobs keep what they promise: the gain that a job reports, and what it had forecast, beside the same change
read again afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.jobs.replay import FORECAST, EarlyForecast
from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites import models, operators
from autotune.bench.tables import NOTHING, duration, geometric_mean, number, plain, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import UsageError
from autotune.files import scratch_folder
from autotune.frontends import zoo
from autotune.tuning.api import tune
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.measure.gain import Gain, gain_of
from autotune.tuning.measure.pool import ProcessPool
from autotune.tuning.report.result import Report
from results.bench import search
from results.bench.same_code import SameCode

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage
    from autotune.tuning.jobs.forecast import Forecast

MODELS = ("mlp", "squeezenet", "shufflenet", "mobilenetv2")
SAME_TIME = 0.03
"""Winners of two jobs that differ by less are as good as each other."""


@dataclass(frozen=True)
class Promise:
    """One job from nothing. ``reported`` is None where the job had no time for it, ``again`` then too. ``forecast`` is
    what it expected at :data:`~autotune.bench.jobs.replay.FORECAST` of its budget."""

    name: str
    trials: int
    seconds: float
    reported: Gain | None
    again: Gain | None
    forecast: Forecast | None

    @property
    def kept(self) -> float | None:
        """The speed-up that was reported over the one read afterwards; None where none was promised."""
        if self.reported is None or self.again is None or self.reported.ratio.interval is None:
            return None
        return (self.reported.ratio.speedup or 1.0) * self.again.ratio.median

    @property
    def covered(self) -> bool | None:
        """Return whether the reported interval holds the second reading; None without an interval."""
        if self.reported is None or self.again is None or self.reported.ratio.interval is None:
            return None
        low, high = self.reported.ratio.interval
        return low <= self.again.ratio.median <= high

    @property
    def foreseen(self) -> bool | None:
        """Return whether the second reading is in the interval of the forecast; None where there is one of them."""
        if self.forecast is None or self.again is None:
            return None
        low, high = self.forecast.interval
        return low <= 1 / self.again.ratio.median - 1 <= high


def cases(names: Sequence[str]) -> list[BenchmarkCase]:
    """Zoo models and operators such as ``GMM:1,512,512,512``; ten of both without names."""
    if not names:
        return [*models.models(MODELS), *search.cases()]
    return [case for name in names for case in _named(name)]


def _named(name: str) -> list[BenchmarkCase]:
    return models.models([name]) if name.removeprefix("zoo:") in zoo.names() else operators.named(name)


@dataclass(frozen=True)
class Jobs:
    """Independent jobs of one case, and the first one's winner beside the second's, as before and after."""

    promises: tuple[Promise, ...]
    winners: Gain | None


def promises(
    chosen: Sequence[BenchmarkCase],
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
    case: BenchmarkCase
    threads: int
    seed: int
    folder: Path

    def promise(self, budget: Budget | str, processes: int) -> Promise:
        graph = self.case.build().graph
        if self.database.exists():
            raise UsageError(f"{self.database} exists; a job from nothing makes it: name another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        begin, early = time.perf_counter(), EarlyForecast()
        report = tune(
            graph,
            budget=budget,
            database=self.database,
            threads=self.threads,
            seed=self.seed,
            progress=early,
        )
        seconds, again = time.perf_counter() - begin, None
        if report.gain is not None:
            untuned = compile_in_detail(CompileRequest(graph, target="host", threads=self.threads)).image
            again = _read(untuned, self.winner(), self.seed, processes)
        trials = report.session_trials
        return Promise(self.name, trials, seconds, report.gain, again, early.forecast)

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
        """The number of dispatches that it says to be faster than their defaults."""
        return sum(row.evidence.state.tuned for row in self.report.dispatches)

    @property
    def kept(self) -> bool:
        """Return whether it reports no change, of dispatches and of the whole."""
        return not self.claims and self.report.speedup is None


def unchanged(chosen: Sequence[BenchmarkCase], budget: Budget | str, threads: int) -> Iterator[Unchanged]:
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


def _alike(gain: Gain) -> bool:
    return abs(gain.ratio.median - 1) < SAME_TIME


def measure(
    say: Say,
    names: Sequence[str],
    budget: str,
    processes: int,
    trials: int | None,
    same_code: bool,
    twice: bool,
    keep: Path | None,
    threads: Sequence[int],
) -> Iterator[Sequence[Record]]:
    """Run jobs from nothing, and measure again what they report; or what they report where there is nothing to find."""
    limit = Budget(budget) if trials is None else Budget(trials=trials)
    chosen = cases(names)
    for workers in threads:
        if same_code:
            for serial, job in enumerate(unchanged(chosen, limit, workers)):
                say(f"{job.name}: {job.claims} gains of dispatches; {job.report.gain}")
                yield [{"threads": workers, "report_number": serial, **record_of(job)}]
        else:
            for jobs in promises(chosen, limit, workers, processes, twice=twice, keep=keep):
                for promise in jobs.promises:
                    say(f"{promise.name}: {promise.reported}; again {promise.again}")
                yield [{"threads": workers, **record} for record in _records(jobs)]


def _records(jobs: Jobs) -> Iterator[Record]:
    for serial, promise in enumerate(jobs.promises):
        fields = {"name": promise.name, "trials": promise.trials, "seconds": promise.seconds}
        yield {
            "of": PROMISE,
            "job": serial,
            **fields,
            "untuned_ns": promise.reported and promise.reported.before.median_ns,
            "reported": promise.reported,
            "again": promise.again,
            "kept": promise.kept,
            "covered": promise.covered,
            "forecast": promise.forecast and promise.forecast.to_json(),
            "foreseen": promise.foreseen,
        }
    if len(jobs.promises) > 1:
        gain = jobs.winners
        yield {
            "of": WINNERS,
            "name": jobs.promises[0].name,
            "first_ns": gain and gain.before.median_ns,
            "second_ns": gain and gain.after.median_ns,
            "winners": gain,
            "alike": gain and _alike(gain),
        }


def record_of(job: Unchanged) -> Record:
    """Return what a job of unchanged code reports, and whether it is right."""
    return {
        "of": SAME,
        "name": job.name,
        "trials": job.report.session_trials,
        "seconds": job.report.seconds,
        "dispatches": "; ".join(str(row.evidence) for row in job.report.dispatches),
        "reported": job.report.gain,
        "kept": job.kept,
        "claims": job.claims,
        "report": job.report.to_json(),
    }


PROMISE, WINNERS, SAME = "promise", "winners", "same code"
"""The kind of a record."""
ABOUT = (
    "The gain that a tuning job reports, beside the same change read again when the job is over: a short job of each "
    "model and operator, from nothing."
)
ABOUT_SAME = (
    "The gain that tuning jobs report where there is none to find: a short job of each, from nothing."
)

_NOTES = (
    "reported: what the job said of the whole model, with its 95 % interval; no change counts as 1.00, and what is "
    "unconfirmed is no promise",
    "again: the model compiled without and with the job's database afterwards, in fresh processes of other seeds",
    "covered: the reported interval holds the median of the second reading",
    f"forecast: the gain that the job expected at {100 * FORECAST:.0f} % of its budget; foreseen: the second reading "
    "is in there, which is to be so in 90 %",
)


def _ratio(gain: Gain | None) -> str:
    return NOTHING if gain is None else str(gain.ratio)


def _gains(forecast: Record | None) -> str:
    if forecast is None:
        return NOTHING
    low, high = forecast["interval"]
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def _yes(value: bool | str | None) -> str:
    return plain({True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value)


def _count(values: Sequence[bool | None]) -> str:
    judged = [value for value in values if value is not None]
    return f"{sum(judged)} of {len(judged)}"


_JOB = (
    Column("job", "name"),
    Column("trials", "trials"),
    Column("time", "seconds", number(0, " s")),
)

EXPERIMENT = Experiment(
    title="Promises",
    about=lambda given: ABOUT_SAME if given["same_code"] else ABOUT,
    summary="""Check whether gains are what jobs say; NAMES are zoo models and operators (ten of both by default).

    With --same-code there is nothing to gain, in operators of one algorithm: a name may be given several times.
    With --twice each has two jobs, and their winners are compared.""",
    example="squeezenet GMM:1,512,512,512 --budget 60s",
    options=(
        options.words(),
        click.Option(["--budget"], default="45s", show_default=True, metavar="TIME", help="Of each job."),
        options.number("--processes", 18, "Fresh processes that read each change again.", least=6),
        options.number("--trials", None, "Of each job, instead of a time budget."),
        click.Option(
            ["--same-code"],
            is_flag=True,
            help="Give candidates their default's machine code: is a gain reported?",
        ),
        click.Option(
            ["--twice"], is_flag=True, help="Two independent jobs of each: are their winners as fast?"
        ),
        options.folder("--keep", "Keep the databases of the jobs in this folder."),
        options.threads("2"),
    ),
    measure=measure,
    views=(
        TableView(
            "Gains of jobs, {threads}",
            ("name", "job"),
            (
                *_JOB,
                Column("untuned", "untuned_ns", duration),
                Column("reported", "reported", _ratio),
                Column("again", "again", _ratio),
                Column("reported ÷ again", "kept", lambda kept: ratio(kept, 3), geometric_mean),
                Column("covered", "covered", _yes, _count),
                Column("forecast", "forecast", _gains),
                Column("foreseen", "foreseen", _yes, _count),
            ),
            ("threads",),
            of=PROMISE,
            last="mean",
            notes=_NOTES,
        ),
        TableView(
            "Two jobs of each, {threads}",
            ("name",),
            (
                Column("jobs of", "name"),
                Column("first winner", "first_ns", duration),
                Column("second winner", "second_ns", duration),
                Column("first ÷ second", "winners", _ratio),
                Column("within 3 %", "alike", _yes, _count),
            ),
            ("threads",),
            of=WINNERS,
            last="all",
            notes=(
                "two independent jobs, each from nothing: the model as the one and as the other has it tuned, "
                "interleaved in fresh processes",
            ),
        ),
        TableView(
            "The same code, {threads}",
            ("name", "report_number"),
            (
                *_JOB,
                Column("dispatches", "dispatches"),
                Column("reported", "reported", _ratio),
                Column("no change", "kept", _yes, _count),
            ),
            ("threads",),
            of=SAME,
            last="all",
            notes=(
                "every candidate is read with the machine code of its default, and the job does not know that: it "
                "finds only noise",
                "dispatches: what the job says of each; a gain would be wrong",
            ),
        ),
    ),
)

__all__ = [
    "EXPERIMENT",
    "MODELS",
    "Jobs",
    "Promise",
    "Unchanged",
    "cases",
    "promises",
    "record_of",
    "unchanged",
]
