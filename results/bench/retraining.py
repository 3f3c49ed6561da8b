"""A year of retraining in miniature, and many retrainings of resampled workloads: do promotions hold elsewhere?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, TableView
from autotune.bench.replay.recording import read_all
from autotune.bench.tables import NOTHING, number
from autotune.database import Database
from autotune.database.training import training_table
from autotune.errors import UsageError
from autotune.hardware import usable_cores
from cost_models import dataset, features, folds
from cost_models.dataset import Dataset
from cost_models.evaluate import judge
from cost_models.feature_cache import FeatureCache
from cost_models.gate import WORKLOADS
from cost_models.interval import ConfidenceInterval
from cost_models.manifest import RankerManifest
from cost_models.ranker import Ranker, Say, analytic_scores
from cost_models.registry import Registry
from cost_models.retrain import RetrainReport, retrain
from cost_models.stored import KIND
from results.bench.recorded_runs import RecordedRuns

if TYPE_CHECKING:
    from pandas import DataFrame

MONTHS = 10
POISONED, USELESS = 5, 6
"""The months after which a poisoned batch is tried, and a useless one."""
SERVING, RETRAINED = 0.2, (0.4, 0.6)
"""Shares of the workloads that the first model of a random order learns from, and those that come after it; the rest
judges."""


class Earlier(StrEnum):
    """The training data of the model in use, before it is retrained."""

    FEW = "few workloads"
    """As much as a young database has: there is little to gain over it, and little should be promoted."""
    SPOILT = "spoilt readings"
    """The same runs with their latencies shuffled within each workload, as if read on a machine that was never at rest:
    a model that is worse than none, so that there is something to gain and promotions can be counted."""


@dataclass(frozen=True)
class Effort:
    """``rounds`` trees a member, on so many ``threads``; features are kept in ``cache``."""

    rounds: int
    threads: int
    cache: FeatureCache


@dataclass(frozen=True)
class Step:
    """A retraining: of what, how it was decided, and what was in use afterwards.

    ``unseen``: where the new model was promoted, its gain, as the gate measures it, over what was in use before, on
    workloads that neither has seen.
    """

    batch: str
    report: RetrainReport
    in_use: str | None
    unseen: ConfidenceInterval | None = None


@dataclass(frozen=True)
class Year:
    """The retrainings of a year, and what was in use after each rollback at its end."""

    steps: tuple[Step, ...]
    manifests: tuple[str, ...]
    rollbacks: tuple[str | None, ...] = field(default=())


def year(runs: RecordedRuns, effort: Effort, seed: int, say: Say) -> Year:
    """Add the runs to a database month by month, retrain after each, and roll back what was promoted at the end.

    Workloads arrive in the first half of the year, each with its default; a fifth of them never does, and judges.
    After one month the runs of the rest of the year are added to a copy of the database with their latencies shuffled
    within each workload, after another all runs so far are added again.
    """
    rng = np.random.default_rng(seed)
    workloads = rng.permutation(len(runs))
    judging, known = np.split(workloads, [len(runs) // 5])
    month = runs.dealt(known, MONTHS, rng)
    unseen = dataset.build(runs.table(judging), effort.cache)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autotune-year-")))
        registry = Registry(folder / "cost_models")
        database = stack.enter_context(Database(folder / "tuning.db"))
        steps = []

        def step(batch: str, table: DataFrame) -> None:
            say(f"{batch}: {len(table)} runs")
            steps.append(_step(batch, table, registry, unseen, effort))

        for number in range(MONTHS):
            runs.store(database, month == number)
            table = training_table(database)
            step(f"month {number + 1}", table)
            if number + 1 == POISONED:
                step("  poisoned", runs.joined(table, runs.shuffled(month > number, rng)))
            if number + 1 == USELESS:
                step("  known runs again", runs.joined(table, table.assign(created=table["created"] + 1)))
        versions = registry.versions()
        told = tuple(f"{name}: {registry.manifest(name).reason}" for name in versions)
        return Year(tuple(steps), told, tuple(_rolled_back(registry)))


def _step(batch: str, table: DataFrame, registry: Registry, unseen: Dataset, effort: Effort) -> Step:
    before = _ranker(registry)
    report = retrain(
        {"tuning.db": table},
        registry,
        rounds=effort.rounds,
        threads=effort.threads,
        cache=effort.cache,
    )
    gain = _gain(_ranker(registry), before, unseen) if report.replaced else None
    return Step(batch, report, registry.current(), gain)


def _ranker(registry: Registry) -> Ranker | None:
    found = registry.load()
    return found.ranker if found else None


def _gain(new: Ranker | None, old: Ranker | None, unseen: Dataset) -> ConfidenceInterval:
    """Return the mean speed-up over workloads of the best of the first candidates by ``new`` over that by ``old``."""
    valid = unseen.take(unseen.valid)
    first, second = (
        judge(analytic_scores(valid.x) if ranker is None else ranker.predict(valid.x), valid).of("batch")
        for ranker in (new, old)
    )
    return ConfidenceInterval.of(first - second).map(np.expm1)


def _rolled_back(registry: Registry) -> Iterator[str | None]:
    """Yield what is in use after each rollback, until nothing is."""
    while registry.current() is not None:
        yield registry.rollback()


@dataclass(frozen=True)
class Resampled:
    """A retraining with a ``share`` of the workloads, in a random order of these, of a model that was ``earlier``."""

    earlier: Earlier
    share: float
    step: Step


def resampled(runs: RecordedRuns, effort: Effort, count: int, seed: int, say: Say) -> list[Resampled]:
    """Retrainings for ``count`` random orders of the workloads.

    In each a model of the first workloads is in use, whatever it is worth, and is retrained with more of them, from the
    same state each time; those that none has learnt from judge what was promoted.
    """
    found: list[Resampled] = []
    rng = np.random.default_rng(seed)
    for done in range(count):
        found += _in_order(runs, effort, rng)
        promoted = sum(one.step.report.replaced for one in found)
        say(f"{done + 1} of {count} orders: {promoted} of {len(found)} retrainings promoted")
    return found


def _in_order(runs: RecordedRuns, effort: Effort, rng: np.random.Generator) -> list[Resampled]:
    """The retrainings of one random order."""
    order = rng.permutation(len(runs))
    parts = {share: order[: round(share * len(runs))] for share in (SERVING, *RETRAINED)}
    unseen = dataset.build(runs.table(np.setdiff1d(order, parts[RETRAINED[-1]])), effort.cache)
    first = runs.table(parts[SERVING])
    tables = {Earlier.FEW: first, Earlier.SPOILT: runs.shuffled_of(parts[SERVING], rng)}
    found = []
    for earlier, table in tables.items():
        with tempfile.TemporaryDirectory(prefix="autotune-resampled-") as folder:
            registry = Registry(Path(folder))
            serving = _put_in_use(registry, dataset.build(table, effort.cache), effort)
            for share in RETRAINED:
                registry.use(serving)
                step = _step(f"{share:.0%}", runs.table(parts[share]), registry, unseen, effort)
                found.append(Resampled(earlier, share, step))
    return found


def _put_in_use(registry: Registry, data: Dataset, effort: Effort) -> str:
    """Train a model that nobody judges; returns its name."""
    dealt = folds.by_workload(data.workloads, "")
    ranker = Ranker.fit(data, dealt, rounds=effort.rounds, threads=effort.threads)
    name = registry.add(ranker, RankerManifest(KIND, features.schema(), {}))
    registry.use(name)
    return name


def measure(
    say: Say, folders: Sequence[Path], runs: int, orders: int, rounds: int, seed: int
) -> Iterator[Sequence[Record]]:
    """Yield the retrainings of a year, then those of resampled workloads."""
    recordings = [recording for folder in folders for recording in read_all(folder)]
    recorded = RecordedRuns(recordings, runs)
    if len(recorded) < 2 * WORKLOADS:
        raise UsageError(
            f"{len(recorded)} recorded workloads are too few: the gate needs {WORKLOADS} to promote a model"
        )
    effort = Effort(rounds, usable_cores(), FeatureCache.of_user())
    whole = year(recorded, effort, seed, say)
    told = {"manifests": whole.manifests, "rollbacks": whole.rollbacks}
    yield [{"of": STEP, **told, **_record(step)} for step in whole.steps]
    yield [
        {"of": RESAMPLED, "earlier": one.earlier.value, "share": one.share, **_record(one.step)}
        for one in resampled(recorded, effort, orders, seed, say)
    ]


def _record(step: Step) -> Record:
    report = step.report
    judged = {
        f"top1_{name}": one.interval("top1").mean if (one := report.judged.get(name)) else None
        for name in ("new", "in use", "analytic")
    }
    return {
        "batch": step.batch,
        "in_use": step.in_use,
        "unseen": step.unseen,
        "replaced": report.replaced,
        "gain": report.gain,
        **judged,
        **{name: value for name, value in report.to_dict().items() if name not in ("gain", "replaced")},
    }


STEP, RESAMPLED = "step", "resampled"
"""The kind of a record."""
ABOUT = (
    "Recorded runs go into a database month by month, and the cost model is retrained after each, by the same path as "
    "`autotune retrain`. After one month the runs of the rest of the year are tried with their latencies shuffled "
    "within each workload, after another all runs so far once more: neither may be promoted. Gain: how much faster the "
    "best of the first k candidates of the new model is than of what was in use, the mean over k up to 8 and over "
    "workloads; held out as the gate measures it, with its 99 % interval; unseen on workloads that no model has learnt "
    "from (a fifth in the year, 40 % of each resampled order), with its 95 % interval. Resampled: a model of a fifth "
    "of the workloads is in use, whatever it is worth, and is retrained with more of them; it has learnt from their "
    "readings (few workloads: a young database), or from the same ones shuffled within each workload (spoilt readings: "
    "a machine never at rest), so that there is something to gain. Worse: the mean gain on unseen workloads is below "
    "zero, by however little; clearly: its whole interval is."
)


def _percents(found: ConfidenceInterval | None) -> str:
    if found is None:
        return NOTHING
    return f"{100 * found.mean:+.1f} % ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _year_notes(rows: FrameRows) -> Iterator[str]:
    yield from rows.get("manifests")
    if rows.get("rollbacks"):
        names = (name or "the analytic model alone" for name in rows.get("rollbacks"))
        yield f"rolled back to {', '.join(names)}"


def _learns(rows: FrameRows) -> str:
    shares = set(rows.all("share"))
    return f"{shares.pop():.0%} of the workloads" if len(shares) == 1 else ""


def _promoted(rows: FrameRows, holds: Callable[[ConfidenceInterval], bool] = lambda _: True) -> int:
    """Return how many promotions there were for whose gain on unseen workloads something holds."""
    return sum(map(holds, rows.all("unseen")))


def _gains(place: Callable[[int], int]) -> Callable[[FrameRows], float | None]:
    def read(rows: FrameRows) -> float | None:
        gains = sorted(one.mean for one in rows.all("unseen"))
        return gains[place(len(gains))] if gains else None

    return read


def _signed(gain: float | None) -> str:
    return NOTHING if gain is None else f"{100 * gain:+.1f} %"


EXPERIMENT = Experiment(
    title="Retraining, month by month and resampled",
    about=ABOUT,
    summary="Retrain the cost model month by month and with resampled workloads: which promotions hold on unseen ones?",
    example="--recordings results/replay --orders 50",
    options=(
        options.folders(
            "--recordings",
            "folders",
            "Of `autotune replay candidates`, one folder or several.",
            required=True,
        ),
        options.number("--runs", 96, "Of each workload at most.", least=8),
        options.number(
            "--orders", 50, "Random orders of the workloads, each with four retrainings.", least=0
        ),
        options.number("--rounds", 60, "Trees of each member."),
        options.seed(),
    ),
    measure=measure,
    views=(
        TableView(
            "A year in miniature",
            ("batch",),
            (
                Column("batch", "batch"),
                Column("runs", "runs"),
                Column("workloads", "workloads"),
                Column("new model", lambda rows: "promoted" if rows.get("replaced") else "refused"),
                Column("gain held out", "gain", _percents),
                Column("gain unseen", "unseen", _percents),
                Column("top-1 new", "top1_new", number(3)),
                Column("in use", "top1_in use", number(3)),
                Column("analytic", "top1_analytic", number(3)),
                Column("in use after", lambda rows: rows.get("in_use") or "analytic"),
            ),
            of=STEP,
            notes=_year_notes,
        ),
        TableView(
            "Resampled",
            ("earlier", "share"),
            (
                Column("in use learnt from", "earlier"),
                Column("learns from", _learns),
                Column("retrainings", len),
                Column("promoted", _promoted),
                Column("worse on unseen", lambda rows: _promoted(rows, lambda gain: gain.mean < 0)),
                Column("clearly worse", lambda rows: _promoted(rows, lambda gain: gain.high < 0)),
                Column("gain on unseen, least", _gains(lambda count: 0), _signed),
                Column("median", _gains(lambda count: count // 2), _signed),
            ),
            of=RESAMPLED,
            overall="all",
        ),
    ),
)

__all__ = [
    "EXPERIMENT",
    "MONTHS",
    "RETRAINED",
    "SERVING",
    "Earlier",
    "Effort",
    "Resampled",
    "Step",
    "Year",
    "resampled",
    "year",
]
