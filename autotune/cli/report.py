"""``autotune report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.common import (
    EPILOG_DATABASE,
    database_option,
    job_argument,
    json_option,
    print_json,
    write_page,
)
from autotune.cli.echo import echo
from autotune.cli.verbosity import is_quiet, verbosity
from autotune.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.database import Database
    from autotune.quantization.front import PrecisionPoint
    from autotune.tuning.jobs.again import TimedAgain
    from autotune.tuning.jobs.owner import JobState
    from autotune.tuning.report.html import Markup
    from autotune.tuning.report.page import Compared


@click.command(epilog=f"Example: autotune report --db tuning.db. {EPILOG_DATABASE}")
@job_argument
@database_option
@click.option(
    "--html",
    "html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write it as one page, with charts and what was tried; it needs no network.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Time the whole model again, untuned and tuned, and show it beside what the job has said.",
)
@verbosity("Print only the speed-up of whole models, and how it was found.")
@json_option
def command(job: str | None, database: str | None, html: Path | None, measure: bool, as_json: bool) -> None:
    """Show the report of JOB as it was at the end of `tune`; of no JOB the newest's.

    JOB is the id of one, the beginning of it, or the name of a model, of which the newest job is meant. A job that
    runs, or was killed, has an interim report: of its last comparison. With --measure nothing is stored.
    """
    from autotune.cli.job_lines import chosen
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store:
        state = chosen(store, job)
        if html is not None:
            write_page(page_of(store, state), html)
        text = store.job_report(state.job.id)
        again = _time_again(store, state, text) if measure else []
        if as_json:
            measured = {"measured": [each.to_json() for each in again]} if measure else {}
            print_json(document(store, state) | measured)
        elif html is None or measure:
            _print_text(store, state, text, again)


def _time_again(store: Database, state: JobState, text: str) -> list[TimedAgain]:
    from autotune.tuning.api import runnable
    from autotune.tuning.jobs.again import time_again
    from autotune.tuning.report.stored import report_from

    target = store.targets().get(state.job.target_key)
    if target is None:
        raise UsageError(f"{store.where} does not know the target of job {state.job.id}")
    report = report_from(text, state.job.id) if text else None
    return time_again(state, report, runnable(target), store, lambda note: echo(note, err=True))


def page_of(store: Database, state: JobState) -> str:
    """Return the report of a job as one page of HTML; raises UsageError where it has none."""
    from autotune.tuning.report.page import page
    from autotune.tuning.report.stored import report_from

    job, text = state.job.id, store.job_report(state.job.id)
    first = front_of(store, job)
    if not (text or first):
        raise UsageError(f"job {job} has no report for a page: {why_missing(state)}")
    report = report_from(text, job) if text else None
    return page(state, report, target_of(store, state), compared_by(store, job), first)


def front_of(store: Database, job: str) -> list[Markup]:
    """Return the front of latency and error that a job has measured, drawn; nothing where it has none."""
    points = points_by(store, job)
    if not points:
        return []
    from autotune.quantization.front_chart import sections

    return [*sections(points)]


def points_by(store: Database, job: str) -> list[PrecisionPoint]:
    """Return the points of latency and error that a job has measured."""
    from autotune.database.front import PRECISION

    rows = store.compared_at(PRECISION, job=job)
    if not rows:  # as of most jobs, whose report should not wait for what reads points
        return []
    from autotune.quantization.front import points_of

    return points_of(rows)


def compared_by(store: Database, job: str) -> list[Compared]:
    """Return the candidates that a job has compared in the model, for its page."""
    from autotune.database.front import PRECISION
    from autotune.tuning.report.page import Compared

    names = {key: found[0] for (_, key), found in store.layers(job).items()}
    return [
        Compared(names.get(key, key[:12]), site, row, key)
        for key, _, site, row in store.all_comparisons(job)
        if row.part is None and site != PRECISION
    ]


def target_of(store: Database, state: JobState) -> str:
    """Return the name of a job's target; empty where the database does not know it."""
    found = store.targets().get(state.job.target_key)
    return "" if found is None else found.name


def document(store: Database, state: JobState) -> dict[str, Any]:
    """Return what is known of a job and its report, or why there is none, as JSON values."""
    from autotune.cli.job_lines import to_json, trials_of
    from autotune.tuning.report.stored import report_from

    trials, text = trials_of(store, [state])[state.job.id], store.job_report(state.job.id)
    report = report_from(text, state.job.id).to_json() if text else None
    missing = None if text else why_missing(state)
    return {**to_json(state, trials, target_of(store, state)), "report": report, "missing": missing}


def _print_text(store: Database, state: JobState, text: str, again: Sequence[TimedAgain]) -> None:
    from autotune.cli.job_lines import status_lines, trials_of
    from autotune.tuning.report.nodes import node_lines
    from autotune.tuning.report.result import lines_of, summary
    from autotune.tuning.report.stored import report_from
    from autotune.tuning.report.width import columns_of, wrapped

    columns = columns_of(sys.stdout)
    if text:
        report = report_from(text, state.job.id)
        nodes = wrapped(node_lines(state.said, report), columns)
        lines = summary(report) if is_quiet() else [heading(state), *lines_of(report, columns), *nodes]
    else:
        trials = trials_of(store, [state])[state.job.id]
        lines = [*status_lines(state, trials, target_of(store, state), columns)]
        lines.append(f"no report: {why_missing(state)}")
    lines += _front_lines(points_by(store, state.job.id))
    for line in [*lines, *wrapped((line for each in again for line in each.lines()), columns)]:
        echo(line)


def _front_lines(points: Sequence[PrecisionPoint]) -> list[str]:
    if not points:
        return []
    from autotune.quantization.front import front

    return [f"  {point}" for point in front(points)]


def heading(state: JobState) -> str:
    """Return what the report is of, and how old it is."""
    from autotune.tuning.jobs.owner import ago

    job = state.job
    interim = "" if state.ended else "; an interim report, of its last comparison"
    why = f"; {state.explained}" if state.explained else ""
    return f"job {job.id} of {job.model}: {state.life.value}, {ago(state.silent_s)}{why}{interim}"


def why_missing(state: JobState) -> str:
    """Return why a job has stored no report."""
    from autotune.cli.job_lines import ID, searches

    if parts := searches(state):
        named = ", ".join(f"`autotune report {each[:ID]}`" for each in parts)
        return f"it is a job of several searches, and each of them has one of its own: {named}"
    if not state.said:
        return "the job is of a version that stored none, or has just begun; `autotune query MODEL` has its schedules"
    if state.life.over:
        return "the job ended before its search began; `autotune query MODEL` has its schedules"
    return "the job has not begun to search yet; `autotune status` shows what it does"


__all__ = ["command", "compared_by", "document", "front_of", "heading", "page_of", "target_of", "why_missing"]
