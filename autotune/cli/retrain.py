"""``autotune retrain``."""

from __future__ import annotations

import click

from autotune.cli.options import EPILOG_DATABASE, json_option, print_json


@click.command(epilog=f"Example: autotune retrain --db tuning.db --db other.db. {EPILOG_DATABASE}")
@click.option(
    "--db",
    "databases",
    multiple=True,
    metavar="FILE|URL",
    help="A tuning database, once or several times. [default: tuning.db in AUTOTUNE_HOME, or the user's data folder]",
)
@click.option("--remembered", is_flag=True, help="Read the databases that the model in use learnt from, too.")
@click.option("--dry-run", is_flag=True, help="Train and compare, but write nothing.")
@json_option
def command(databases: tuple[str, ...], remembered: bool, dry_run: bool, as_json: bool) -> None:
    """Train the cost model on all measured runs.

    It is compared on held-out workloads with the one in use, and replaces it only if it is better beyond doubt.
    """
    from autotune.tuning.api import model_folder, retrain

    report = retrain(
        database=list(databases) or None,
        dry_run=dry_run,
        remembered=remembered,
        say=lambda text: click.echo(text, err=True),
    )
    if as_json:
        print_json({**report.to_dict(), "folder": str(model_folder())})
        return
    click.echo(str(report))
    click.echo(f"cost models in {model_folder()}")


__all__ = ["command"]
