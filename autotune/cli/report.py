"""``autotune report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.echo import columns_of, echo
from autotune.cli.options import EPILOG_DATABASE, FLAGS, json_option, print_json
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.database import Database
    from autotune.tuning.jobs.owner import JobState


@click.command(epilog=f"Example: autotune report --db tuning.db. {EPILOG_DATABASE}")
@click.argument("job", required=False)
@FLAGS["database"]
@click.option(
    "--html",
    "html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write it as one page, with charts and what was tried; it needs no network.",
)
@json_option
def command(job: str | None, database: str | None, html: Path | None, as_json: bool) -> None:
    """Show the report of JOB as it was at the end of `tune`; of no JOB the newest's.

    JOB is the id of one, the beginning of it, or the name of a model, of which the newest job is meant. A job that
    runs, or was killed, has an interim report: of its last comparison.
    """
    from autotune.cli.job_lines import chosen
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store:
        state = chosen(store, job)
        text = store.job_report(state.job.id)
        if html is not None:
            _write_page(store, state, text, html)
        if as_json:
            _print_json(store, state, text)
        elif html is None:
            _print_text(store, state, text)


def _write_page(store: Database, state: JobState, text: str, path: Path) -> None:
    from autotune.files import replacing
    from autotune.tuning.report.page import Compared, page
    from autotune.tuning.report.stored import report_from

    if not text:
        raise UsageError(f"job {state.job.id} has no report for a page: {why_missing(state)}")
    names = {key: found[0] for (_, key), found in store.layers(state.job.id).items()}
    compared = [
        Compared(names.get(key, key[:12]), site, row)
        for key, _, site, row in store.all_comparisons(state.job.id)
        if row.part is None
    ]
    made = page(state, report_from(text, state.job.id), _target(store, state), compared)
    try:
        with replacing(path) as temporary:
            temporary.write_text(made, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    echo(f"wrote {path}: {len(made.encode()) / 1e3:.0f} kB", err=True)


def _target(store: Database, state: JobState) -> str:
    found = store.targets().get(state.job.target_key)
    return "" if found is None else found.name


def _print_json(store: Database, state: JobState, text: str) -> None:
    from autotune.cli.job_lines import to_json
    from autotune.tuning.report.stored import report_from

    trials = store.job_trials([state.job.id])[state.job.id]
    about = to_json(state, trials, _target(store, state))
    about["report"] = report_from(text, state.job.id).to_json() if text else None
    print_json(about | {"missing": None if text else why_missing(state)})


def _print_text(store: Database, state: JobState, text: str) -> None:
    from autotune.cli.job_lines import status_lines
    from autotune.tuning.report.result import lines_of
    from autotune.tuning.report.stored import report_from

    columns = columns_of(sys.stdout)
    if not text:
        trials = store.job_trials([state.job.id])[state.job.id]
        for line in [
            *status_lines(state, trials, _target(store, state), columns),
            f"no report: {why_missing(state)}",
        ]:
            echo(line)
        return
    echo(heading(state))
    for line in lines_of(report_from(text, state.job.id), columns):
        echo(line)


def heading(state: JobState) -> str:
    """Return what the report is of, and how old it is."""
    from autotune.tuning.jobs.owner import ago

    job = state.job
    interim = "" if state.ended else "; an interim report, of its last comparison"
    why = f"; {state.explained}" if state.explained else ""
    return f"job {job.id} of {job.model}: {state.life.value}, {ago(state.silent_s)}{why}{interim}"


def why_missing(state: JobState) -> str:
    """Return why a job has stored no report."""
    if not state.said:
        return "the job is of a version that stored none, or has just begun; `autotune query MODEL` has its schedules"
    if state.life.over:
        return "the job ended before its search began; `autotune query MODEL` has its schedules"
    return "the job has not begun to search yet; `autotune status` shows what it does"


__all__ = ["command", "heading", "why_missing"]
