"""Operators that only move bytes, against the speed of copying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from autotune.bench import options
from autotune.bench.columns import floor_families, rate, share_of, side_by_side
from autotune.bench.experiment import Column, Experiment, Record, Say
from autotune.bench.tables import number, percent

_CACHES = 4
"""The default input is so many times the last-level cache."""
_LEAST_MB = 64.0


def measure(
    say: Say, names: Sequence[str], megabytes: float | None, **given: Any
) -> Iterator[Sequence[Record]]:
    """Compare operators of the families, all by default, with a copy of as many bytes."""
    from autotune.bench.compare import compare, plan_of
    from autotune.bench.systems import COPY
    from autotune.target import Target
    from results.bench import memory_operators as memory

    options.check_known(names, memory.FAMILIES, "family")
    cache = Target.detect().l3_bytes / memory.MEBIBYTE
    size = megabytes or max(_LEAST_MB, _CACHES * cache)
    found = compare(memory.cases(size, names or memory.FAMILIES), plan_of(given, first=[COPY]), say)
    return ([{**record, "mebibytes": f"{size:g}"} for record in records] for records in found)


EXPERIMENT = Experiment(
    title="Memory-bound operators",
    about="Operators that only move bytes, larger than the last-level cache. The floor is a copy of as many bytes "
    "(read + written) by NumPy on as many threads, interleaved with us.",
    summary="""Elementwise chains, transposes, concat, gather, pools and reductions against the speed of copying.

    NAMES are families: elementwise, transpose, concat, gather, pool, reduction, softmax (all by default).""",
    example="pool --threads 1,2 --peers onnxruntime -o results/memory.md",
    options=(
        options.words(),
        click.Option(
            ["--megabytes"],
            type=click.FloatRange(0.01, 4096),
            metavar="N",
            help="Size of the input. [default: 4 times the last-level cache, at least 64]",
        ),
        *options.side_by_side("1,2", "none", 5, "operator"),
    ),
    measure=measure,
    views=(
        side_by_side(
            "Memory, {mebibytes} MiB, {threads}",
            "operator",
            (
                Column("GB/s", rate(column="bytes"), number(1)),
                Column("% of copy", share_of("copy"), percent(unit="")),
            ),
        ),
        floor_families("Share of copying, {threads}", "copy"),
    ),
)

__all__ = ["EXPERIMENT"]
