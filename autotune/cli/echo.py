"""Output of commands: every line goes through here, so that names of others cannot steer a terminal."""

from __future__ import annotations

import click

from autotune.foreign import printable


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a text and the end of the line; control characters in it are printed as escapes."""
    click.echo(printable(str(text)), err=err)


__all__ = ["echo"]
