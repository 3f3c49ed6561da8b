"""``python -m results.bench NAME``: a command for each experiment on this project."""

from __future__ import annotations

from collections.abc import Mapping

import click

from autotune.cli.bench import BenchGroup
from autotune.cli.main import main

NAME = "python -m results.bench"
EXPERIMENTS: Mapping[str, str] = {
    "ablation": "results.bench.ablation",
    "balance": "results.bench.balance",
    "bounds": "results.bench.bounds",
    "budgets": "results.bench.budgets",
    "compile-memory": "results.bench.compile_memory",
    "decisions": "results.bench.decisions",
    "decode": "results.bench.decoding",
    "fleet": "results.bench.fleet.experiment",
    "fleet-seats": "results.bench.fleet.seats",
    "fronts": "results.bench.fronts",
    "gemm-steps": "results.bench.gemm_steps",
    "held-out": "results.bench.held_out.experiment",
    "int8": "results.bench.int8",
    "labels": "results.bench.labels",
    "learning": "results.bench.learning",
    "load": "results.bench.load_times",
    "lowering": "results.bench.lowering",
    "math": "results.bench.functions",
    "memory": "results.bench.memory",
    "open-sizes": "results.bench.open_sizes",
    "other-work": "results.bench.other_work",
    "overhead": "results.bench.overhead",
    "overlap": "results.bench.overlap",
    "pages": "results.bench.pages",
    "pipeline": "results.bench.pipelines",
    "placement": "results.bench.placements",
    "precisions": "results.bench.precisions",
    "predictions": "results.bench.predictions",
    "promises": "results.bench.promises",
    "queries": "results.bench.queries.experiment",
    "requests": "results.bench.requests",
    "retraining": "results.bench.retraining",
    "search": "results.bench.search",
    "seats": "results.bench.seats",
    "tiles": "results.bench.tiles",
    "torch": "results.bench.torch_compile",
    "torch-sizes": "results.bench.torch_sizes",
    "transfer": "results.bench.transfer",
    "transfers": "results.bench.transfers",
    "wheels": "results.bench.wheels.experiment",
}
"""The module of each, which has it as ``EXPERIMENT``."""


@click.group(
    cls=BenchGroup,
    experiments=EXPERIMENTS,
    called=NAME,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Example: {NAME} overhead",
)
def command() -> None:
    """Measure this project; each command prints tables, and compares interleaved contenders."""


if __name__ == "__main__":
    main(None, command, NAME)
