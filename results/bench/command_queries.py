"""``python -m results.bench queries``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared

if TYPE_CHECKING:
    from autotune.bench.tables import Table
    from results.bench.queries.filling import Filled
    from results.bench.queries.times import Times

ABOUT = (
    "How long a large tuning database takes to answer. Workloads, search spaces and schedules are those of zoo models "
    "and of the operator suite, for this machine and three others; measured numbers are made up. One workload in ten "
    "is left out: what is nearest is looked for. The workloads of the models' dispatches are asked for, by a process "
    "that has seen none of them, with an empty cache folder: first, where it says so again, and by the next process. "
    "Of the command the first run in the folder is not counted. Processor time is that of the asking process: beside "
    "others it says more than the clock, and a server's is not in it."
)

_COMMANDS = 2
"""So many of the models are asked for by the command."""
_MODELS = ("squeezenet", "resnet50", "densenet121", "inception_v2", "mobilenetv2", "operators")


@click.command(
    epilog="Example: python -m results.bench queries squeezenet resnet50 --runs 1000000 -o results/queries.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--runs", 1_000_000, "Runs in the database.")
@shared.number_option("--queries", 200, "Workloads that are asked for, of each kind of question.")
@click.option(
    "--db",
    "database",
    metavar="URL",
    help="An empty database to fill, on a server; else a file that is removed again.",
)
@shared.with_output
def command(
    output: shared.Output, names: Sequence[str], runs: int, queries: int, database: str | None
) -> None:
    """Milliseconds of lookups among a million runs; NAMES are zoo models, or `operators` for the suite of these."""
    from autotune.database.store import Database
    from autotune.files import scratch_folder
    from autotune.frontends import zoo
    from results.bench.queries import filling, material, timing

    shared.check_known(names, (*zoo.names(), material.OPERATORS), "model")
    models = list(material.models(names or _MODELS))
    with scratch_folder("autotune-bench-") as folder:
        where = database or str(folder / "queries.db")
        with Database(where) as store:
            filled = filling.fill(store, models, material.targets(), runs, seed=0, say=shared.say)
        found, home = [], folder / "home"
        for times in timing.timed(timing.questions(where, filled, models, queries, seed=0), home):
            shared.say(times.name)
            found.append(times)
        for model in [model for model in models if model.name.startswith("zoo:")][:_COMMANDS]:
            found.append(timing.command(where, model.name, home, count=10))
    tables = (_table(found), _filled(filled))
    output.finish(
        output.document("Queries of a large tuning database", ABOUT, tables, [asdict(t) for t in found])
    )


def _table(found: Sequence[Times]) -> Table:
    from autotune.bench.tables import NOTHING, Table, duration
    from results.bench.queries.times import quantile

    def cell(values: Sequence[float], share: float) -> str:
        return duration(1e9 * quantile(values, share)) if values else NOTHING

    rows = tuple(
        (
            times.name,
            str(len(times.wall)),
            *(cell(values, share) for values in (times.processor, times.wall) for share in (0.5, 0.99)),
        )
        for times in found
    )
    head = ("question", "times", "processor, median", "99th percentile", "clock, median", "99th percentile")
    return Table("Times", head, rows)


def _filled(filled: Filled) -> Table:
    from autotune.bench.tables import Table

    head = ("", "workloads and targets", "runs", "readings", "compared", "rows a second")
    rows = filled.runs + filled.readings + filled.comparisons
    counts = (
        len(filled.tuned),
        filled.runs,
        filled.readings,
        filled.comparisons,
        round(rows / filled.seconds),
    )
    return Table("The database", head, (("stored in bulk", *map(str, counts)),))


__all__ = ["command"]
