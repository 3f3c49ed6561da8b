"""``autotune bench predictions``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.predictions import Sample
    from autotune.bench.tables import Table

ABOUT = (
    "How well the analytic cost model ranks random candidates of each family of search spaces, measured in turns; "
    "minima count. Correlation is Spearman's, of ranks: 1 for the same order, 0 for none. Scale: predicted over "
    "measured time, the median. Regret: the measured time of the candidate that the model likes best, over the best."
)


@click.command(epilog="Example: autotune bench predictions pool depthwise --candidates 60 --json > runs.json")
@click.argument("names", nargs=-1)
@shared.number_option("--candidates", 40, "Of each workload.", least=3)
@shared.number_option("--turns", 3, "Of each one.")
@click.option(
    "--from",
    "earlier",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Measure nothing: compare the model with the times in the JSON of an earlier run.",
)
@shared.threads_option("1")
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    candidates: int,
    turns: int,
    earlier: Path | None,
    threads: Sequence[int],
) -> None:
    """Rank correlation of the analytic cost model with measured times; NAMES are families of search spaces."""
    from autotune.bench import predictions
    from autotune.target import Target

    shared.check_known(names, (family for family, _, _ in predictions.cases()), "family")
    found = [] if earlier is None else predictions.read(earlier)
    for number in threads if earlier is None else ():
        for family, name, workload in predictions.cases(names):
            shared.say(f"{family} {name}: {candidates} candidates, {counted(number, 'thread')}")
            target = Target.detect(number)
            found.append(
                predictions.measured(family, name, workload, target, candidates=candidates, turns=turns)
            )
    wanted = [sample for sample in found if not names or sample.family in names]
    data = [asdict(sample) for sample in wanted]
    tables = (_families(wanted), _workloads(wanted))
    output.finish(output.document("Predictions of the cost model", ABOUT, tables, data))


def _families(samples: Sequence[Sample]) -> Table:
    from autotune.bench.predictions import by_family
    from autotune.bench.tables import Table

    correlation = by_family(samples, lambda sample: sample.correlation)
    scale = by_family(samples, lambda sample: sample.scale)
    regret = by_family(samples, lambda sample: sample.regret)
    rows = tuple(
        (family, f"{value:.2f}", f"{scale[family]:.2f}", f"{regret[family]:.2f}")
        for family, value in correlation.items()
    )
    return Table("Families, means", ("family", "correlation", "scale", "regret"), rows)


def _workloads(samples: Sequence[Sample]) -> Table:
    from autotune.bench.tables import Table, duration

    rows = tuple(
        (
            f"{sample.family} {sample.name}",
            str(len(sample.configs)),
            duration(min(sample.nanoseconds)),
            duration(max(sample.nanoseconds)),
            f"{sample.correlation:.2f}",
            f"{sample.scale:.2f}",
            f"{sample.regret:.2f}",
        )
        for sample in samples
    )
    head = ("workload", "candidates", "fastest", "slowest", "correlation", "scale", "regret")
    return Table("Workloads", head, rows)


__all__ = ["command"]
