"""``autotune bench stress``."""

from __future__ import annotations

import click

from autotune.cli.options import json_option, print_json, seed_option


@click.command(epilog="Example: autotune bench stress --tiles 10000000")
@click.option("--tiles", type=click.IntRange(1), default=1_000_000, show_default=True, help="Run so many.")
@click.option("--devices", type=click.IntRange(1, 8), default=3, show_default=True, help="Devices at a time.")
@click.option(
    "--clients", type=click.IntRange(1, 64), default=3, show_default=True, help="Threads that submit graphs."
)
@seed_option
@json_option
def command(tiles: int, devices: int, clients: int, seed: int, as_json: bool) -> None:
    """Random graphs of dispatches on several devices, with errors, cancellations, lost devices and little memory.

    Every tile must run once, in order, or its dispatch end with the right error; it exits with 1 where something does
    not hold.
    """
    from autotune.bench.stress import stress
    from autotune.errors import InternalError

    outcome = stress(tiles, seed=seed, devices=devices, clients=clients)
    totals = outcome.totals
    if as_json:
        print_json({**vars(totals), "seconds": outcome.seconds, "grown_bytes": outcome.grown_bytes})
    else:
        click.echo(
            f"{totals.graphs} graphs, {totals.dispatches} dispatches, {totals.tiles} tiles in {outcome.seconds:.0f} s; "
            f"memory grew by {outcome.grown_bytes / 2**20:.1f} MiB"
        )
        click.echo(
            f"{totals.errors} dispatches ended with an error, {totals.cancelled} of them as cancelled; "
            f"{totals.lost_devices} devices were lost, {totals.refused_allocations} allocations refused, and "
            f"{totals.held_back} graphs held back"
        )
    if totals.problems:
        raise InternalError(f"with --seed {seed}: " + "\n  ".join(totals.problems[:20]))


__all__ = ["command"]
