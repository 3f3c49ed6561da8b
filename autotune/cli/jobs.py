"""``autotune jobs``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.common import EPILOG_DATABASE, database_option, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.verbosity import is_quiet, verbosity
from autotune.garbage import collector_paused

if TYPE_CHECKING:
    from autotune.database import Database

SHOWN = 20
"""Jobs that are listed."""


@click.command(epilog=f"Example: autotune jobs --db tuning.db. {EPILOG_DATABASE}")
@database_option
@click.option("--all", "everything", is_flag=True, help=f"List all jobs, not only the newest {SHOWN}.")
@verbosity("Print only the ids, for other commands.")
@json_option
@collector_paused()  # a list leaves next to no garbage
def command(database: str | None, everything: bool, as_json: bool) -> None:
    """List the jobs of a database, the newest last: what they are doing now, or how they ended.

    The process of a job is looked for, so that one that was killed does not count as running. Of another host's it is
    only known when it was heard of last.
    """
    from autotune.cli.job_lines import jobs_of, table, trials_of
    from autotune.database.opening import opened
    from autotune.tuning.report.width import columns_of

    with opened(database, read_only=True) as store:
        if as_json:
            print_json(document(store))
            return
        jobs, count = jobs_of(store, None if everything else SHOWN), store.count_jobs()
        trials = trials_of(store, jobs)
        where = store.where
    if is_quiet():
        for state in jobs:
            echo(state.job.id)
        return
    if not jobs:
        echo(f"{where} has no jobs: `autotune tune MODEL --db {where}` begins one")
        return
    for line in table(jobs, trials, columns_of(sys.stdout)):
        echo(line)
    if count > len(jobs):
        echo(f"… and {count - len(jobs)} before: --all lists them")


def document(store: Database) -> dict[str, Any]:
    """Return what is known of all jobs, without their reports, as JSON values."""
    from autotune.cli.job_lines import jobs_of, to_json, trials_of

    jobs = jobs_of(store)
    trials = trials_of(store, jobs)
    targets = {key: target.name for key, target in store.targets().items()}
    known = [to_json(job, trials[job.job.id], targets.get(job.job.target_key, "")) for job in jobs]
    return {"database": store.where, "jobs": known}


__all__ = ["SHOWN", "command", "document"]
