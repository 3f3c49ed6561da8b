"""``autotune bench memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.options_bench import check_known
from autotune.cli.side_by_side import Asked, side_by_side

if TYPE_CHECKING:
    from autotune.bench.result import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Operators that only move bytes, larger than the last-level cache. The floor is a copy of as many bytes "
    "(read + written) by NumPy on as many threads, taking turns with us."
)
_CACHES = 4
"""The default input is so many times the last-level cache."""
_LEAST_MB = 64.0


@click.command(
    epilog="Example: autotune bench memory pool --threads 1,2 --peers onnxruntime -o results/memory.md"
)
@click.argument("names", nargs=-1)
@click.option(
    "--megabytes",
    type=click.FloatRange(0.01, 4096),
    metavar="N",
    help="Size of the input. [default: 4 times the last-level cache, at least 64]",
)
@side_by_side(threads="1,2", peers="none", rounds=5, of_what="operator")
def command(asked: Asked, names: Sequence[str], megabytes: float | None) -> None:
    """Elementwise chains, transposes, concat, gather, pools and reductions against the speed of copying.

    NAMES are families: elementwise, transpose, concat, gather, pool, reduction, softmax (all by default).
    """
    from autotune.bench import report
    from autotune.bench.suites import memory
    from autotune.bench.systems import COPY
    from autotune.target import Target

    check_known(names, memory.FAMILIES, "family")
    cache = Target.detect().l3_bytes / memory.MEBIBYTE
    size = megabytes or max(_LEAST_MB, _CACHES * cache)

    def tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
        rates = [("GB/s", report.gigabytes), ("% of copy", report.percent_of(COPY.name))]
        title = f"Memory, {size:g} MiB, {threads}"
        each = report.side_by_side(title, results, labels, rates, first="operator")
        return [each, report.floor_families(f"Share of copying, {threads}", results, COPY.name)]

    cases = memory.cases(size, names or memory.FAMILIES)
    asked.run("Memory-bound operators", ABOUT, cases, tables, first=[COPY])


__all__ = ["command"]
