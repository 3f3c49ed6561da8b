"""``autotune bench models``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.side_by_side import Asked, side_by_side

if TYPE_CHECKING:
    from autotune.bench.result import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Whole models beside other runtimes, float32, batch as the model has it. `default`: nothing tuned; `tuned`: "
    "with the schedules of the database. All competitors get the same model and the same random input."
)


@click.command(
    epilog="Example: autotune bench models squeezenet resnet50 --threads 1,2 --db tuning.db -o results/models.md"
)
@click.argument("names", nargs=-1)
@side_by_side(
    threads="1,2",
    peers="onnxruntime,openvino",
    rounds=10,
    trials="--tune-trials",
    of_what="distinct workload of a model",
)
def command(asked: Asked, names: Sequence[str]) -> None:
    """Whole models beside peers; NAMES are zoo models or ONNX files (the whole zoo by default)."""
    from autotune.bench import report
    from autotune.bench.suites import models

    def tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
        facts = [("compile", report.compile_time)]
        if asked.database is not None:
            facts.insert(0, ("tuned dispatches", report.coverage))
        each = report.side_by_side(
            f"Models, {threads}", results, labels, facts, first="model", with_family=False
        )
        gains = report.family_gains(f"What tuning gains, {threads}", results)
        shares = report.kernel_families(f"Where our time goes, {threads}", results)
        return [each, shares, *([gains] if gains is not None else [])]

    cases = models.models(names or models.DEFAULT)
    asked.run("Models", ABOUT, cases, tables, trials_per_workload=True)


__all__ = ["command"]
