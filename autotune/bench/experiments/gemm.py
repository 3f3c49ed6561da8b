"""Matrix products beside NumPy's OpenBLAS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from autotune.bench import options
from autotune.bench.columns import families, native_families, of, own, rate, side_by_side, to_peer
from autotune.bench.experiment import Column, Experiment, Record, Say, at
from autotune.bench.tables import duration, number, ratio

_BLAS = "numpy"
"""The name of NumPy's OpenBLAS among systems."""


def measure(say: Say, sizes: Sequence[int], **given: Any) -> Iterator[Sequence[Record]]:
    """Compare products of square matrices of the sizes."""
    from autotune.bench.compare import compare, plan_of
    from autotune.bench.suites import gemm
    from autotune.bench.systems import OPENBLAS

    cases = gemm.cases(sizes or gemm.SQUARE + gemm.ODD)
    return compare(cases, plan_of(given, first=[OPENBLAS], native=True), say)


EXPERIMENT = Experiment(
    title="Matrix products",
    about="Products of two square float32 matrices, both given at the call, beside NumPy's OpenBLAS with as many "
    "threads. `native` is the fastest call from a compiled loop, of our runtime and of `cblas_sgemm`: a call "
    "from Python costs either a microsecond or more, which is all there is to see at size 7.",
    summary="Square matrix products beside OpenBLAS; SIZES default to 256 to 2048 and five odd ones.",
    example="512 1024 --threads 1,2 --db gemm.db --trials 200 -o results/gemm.md",
    options=(
        click.Argument(["sizes"], nargs=-1, type=click.IntRange(1)),
        *options.side_by_side("1,2", "none", 15, "size"),
    ),
    measure=measure,
    views=(
        side_by_side(
            "Matrix products, {threads}",
            "size",
            (
                Column("GFLOP/s", rate(), number(1)),
                Column("OpenBLAS GFLOP/s", rate(of(_BLAS)), number(1)),
                Column("native", own("native_ns"), duration),
                Column("OpenBLAS native", at("native_ns", contender=_BLAS), duration),
                Column("native ÷ OpenBLAS", to_peer(_BLAS, "native_ns"), ratio),
            ),
        ),
        families("Square and odd sizes, {threads}"),
        native_families("Native, {threads}", _BLAS),
    ),
)

__all__ = ["EXPERIMENT"]
