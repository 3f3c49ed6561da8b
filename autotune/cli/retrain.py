"""``autotune retrain``."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.options import EPILOG_DATABASE, database_option, json_option, print_json


@click.command(epilog=f"Example: autotune retrain --db tuning.db. {EPILOG_DATABASE}")
@database_option
@click.option("--dry-run", is_flag=True, help="Train and compare, but write nothing.")
@click.option(
    "--rollback", is_flag=True, help="Train nothing: use the model again that the one in use replaced."
)
@json_option
def command(database: str | None, dry_run: bool, rollback: bool, as_json: bool) -> None:
    """Train the cost model on all measured runs.

    It is compared on held-out workloads with the one in use, and replaces it only if it is better.
    """
    from autotune.tuning.api import model_folder, retrain

    if rollback:
        _roll_back(as_json)
        return
    report = retrain(database=database, dry_run=dry_run)
    if as_json:
        print_json({**asdict(report), "folder": str(model_folder())})
        return
    click.echo(str(report))
    click.echo(f"cost models in {model_folder()}")


def _roll_back(as_json: bool) -> None:
    from autotune.tuning.api import model_folder
    from cost_models.registry import Registry

    registry = Registry(model_folder())
    replaced, version = registry.current(), registry.rollback()
    if as_json:
        print_json({"version": version, "replaced": replaced, "folder": str(model_folder())})
    else:
        click.echo(f"{version} is in use instead of {replaced}; cost models in {model_folder()}")


__all__ = ["command"]
