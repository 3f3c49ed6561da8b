"""``autotune retrain``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import EPILOG_DATABASE, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import runs_options

if TYPE_CHECKING:
    from cost_models.retrain import RetrainReport


@click.command(epilog=f"Example: autotune retrain --db tuning.db --db other.db. {EPILOG_DATABASE}")
@runs_options
@click.option("--remembered", is_flag=True, help="Read the databases that the model in use learnt from, too.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the model there if it is better than the analytic one, and leave the one in use as it is.",
)
@click.option("--dry-run", is_flag=True, help="Train and compare, but write nothing.")
@json_option
def command(
    databases: tuple[str, ...],
    remembered: bool,
    recordings: Sequence[Path],
    export: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train the cost model on all measured runs.

    It is compared on held-out workloads with the one in use, and replaces it only for a statistically significant gain.
    """
    from autotune.tuning.api import model_folder, retrain

    tables = {}
    if recordings:
        from autotune.bench.replay.recording import training_table

        tables = {str(folder): training_table(folder, inside=True) for folder in recordings}
    report = retrain(
        database=list(databases) or ([] if tables else None),
        dry_run=dry_run,
        remembered=remembered,
        recordings=tables,
        export=export,
        say=lambda text: echo(text, err=True),
    )
    if as_json:
        print_json({**report.to_dict(), "folder": str(model_folder())})
        return
    echo(str(report))
    echo(f"cost models in {model_folder()}" if export is None else _exported(report, export))


def _exported(report: RetrainReport, folder: Path) -> str:
    return f"written to {folder}" if report.version else f"nothing is written to {folder}"


__all__ = ["command"]
