"""``autotune check``."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import model_argument
from autotune.errors import UsageError


def _share(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Return a share from a percentage."""
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise UsageError(f"--slower-than {text!r} is no percentage\n  such as 5%, which is the default")
    return found


@click.command(
    epilog="Example: autotune check model.onnx --lock model.lock --reference model.atm --slower-than 5%"
)
@model_argument
@click.option("--lock", required=True, type=click.Path(path_type=Path), help="What `autotune lock` wrote.")
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="ARTIFACT",
    help="What `autotune compile MODEL --lock` made when it was locked: needed where the machine code has changed.",
)
@click.option(
    "--slower-than",
    default="5%",
    show_default=True,
    callback=_share,
    metavar="X%",
    help="The allowed slowdown of a dispatch, and of all of them.",
)
@json_option
def command(model: str, lock: Path, reference: Path | None, slower_than: float, as_json: bool) -> int:
    """Fail if MODEL does not fit its lock, or runs slower by it than when it was locked."""
    announce(f"checking {model}")
    from autotune.compiler.lock import Lock
    from autotune.tuning.check import check

    report = check(model, Lock.read(lock), reference, slower_than)
    if as_json:
        print_json(report.to_json())
    else:
        echo(str(report))
    return 1 if report.regressed else 0


__all__ = ["command"]
