"""Questions to a large tuning database as an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import click

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import duration
from autotune.database.store import Database
from autotune.files import scratch_folder
from autotune.frontends import zoo
from results.bench.queries import filling, material, timing
from results.bench.queries.times import quantile

_COMMANDS = 2
"""So many of the models are asked for by the command."""
_MODELS = ("squeezenet", "resnet50", "densenet121", "inception_v2", "mobilenetv2", "operators")


def measure(
    say: Say, names: Sequence[str], runs: int, queries: int, database: str | None
) -> Iterator[Sequence[Record]]:
    """Yield a record of the database that is filled, then one for each question."""
    options.check_known(names, (*zoo.names(), material.OPERATORS), "model")
    models = list(material.models(names or _MODELS))
    with scratch_folder("autotune-bench-") as folder:
        where = database or str(folder / "queries.db")
        with Database(where) as store:
            filled = filling.fill(store, models, material.targets(), runs, seed=0, say=say)
        yield [_filled(filled)]
        home = folder / "home"
        for times in timing.timed(timing.questions(where, filled, models, queries, seed=0), home):
            say(times.name)
            yield [asdict(times)]
        for model in [model for model in models if model.name.startswith("zoo:")][:_COMMANDS]:
            yield [asdict(timing.command(where, model.name, home, count=10))]


def _filled(filled: filling.Filled) -> Record:
    rows = filled.runs + filled.readings + filled.comparisons
    return {
        "how": "stored in bulk",
        "tuned": len(filled.tuned),
        "runs": filled.runs,
        "readings": filled.readings,
        "comparisons": filled.comparisons,
        "rate": round(rows / filled.seconds),
    }


def _quantile(column: str, share: float) -> Callable[[FrameRows], float | None]:
    def read(rows: FrameRows) -> float | None:
        return 1e9 * quantile(rows.get(column), share) if rows.get(column) else None

    return read


ABOUT = (
    "How long a large tuning database takes to answer. Workloads, search spaces and schedules are those of zoo models "
    "and of the operator suite, for this machine and three others; measured numbers are made up. One workload in ten "
    "is left out: what is nearest is looked for. The workloads of the models' dispatches are asked for, by a process "
    "that has seen none of them, with an empty cache folder: first, where it says so again, and by the next process. "
    "Of the command the first run in the folder is not counted. Processor time is that of the asking process: beside "
    "others it says more than the clock, and a server's is not in it."
)

EXPERIMENT = Experiment(
    title="Queries of a large tuning database",
    about=ABOUT,
    summary="Measure milliseconds of lookups among a million runs; NAMES are zoo models, or `operators` for the suite.",
    example="squeezenet resnet50 --runs 1000000 -o results/queries.md",
    options=(
        options.words(),
        options.number("--runs", 1_000_000, "Runs in the database."),
        options.number("--queries", 200, "Workloads that are asked for, of each kind of question."),
        click.Option(
            ["--db", "database"],
            metavar="URL",
            help="An empty database to fill, on a server; else a file that is removed again.",
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "Times",
            ("name",),
            (
                Column("question", "name"),
                Column("times", lambda rows: len(rows.get("wall"))),
                Column("processor, median", _quantile("processor", 0.5), duration),
                Column("99th percentile", _quantile("processor", 0.99), duration),
                Column("clock, median", _quantile("wall", 0.5), duration),
                Column("99th percentile", _quantile("wall", 0.99), duration),
            ),
            where=lambda rows: rows.get("name"),
        ),
        TableView(
            "The database",
            ("how",),
            (
                Column("", "how"),
                Column("workloads and targets", "tuned"),
                Column("runs", "runs"),
                Column("readings", "readings"),
                Column("compared", "comparisons"),
                Column("rows a second", "rate"),
            ),
            where=lambda rows: rows.get("how"),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
