"""The list of jobs, and the page of one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from autotune.cli import report as reports
from autotune.cli.job_lines import ID, chosen, doing, facts, faster, jobs_of, title, trials_of
from autotune.cli.web.frame import Page, described, link
from autotune.cli.web.listing import Wanted
from autotune.database import Database
from autotune.tuning.jobs.owner import JobState, Life, Owner
from autotune.tuning.report.html import Markup, Part, element, joined, table
from autotune.tuning.report.page import sections
from autotune.tuning.report.stored import report_from
from autotune.tuning.report.units import duration, listed

_LOOK = {Life.DONE: "good", Life.RUNNING: "good", Life.WAITING: "good"}


def jobs_page(store: Database, wanted: Wanted) -> Page:
    """Return the list of jobs, the newest first."""
    targets = {key: target.name for key, target in store.targets().items()}
    found = [state for state in jobs_of(store)[::-1] if wanted.holds(*_words(state, targets))]
    shown = wanted.part(found)
    trials = trials_of(store, shown)
    rows = [_row(state, trials[state.job.id], targets) for state in shown]
    heading = ("state", "job", "speed-up", "trials", "worked", "begun", "target", "process")
    body = table(heading, rows, (2, 3, 4), range(3, 8)) if rows else _nothing(store, wanted, found)
    return wanted.page("Jobs", _states(found), body, len(found), live=True)


def _nothing(store: Database, wanted: Wanted, found: Sequence[JobState]) -> Markup:
    """Return why there are no rows."""
    if found:
        return element("p", f"There is no page {wanted.number}.")
    if wanted.find:
        return element("p", f"No job has {wanted.find!r} in its id, model, target, host or state.")
    return element("p", f"{store.where} has no jobs: `autotune tune MODEL --db {store.where}` begins one.")


def _words(state: JobState, targets: Mapping[str, str]) -> tuple[str, ...]:
    """Return all in which a job is sought."""
    job = state.job
    target = targets.get(job.target_key, job.target_key)
    return job.id, job.model, target, Owner.parse(job.owner).host, state.life.value


def _states(states: Sequence[JobState]) -> str:
    lives = [state.life for state in states]
    counts = ", ".join(f"{lives.count(life)} {life.value}" for life in Life if life in lives)
    return f"{counts}; the newest first" if counts else ""


def _row(state: JobState, trials: int, targets: Mapping[str, str]) -> list[Part]:
    job, who = state.job, Owner.parse(state.job.owner)
    notes = [text for text in (doing(state), state.explained) if text]
    about = [
        element("span", f"{job.id[:ID]}", class_="faint"),
        *(element("span", note, class_="faint") for note in notes),
    ]
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))
    worked = duration(job.elapsed_s) + (f" of {state.said['budget']}" if "budget" in state.said else "")
    more = (begun, targets.get(job.target_key, job.target_key), f"{who.host} {who.pid}")
    name = joined([link(path_of(job.id), title(state)), *about])
    return [_state(state), name, faster(state), str(trials), worked, *more]


def _state(state: JobState) -> Markup:
    return element("span", state.life.value, class_=f"state {_LOOK.get(state.life, 'bad')}")


def path_of(job: str) -> str:
    """Return the path of a job's page."""
    return f"/jobs/{quote(job, safe='')}"


def job_page(store: Database, name: str) -> Page:
    """Return the page of a job: its state, its report, and the workloads that it tunes."""
    state = chosen(store, name)
    parts = {
        "state": _about(store, state),
        "report": joined(_report(store, state)),
        "workloads": joined(_workloads(store, state)),
        "more": joined(_more(store, state)),
    }
    return Page(f"{state.job.model}: {state.life.value}", parts, "/")


def _about(store: Database, state: JobState) -> Markup:
    job = state.job
    trials = trials_of(store, [state])[job.id]
    why = f": {state.explained}" if state.explained else ""
    found = [("job", job.id), *facts(state, trials, reports.target_of(store, state))]
    return joined([element("h1", job.model), element("p", _state(state), why), described(found)])


def _report(store: Database, state: JobState) -> Iterator[Markup]:
    text = store.job_report(state.job.id)
    yield from reports.front_of(store, state.job.id)
    if not text:
        yield element("p", f"No report: {reports.why_missing(state)}.")
        return
    if not state.ended:
        yield element("p", "An interim report: of the job's last comparison.", class_="faint")
    yield from sections(state, report_from(text, state.job.id), reports.compared_by(store, state.job.id))


def report_file(store: Database, name: str) -> str:
    """Return the report of a job as a page that needs no server; raises UsageError where there is none."""
    return reports.page_of(store, chosen(store, name))


def _workloads(store: Database, state: JobState) -> Iterator[Markup]:
    yield element("h2", "Runs by workload")
    found = [(key, names) for (_, key), names in store.layers(state.job.id).items()]
    if not found:
        yield element("p", "The job has named no workloads.")
        return
    items = [
        link(f"/workloads/{key}", listed(names, 2)) for key, names in sorted(found, key=lambda each: each[1])
    ]
    yield element("ul", *(element("li", item) for item in items), class_="names")


def _more(store: Database, state: JobState) -> Iterator[Markup]:
    yield element("h2", "Elsewhere")
    own, items = path_of(state.job.id), []
    if store.job_report(state.job.id):
        items.append(link(f"{own}/report.html", "The report as one file", download=f"{state.job.id}.html"))
    yield element("p", *items, " " if items else "", link(f"{own}.json", "The same as JSON"))
    studies = studies_of(store.where, state.job.id)
    if studies is None:
        yield element(
            "p",
            f"No studies of this job are beside {store.where}: they are on the machine that tuned it, or where its "
            "--study-storage said.",
        )
    else:
        yield element(
            "p", "The studies of its searches, with plots of every trial and knob, are for optuna-dashboard:"
        )
        yield element("pre", f"optuna-dashboard {studies}", tabindex="0")


def studies_of(database: str, job: str) -> Path | None:
    """Return the journal of a job's studies, if it is beside the database."""
    found = (path for path in Path(f"{database}.studies").glob("*.log") if path.stem.endswith(job))
    return next(found, None)


__all__ = ["job_page", "jobs_page", "path_of", "report_file", "studies_of"]
