"""The list of workloads, and the page of one: all runs of it by target, its knobs, and its best schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotune.cli.answer_lines import fastest_of, provenance, timed
from autotune.cli.web.frame import Page, described, link
from autotune.cli.web.jobs import path_of
from autotune.cli.web.listing import Wanted
from autotune.database import Database, Hit, Key, Miss, Run, WorkloadRow
from autotune.database.describe import operators_of, shapes_of
from autotune.database.records import WorkloadSummary
from autotune.database.summary import RunCounts
from autotune.errors import AutotuneError, DatabaseError, UsageError
from autotune.foreign import parse_json
from autotune.schedule.trace import Trace
from autotune.suggest import counted
from autotune.tuning.report.answer import measured
from autotune.tuning.report.html import Markup, Part, dots, element, joined, table
from autotune.tuning.report.importance import importances
from autotune.tuning.report.units import listed, nanoseconds

FASTEST, SCHEDULES = 10, 3
"""Runs that are listed, and those of them whose schedules are shown."""
_LEARNT = 2000
"""Newest runs that are plotted and by which knobs are judged: to read more of them takes longer than a page may."""
_DOTS = 500
_JOBS = 12
"""The newest of those that have a workload, which its page names."""


def workloads_page(store: Database, wanted: Wanted, counts: RunCounts) -> Page:
    """Return the list of what was measured, by workload and target, what takes longest first."""
    targets = {key: target.name for key, target in store.targets().items()}
    texts = {row.key: row.text for row in store.workload_rows(skip_damaged=True)}
    about = {key: (operators_of(text), shapes_of(text)) for key, text in texts.items()}
    found = [
        row
        for row in store.summary(counts)
        if row.workload_key in about
        and wanted.holds(row.workload_key, *about[row.workload_key], targets.get(row.target_key, ""))
    ]
    shown = wanted.part(sorted(found, key=lambda row: -(row.best_ns or 0.0)))
    names = store.names([row.workload_key for row in shown])
    rows = [_listed(row, about, names, targets) for row in shown]
    heading = ("runs", "workload", "default", "best", "speed-up", "target")
    text = (
        f"{counted(len(found), 'pair')} of workload and target, what takes longest first; "
        "latencies alone, speed-ups in a model"
    )
    body = (
        table(heading, rows, (0, 2, 3), (2, 3, 5)) if rows else element("p", "No such workload was measured.")
    )
    return wanted.page("Workloads", text, body, len(found), live=False)


def _listed(
    row: WorkloadSummary,
    about: Mapping[str, tuple[str, str]],
    names: Mapping[str, Sequence[str]],
    targets: Mapping[str, str],
) -> list[Part]:
    key, (operators, shapes) = row.workload_key, about[row.workload_key]
    notes = (shapes, listed(names.get(key, ()), 3))
    title = link(f"/workloads/{key}", operators or key[:12])
    name = joined([title, *(element("span", note, class_="faint") for note in notes)])
    figures = [nanoseconds(row.default_ns), nanoseconds(row.best_ns), str(row.ratio or "-")]
    return [str(row.runs), name, *figures, targets.get(row.target_key, row.target_key)]


def workload_page(store: Database, name: str) -> Page:
    """Return the page of a workload, by its key or the beginning of it; raises UsageError for an unknown one."""
    row = _chosen(store, name)
    targets = {key: target.name for key, target in store.targets().items()}
    keys = store.tuned_keys(row.key)
    found = [(key, targets.get(key.target, key.target), _looked_up(store, key)) for key in keys]
    parts = {"workload": _about(store, row), "targets": _by_target(found)}
    for number, (key, target, answer) in enumerate(found):
        parts[f"target{number}"] = joined(
            [element("h2", f"{target}, search space {key.space[:8]}"), *_runs(store, key, answer)]
        )
    parts["text"] = joined([element("h2", "The workload as text"), element("pre", row.text, tabindex="0")])
    return Page(f"Workload {row.key[:12]}", parts, "/workloads", live=False)


def _chosen(store: Database, name: str) -> WorkloadRow:
    found = store.find_workload(name)
    if len(found) != 1:
        what = f"{len(found)} workloads begin with" if found else "no workload"
        raise UsageError(f"{what} {name!r} in {store.where}; `autotune db stats` lists them")
    return found[0]


def _looked_up(store: Database, key: Key) -> Hit | Miss:
    return store.lookup(key.workload, key.target, key.space)


def _about(store: Database, row: WorkloadRow) -> Markup:
    used = [
        link(path_of(job), f"{model} {job[:8]}") for job, model in store.jobs_with(row.key, _JOBS).items()
    ]
    facts: list[tuple[str, Part]] = [
        ("key", row.key),
        ("shapes", shapes_of(row.text)),
        ("work", f"{row.flops:,} operations, {row.bytes:,} bytes"),
        ("dispatches", listed(store.names([row.key]).get(row.key, ()), 12) or "of no job"),
        ("jobs", joined(part for each in used for part in (each, " ")) if used else "none"),
    ]
    return joined([element("h1", operators_of(row.text) or row.kind), described(facts)])


def _by_target(found: Sequence[tuple[Key, str, Hit | Miss]]) -> Markup:
    if not found:
        return element("p", "Nothing of it was measured: it was only named by a job.")
    rows = [[link(f"#target{at}", target), *_figures(answer)] for at, (_, target, answer) in enumerate(found)]
    heading = ("target", "runs", "default", "best", "measured", "evidence")
    return joined([element("h2", "By target"), table(heading, rows, (1, 2, 3))])


def _figures(answer: Hit | Miss) -> list[Part]:
    if isinstance(answer, Miss):
        return ["-", "-", "-", "-", answer.found]
    default, best = answer.latencies
    where = f"in {answer.best.inside}" if answer.side_by_side else "alone"
    return [str(answer.runs), nanoseconds(default), nanoseconds(best), where, str(answer.evidence)]


def _runs(store: Database, key: Key, answer: Hit | Miss) -> Iterator[Markup]:
    """Yield what is known of a key."""
    if isinstance(answer, Miss):
        yield element("p", f"Nothing to use: {answer}.")
        return
    yield element("p", f"{answer.evidence}; {measured(answer)}, {provenance(answer.best)}.")
    timings = store.timings(key, _LEARNT)
    yield from _plot([ns for ns, _ in timings])
    yield from _knobs(timings, answer.runs)
    yield from _fastest(store, key, answer)


def _plot(latencies: Sequence[float | None]) -> Iterator[Markup]:
    known = [ns for ns in latencies if ns is not None]
    if len(known) < 2:
        return
    yield element("h3", "Runs in the order in which they were measured")
    step = -(-len(latencies) // _DOTS)
    least = min(range(len(latencies)), key=lambda at: latencies[at] or float("inf"))
    shown = [ns for at, ns in enumerate(latencies) if at % step == 0 or at == least]
    some = f"every {step}th of them; " if step > 1 else ""
    text = (
        f"Isolated latencies of {counted(len(latencies), 'run')}, {some}{nanoseconds(min(known))} to "
        f"{nanoseconds(max(known))}, on a logarithmic axis. The line is the least so far."
    )
    yield dots(shown, text)
    yield element("p", text, class_="faint")


def _knobs(timings: Sequence[tuple[float | None, str]], runs: int) -> Iterator[Markup]:
    yield element("h3", "Importance of knobs")
    found = importances(
        [(ns, config) for ns, config in ((ns, _config(text)) for ns, text in timings) if ns is not None]
    )
    if not found:
        yield element("p", "No knob has had two values in runs that worked.")
        return
    rows = [
        [each.knob, f"{100 * each.share:.0f} %", each.best, str(each.runs), str(each.values)]
        for each in found
    ]
    yield table(
        ("knob", "share of the spread", "best value", "runs with it", "values tried"), rows, (1, 3, 4)
    )
    newest = f" of the newest {len(timings)} runs" if len(timings) < runs else ""
    yield element(
        "p",
        f"The share of the variance of logarithms of isolated latencies{newest} that lies between the values of one "
        "knob (omega squared). Knobs that were varied together share theirs.",
        class_="faint",
    )


def _config(text: str) -> Mapping[str, object]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise DatabaseError(f"the configuration of a run is damaged: {error}") from error
    return found if isinstance(found, dict) else {}


def _fastest(store: Database, key: Key, answer: Hit) -> Iterator[Markup]:
    yield element("h3", "Fastest runs")
    shown = fastest_of(answer.best, store.top(key, FASTEST))
    yield table(
        ("rank", "latency", "measured", "knobs"), [_row(at, run) for at, run in enumerate(shown)], (1,)
    )
    yield element("p", "The first is used. Latencies in a model and alone do not compare.", class_="faint")
    for at, run in enumerate(shown[:SCHEDULES]):
        opened = {"open": ""} if at == 0 else {}
        title = element("summary", f"Schedule {at + 1}: {', '.join(timed(run))}")
        yield element("details", title, element("pre", _python(run), tabindex="0"), **opened)


def _row(at: int, run: Run) -> list[Part]:
    latency, where = timed(run)
    knobs = ", ".join(f"{name} {value}" for name, value in run.config.items())
    return [str(at + 1), latency, where, knobs or "-"]


def _python(run: Run) -> str:
    """Return the schedule of a run as text, or why there is none."""
    try:
        return Trace.from_json(run.trace_json).to_python()
    except AutotuneError as error:
        return f"not a schedule of this version: {error}"


__all__ = ["workload_page", "workloads_page"]
