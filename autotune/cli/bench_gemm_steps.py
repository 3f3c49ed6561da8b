"""``autotune bench gemm-steps``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.options import json_option, print_json


@click.command(epilog="Example: autotune bench gemm-steps --size 1024")
@click.option("--size", default=1024, show_default=True, help="Rows and columns of the matrices.")
@click.option("--repeat", default=5, show_default=True, help="Runs of each step.")
@click.option("--threads", type=int, help="Workers of the parallel steps. [default: all usable cores]")
@json_option
def command(size: int, repeat: int, threads: int | None, as_json: bool) -> None:
    """The speed after each step of the tutorial docs/gemm.md, and NumPy's beside it.

    Times are of float32 matrices already in the cache or in memory as the size has it; GFLOP/s is 2 n^3 over the
    fastest run.
    """
    from autotune.bench.gemm_steps import measure

    found = measure(size, repeat, threads)
    if as_json:
        print_json([asdict(step) for step in found])
        return
    first = found[0].minimum_s
    for step in found:
        click.echo(
            f"{step.name:<14} minimum {step.minimum_s * 1e3:>9.2f} ms, median {step.median_s * 1e3:>9.2f} ms, "
            f"{step.gflops:>7.1f} GFLOP/s, {first / step.minimum_s:>7.1f} times the baseline"
        )


__all__ = ["command"]
