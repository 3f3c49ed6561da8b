"""``python -m results.bench lowering``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared

if TYPE_CHECKING:
    from autotune.bench.tables import Table
    from results.bench.lowering import StageTimes

ABOUT = (
    "How long a candidate takes from its trace to machine code, on one core: what a tuning job does for every trial. "
    "program: the region's tensor expressions; replay: the trace on a fresh schedule; lower: loops; emit: the text of "
    "LLVM IR; LLVM: object code. The schedule is the untuned one with packed weights."
)


@click.command(epilog="Example: python -m results.bench lowering CBR --repeat 50 -o results/lowering.md")
@click.argument("names", nargs=-1)
@shared.number_option("--repeat", 20, "Times that each operator is lowered.")
@shared.with_output
def command(output: shared.Output, names: Sequence[str], repeat: int) -> None:
    """Milliseconds of each stage from a trace to machine code; NAMES are operator families."""
    from results.bench import lowering

    shared.check_known(names, (family for family, _ in lowering.SUITE), "operator")
    found = []
    for case in lowering.cases(names):
        shared.say(f"{case.family} {case.name}: {repeat} times")
        found.append(lowering.stage_times(case, repeat))
    tables = (
        _table("Minimum, milliseconds", found, [times.minima for times in found]),
        _table("Median, milliseconds", found, [times.medians for times in found]),
    )
    data = [asdict(times) for times in found]
    output.finish(output.document("Lowering speed", ABOUT, tables, data))


def _table(title: str, found: Sequence[StageTimes], values: Sequence[dict[str, float]]) -> Table:
    from autotune.bench.tables import Table
    from results.bench.lowering import STAGES, to_text

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
