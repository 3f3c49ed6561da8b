"""Output of commands: every line goes through here, so that names of others cannot steer a terminal, and none is wider
than that."""

from __future__ import annotations

import sys

import click

from autotune.foreign import printable


def echo(text: object = "", *, err: bool = False, indent: int | None = None, whole: bool = False) -> None:
    """Print a text and the end of the line; control characters in it are printed as escapes.

    On a terminal a line that is too long goes on below, from column ``indent``; not one of a ``whole`` text, which is
    for other programs.
    """
    shown, out = printable(str(text)), sys.stderr if err else sys.stdout
    if not whole and out.isatty():
        from autotune.tuning.report.width import columns_of, wrapped

        shown = "\n".join(wrapped(shown.split("\n"), columns_of(out), indent))
    click.echo(shown, err=err)


__all__ = ["echo"]
