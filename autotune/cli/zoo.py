"""``autotune zoo``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.common import json_option, print_json
from autotune.cli.echo import echo


@click.command(epilog="Example: autotune zoo")
@json_option
def command(as_json: bool) -> None:
    """List the models that need no download; use them as zoo:NAME wherever a MODEL is asked for."""
    from autotune.frontends import zoo

    entries = [zoo.info(name) for name in zoo.names()]
    if as_json:
        print_json([asdict(entry) | {"megabytes": entry.megabytes} for entry in entries])
        return
    width = max(len(entry.name) for entry in entries)
    echo(f"{'name':<{width}}  {'input':<18} {'weights':>10}  what it is")
    for entry in entries:
        shape = "×".join(map(str, entry.input_shape))
        echo(f"{entry.name:<{width}}  {shape:<18} {entry.megabytes:>7.1f} MB  {entry.summary}")


__all__ = ["command"]
