"""``python -m results.bench gemm-steps``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.options_bench import Output, number_option, with_output

ABOUT = (
    "The speed after each step of the tutorial docs/gemm.md, and NumPy's beside it: float32, each step the one "
    "before with one more idea."
)


@click.command(epilog="Example: python -m results.bench gemm-steps --size 1024 -o results/gemm-steps.md")
@number_option("--size", 1024, "Rows and columns of the matrices.")
@number_option("--repeat", 5, "Runs of each step.")
@click.option("--threads", type=int, help="Workers of the parallel steps. [default: all usable cores]")
@with_output
def command(output: Output, size: int, repeat: int, threads: int | None) -> None:
    """The speed after each step of the tutorial docs/gemm.md, and NumPy's beside it.

    Times are of float32 matrices already in the cache or in memory as the size has it; GFLOP/s is 2 n^3 over the
    fastest run.
    """
    from autotune.bench.tables import Table
    from results.bench.gemm_steps import measure

    found = measure(size, repeat, threads)
    first = found[0].minimum_s
    rows = tuple(
        (
            step.name,
            f"{step.minimum_s * 1e3:.2f}",
            f"{step.median_s * 1e3:.2f}",
            f"{step.gflops:.1f}",
            f"{first / step.minimum_s:.1f}×",
        )
        for step in found
    )
    head = ("step", "minimum ms", "median ms", "GFLOP/s", "times the baseline")
    note = "GFLOP/s is 2 n³ over the fastest run."
    table = Table(f"{size} × {size} × {size}", head, rows, (note,))
    data = {"steps": [asdict(step) for step in found]}
    output.finish(output.document("GEMM step by step", ABOUT, (table,), data))


__all__ = ["ABOUT", "command"]
