"""``autotune bench memory``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError

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
@shared.threads_option("1,2")
@shared.tuned_option
@shared.trials_option("--trials", "operator")
@shared.peer_options("none")
@shared.pace_options(5)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    names: Sequence[str],
    megabytes: float | None,
    threads: Sequence[int],
    database: str | None,
    trials: int | None,
    peers: Sequence[str],
    peer_pythons: Sequence[str],
    rounds: int,
    turn: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Elementwise chains, transposes, concat, gather and pools against the speed of copying.

    NAMES are families: elementwise, transpose, concat, gather, pool (all by default).
    """
    from autotune.bench import report
    from autotune.bench.compare import Plan, Result
    from autotune.bench.session import Page, run
    from autotune.bench.suites import memory
    from autotune.bench.systems import COPY
    from autotune.bench.tables import Table
    from autotune.target import Target

    unknown = sorted(set(names) - set(memory.FAMILIES))
    if unknown:
        raise UsageError(f"unknown family {unknown[0]!r}; there are: {', '.join(memory.FAMILIES)}")
    cache = Target.detect().l3_bytes / memory.MEBIBYTE
    size = megabytes or max(_LEAST_MB, _CACHES * cache)
    systems = [COPY, *shared.found_peers(peers, peer_pythons)]
    labels = {system.name: system.label for system in systems}

    def tables(threads_text: str, results: Sequence[Result]) -> list[Table]:
        rates = [("GB/s", report.gigabytes), ("% of copy", report.percent_of(COPY.name))]
        title = f"Memory, {size:g} MiB, {threads_text}"
        each = report.side_by_side(title, results, labels, rates, first="operator")
        return [each, report.floor_families(f"Share of copying, {threads_text}", results, COPY.name)]

    page = Page("Memory-bound operators", shared.command_line(context), ABOUT)
    plan = Plan(threads, systems, shared.pace_of(rounds, turn), database, trials)
    shared.finish(
        run(page, memory.cases(size, names or memory.FAMILIES), plan, tables, shared.say), output, as_json
    )


__all__ = ["command"]
