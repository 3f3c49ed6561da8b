"""The cost of running beside the kernels: dispatches, fork-joins, calls from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.tables import duration
from autotune.hardware import usable_cores
from autotune.runtime.cpu import overhead


def measure(say: Say) -> Iterator[Sequence[Record]]:
    """Yield a record for each cost."""
    yield [asdict(cost) for cost in overhead.measure(workers=usable_cores())]


EXPERIMENT = Experiment(
    title="Overhead",
    about="The cost of running beside the kernels, of chains of commands that do nothing.",
    summary="Measure what running costs beside the kernels: dispatches, fork-joins, calls from Python.",
    example="",
    options=(),
    measure=measure,
    views=(
        TableView(
            "Overhead",
            ("name",),
            (
                Column("cost", "name"),
                Column("minimum", "minimum_ns", duration),
                Column("median", "median_ns", duration),
                Column("target", "target_ns", duration),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
