"""``autotune bench gemm``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option

ABOUT = (
    "Products of two square float32 matrices, both given at the call, beside NumPy's OpenBLAS with as many "
    "threads. `native` is the fastest call from a compiled loop, ours by our runtime and `cblas_sgemm` by one "
    "of numba: a call from Python costs either a microsecond or more, which is all there is to see at size 7."
)


@click.command(
    epilog="Example: autotune bench gemm 512 1024 --threads 1,2 --db gemm.db --trials 200 -o results/gemm.md"
)
@click.argument("sizes", nargs=-1, type=click.IntRange(1))
@shared.threads_option("1,2")
@shared.tuned_option
@shared.trials_option("--trials", "size")
@shared.peer_options("none")
@shared.pace_options(15)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    sizes: Sequence[int],
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
    """Square matrix products beside OpenBLAS; SIZES default to 256 to 2048 and five odd ones."""
    from autotune.bench import report
    from autotune.bench.compare import Plan, Result
    from autotune.bench.session import Page, run
    from autotune.bench.suites import gemm
    from autotune.bench.systems import OPENBLAS
    from autotune.bench.tables import Table

    systems = [OPENBLAS, *shared.found_peers(peers, peer_pythons)]
    labels = {system.name: system.label for system in systems}

    def tables(threads_text: str, results: Sequence[Result]) -> list[Table]:
        rates = [
            ("GFLOP/s", report.gigaflops),
            ("OpenBLAS GFLOP/s", report.gigaflops_of(OPENBLAS.name)),
            ("native", report.native_of()),
            ("OpenBLAS native", report.native_of(OPENBLAS.name)),
            ("native ÷ OpenBLAS", report.native_ratio_to(OPENBLAS.name)),
        ]
        each = report.side_by_side(
            f"Matrix products, {threads_text}", results, labels, rates, first="size", with_family=False
        )
        means = report.families(f"Square and odd sizes, {threads_text}", results, labels)
        return [each, means, report.native_families(f"Native, {threads_text}", results, OPENBLAS.name)]

    page = Page("Matrix products", shared.command_line(context), ABOUT)
    pace = shared.pace_of(rounds, turn, native=True)
    plan = Plan(threads, systems, pace, database, trials)
    cases = gemm.cases(sizes or gemm.SQUARE + gemm.ODD)
    document = run(page, cases, plan, tables, shared.say, shared.saver(output))
    shared.finish(document, output, as_json)


__all__ = ["command"]
