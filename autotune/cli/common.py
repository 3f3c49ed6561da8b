"""Arguments and options that also commands without a model have, and how a command prints JSON and writes a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from autotune.cli import completion
from autotune.cli.echo import echo
from autotune.cli.verbosity import is_quiet
from autotune.errors import UsageError

EPILOG_DATABASE = "Without --db the database is tuning.db in the folder AUTOTUNE_HOME."

database_option = click.option(
    "--db",
    "database",
    metavar="FILE|URL",
    shell_complete=completion.databases,
    help="The tuning database. [default: tuning.db in AUTOTUNE_HOME, or the user's data folder]",
)
job_argument = click.argument("job", required=False, shell_complete=completion.jobs)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def announce(text: str) -> None:
    """Say on a terminal what is going on, before imports and the work itself keep silent for seconds."""
    if sys.stderr.isatty() and not is_quiet():
        echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    echo(json.dumps(value, indent=2, default=str), whole=True)


def write_page(made: str, path: Path) -> None:
    """Write a page, and say how large it is; raises UsageError where it cannot be written."""
    from autotune.files import replacing

    try:
        with replacing(path) as temporary:
            temporary.write_text(made, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    echo(f"wrote {path}: {len(made.encode()) / 1e3:.0f} kB", err=True)


__all__ = [
    "EPILOG_DATABASE",
    "announce",
    "database_option",
    "job_argument",
    "json_option",
    "print_json",
    "write_page",
]
