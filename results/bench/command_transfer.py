"""``python -m results.bench transfer``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.tables import Document
    from results.bench.transfer import Row

ABOUT = (
    "Shapes that were never tuned, answered from a database that knows a neighbour of each: another batch or length, "
    "other channels, another image. Beside them the schedules that a job of as many trials finds for the shapes "
    "themselves, and the defaults."
)


@click.command(
    epilog="Example: python -m results.bench transfer softmax pool --trials 32 -o results/transfer.md"
)
@click.argument("families", nargs=-1)
@shared.number_option("--trials", 32, "Of each shape, those of its algorithms together.")
@click.option("--shapes", type=click.IntRange(1), metavar="N", help="So many shapes; all (30) by default.")
@shared.number_option("--processes", 9, "Fresh processes that read the versions of a family.", least=1)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep databases and rows here; a family whose rows are there is not measured again.",
)
@shared.threads_option("2")
@shared.with_output
def command(
    output: shared.Output,
    families: Sequence[str],
    trials: int,
    shapes: int | None,
    processes: int,
    folder: Path | None,
    threads: Sequence[int],
) -> None:
    """How fast schedules are that were found for other shapes; of all FAMILIES by default."""
    from autotune.files import scratch_folder
    from results.bench import neighbours, transfer

    shared.check_known(families, neighbours.PAIRS, "family")
    pairs = neighbours.pairs(families, shapes)
    found: dict[int, list[Row]] = {number: [] for number in threads}

    def document() -> Document:
        tables = []
        for number, rows in found.items():
            if rows:
                tables.append(transfer.speeds_table(f"Speed, {counted(number, 'thread')}", rows))
                title = f"What was expected, {counted(number, 'thread')}"
                tables.append(transfer.expectations_table(title, rows))
        data = {str(number): [row.to_json() for row in rows] for number, rows in found.items()}
        return output.document("Schedules from the nearest shape", ABOUT, tables, data)

    with nullcontext(folder) if folder else scratch_folder("autotune-bench-") as where:
        for number in threads:
            for rows in transfer.measured(pairs, trials, number, processes, where):
                found[number] += rows
                shared.say(f"{rows[0].family}: {transfer.geometric_mean([row.asked for row in rows])}")
                output.save(document())
    output.finish(document())


__all__ = ["command"]
