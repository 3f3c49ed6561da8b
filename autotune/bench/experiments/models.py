"""Whole models with peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autotune.bench import options
from autotune.bench.columns import family_gains, kernel_families, own, side_by_side
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say
from autotune.bench.tables import number


def measure(say: Say, names: Sequence[str], **given: Any) -> Iterator[Sequence[Record]]:
    """Compare zoo models or ONNX files, the whole zoo by default."""
    from autotune.bench.compare import compare, plan_of
    from autotune.bench.suites import models

    return compare(models.models(names or models.DEFAULT), plan_of(given, trials_per_workload=True), say)


def _coverage(rows: FrameRows) -> str | None:
    hits = own("hits")(rows)
    return None if hits is None else f"{hits}/{own('dispatches')(rows)}"


EXPERIMENT = Experiment(
    title="Models",
    about="Whole models beside other runtimes, float32, batch as the model has it. `default`: nothing tuned; `tuned`: "
    "with the schedules of the database. All competitors get the same model and the same random input.",
    summary="Whole models beside peers; NAMES are zoo models or ONNX files (the whole zoo by default).",
    example="squeezenet resnet50 --threads 1,2 --db tuning.db -o results/models.md",
    options=(
        options.words(),
        *options.side_by_side(
            "1,2", "onnxruntime,openvino", 10, "distinct workload of a model", trials="--tune-trials"
        ),
    ),
    measure=measure,
    views=(
        side_by_side(
            "Models, {threads}",
            "model",
            (
                Column("tuned dispatches", _coverage),
                Column("compile", own("compile_s"), number(1, " s")),
            ),
        ),
        kernel_families("Where our time goes, {threads}"),
        family_gains("What tuning gains, {threads}"),
    ),
)

__all__ = ["EXPERIMENT"]
