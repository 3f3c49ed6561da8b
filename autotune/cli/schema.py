"""``autotune schema``."""

from __future__ import annotations

import click

from autotune.cli.common import print_json
from autotune.cli.echo import echo
from autotune.cli.schemas import DOCUMENTS, schema


@click.command(epilog="Example: autotune schema report > report.schema.json")
@click.argument("name", required=False, type=click.Choice([*DOCUMENTS]))
def command(name: str | None) -> None:
    """Print the JSON Schema of the document NAME, that a command prints with --json; without NAME, list them.

    `tune` prints many documents, one a line. Later versions may add members.
    """
    if name is None:
        for each in DOCUMENTS:
            echo(each)
        return
    print_json(schema(name))


__all__ = ["command"]
