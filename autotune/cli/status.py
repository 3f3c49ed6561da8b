"""``autotune status``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from autotune.cli.common import EPILOG_DATABASE, database_option, job_argument, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.verbosity import is_quiet, verbosity

if TYPE_CHECKING:
    from autotune.database import Database
    from autotune.tuning.jobs.owner import JobState

_EVERY_S = 2.0
"""Running jobs say what they do as often."""


@click.command(epilog=f"Example: autotune status --db tuning.db --watch. {EPILOG_DATABASE}")
@job_argument
@database_option
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until the job is over.")
@verbosity("Print only its state: running, done, killed, ...")
@json_option
def command(job: str | None, database: str | None, watch: bool, as_json: bool) -> None:
    """Show what JOB is doing now, and what it has found so far; of no JOB the newest.

    JOB is the id of one, the beginning of it, or the name of a model, of which the newest job is meant.
    """
    from autotune.cli.job_lines import chosen
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store:
        state = chosen(store, job)
        _show(store, state, as_json)
        while watch and not state.life.over:
            time.sleep(_EVERY_S)
            state = chosen(store, state.job.id)
            if sys.stdout.isatty() and not as_json:
                click.clear()
            _show(store, state, as_json)


def _show(store: Database, state: JobState, as_json: bool) -> None:
    from autotune.cli.job_lines import status_lines, to_json, trials_of
    from autotune.cli.report import target_of
    from autotune.tuning.report.width import columns_of

    trials, target = trials_of(store, [state])[state.job.id], target_of(store, state)
    if as_json:
        print_json({"database": store.where, **to_json(state, trials, target), "said": state.said})
        return
    if is_quiet():
        echo(state.life.value)
        return
    for line in status_lines(state, trials, target, columns_of(sys.stdout)):
        echo(line)


__all__ = ["command"]
