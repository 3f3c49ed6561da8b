"""``autotune retrain``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.options import EPILOG_DATABASE, database_option, json_option, print_json


@click.command(epilog=f"Example: autotune retrain --db tuning.db. {EPILOG_DATABASE}")
@database_option
@click.option("--dry-run", is_flag=True, help="Train and compare, but write nothing.")
@json_option
def command(database: str | None, dry_run: bool, as_json: bool) -> None:
    """Train the cost model on all measured runs.

    It is compared on held-out workloads with the one in use, and replaces it only if it is better.
    """
    from autotune.tuning.api import model_folder, retrain

    report = retrain(database=database, dry_run=dry_run)
    if as_json:
        print_json({**asdict(report), "folder": str(model_folder())})
        return
    click.echo(str(report))
    click.echo(f"cost models in {model_folder()}")


__all__ = ["command"]
