"""``autotune bench lowering``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError
from autotune.suggest import listing

if TYPE_CHECKING:
    from autotune.bench.lowering import StageTimes
    from autotune.bench.tables import Table

ABOUT = (
    "How long a candidate takes from its trace to machine code, on one core: what a tuning job does for every trial. "
    "program: the region's tensor expressions; replay: the trace on a fresh schedule; lower: loops; emit: the text of "
    "LLVM IR; LLVM: object code. The schedule is the untuned one with packed weights."
)


@click.command(epilog="Example: autotune bench lowering CBR --repeat 50 -o results/lowering.md")
@click.argument("names", nargs=-1)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Times that each operator is lowered.",
)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context, names: Sequence[str], repeat: int, output: Path | None, as_json: bool
) -> None:
    """Milliseconds of each stage from a trace to machine code; NAMES are operator families."""
    from autotune.bench import lowering, machine
    from autotune.bench.tables import Document

    known = list(dict.fromkeys(family for family, _ in lowering.SUITE))
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(f"unknown operator {unknown[0]!r}; there are: {listing(unknown[0], known)}")
    facts = machine.facts()
    found = []
    for case in lowering.cases(names):
        shared.say(f"{case.family} {case.name}: {repeat} times")
        found.append(lowering.stage_times(case, repeat))
    tables = (
        _table("Minimum, milliseconds", found, [times.minima for times in found]),
        _table("Median, milliseconds", found, [times.medians for times in found]),
    )
    data = [asdict(times) for times in found]
    document = Document("Lowering speed", shared.command_line(context), facts, tables, data, ABOUT)
    shared.finish(document, output, as_json)


def _table(title: str, found: Sequence[StageTimes], values: Sequence[dict[str, float]]) -> Table:
    from autotune.bench.lowering import STAGES, to_text
    from autotune.bench.tables import Table

    *stages, last = STAGES
    rows = [
        (
            times.name,
            *(f"{value[stage]:.1f}" for stage in stages),
            f"{to_text(value):.1f}",
            str(times.lines),
            f"{value[last]:.1f}",
        )
        for times, value in zip(found, values, strict=True)
    ]
    return Table(title, ("operator", *stages, "trace to text", "lines", last), tuple(rows))


__all__ = ["command"]
