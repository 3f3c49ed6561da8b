"""``python -m results.bench overhead``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.echo import echo
from autotune.cli.options import json_option, print_json


@click.command(epilog="Example: python -m results.bench overhead")
@json_option
def command(as_json: bool) -> None:
    """What running costs beside the kernels: dispatches, fork-joins, calls from Python."""
    from autotune.hardware import usable_cores
    from autotune.runtime.overhead import measure

    found = measure(workers=usable_cores())
    if as_json:
        print_json([asdict(cost) for cost in found])
        return
    for cost in found:
        echo(
            f"{cost.name:<36} minimum {cost.minimum_ns:>8.0f} ns, median {cost.median_ns:>8.0f} ns, "
            f"target {cost.target_ns:.0f} ns"
        )


__all__ = ["command"]
