"""Output of commands: every line goes through here, so that names of others cannot steer a terminal."""

from __future__ import annotations

import os
from typing import TextIO

import click

from autotune.foreign import printable


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a text and the end of the line; control characters in it are printed as escapes."""
    click.echo(printable(str(text)), err=err)


def columns_of(out: TextIO) -> int | None:
    """Return the width of a terminal; None for a file or a pipe, where nothing is cut."""
    if not out.isatty():
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or None
    except OSError:
        return None


__all__ = ["columns_of", "echo"]
