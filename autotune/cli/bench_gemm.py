"""``autotune bench gemm``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.side_by_side import Asked, side_by_side

if TYPE_CHECKING:
    from autotune.bench.result import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Products of two square float32 matrices, both given at the call, beside NumPy's OpenBLAS with as many "
    "threads. `native` is the fastest call from a compiled loop, of our runtime and of `cblas_sgemm`: a call "
    "from Python costs either a microsecond or more, which is all there is to see at size 7."
)


@click.command(
    epilog="Example: autotune bench gemm 512 1024 --threads 1,2 --db gemm.db --trials 200 -o results/gemm.md"
)
@click.argument("sizes", nargs=-1, type=click.IntRange(1))
@side_by_side(threads="1,2", peers="none", rounds=15, of_what="size")
def command(asked: Asked, sizes: Sequence[int]) -> None:
    """Square matrix products beside OpenBLAS; SIZES default to 256 to 2048 and five odd ones."""
    from autotune.bench.suites import gemm
    from autotune.bench.systems import OPENBLAS

    cases = gemm.cases(sizes or gemm.SQUARE + gemm.ODD)
    asked.run("Matrix products", ABOUT, cases, _tables, first=[OPENBLAS], native=True)


def _tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
    from autotune.bench import report
    from autotune.bench.systems import OPENBLAS

    rates = [
        ("GFLOP/s", report.gigaflops),
        ("OpenBLAS GFLOP/s", report.gigaflops_of(OPENBLAS.name)),
        ("native", report.native_of()),
        ("OpenBLAS native", report.native_of(OPENBLAS.name)),
        ("native ÷ OpenBLAS", report.native_ratio_to(OPENBLAS.name)),
    ]
    each = report.side_by_side(
        f"Matrix products, {threads}", results, labels, rates, first="size", with_family=False
    )
    means = report.families(f"Square and odd sizes, {threads}", results, labels)
    return [each, means, report.native_families(f"Native, {threads}", results, OPENBLAS.name)]


__all__ = ["command"]
