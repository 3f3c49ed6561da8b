"""A job's report as one page of HTML that needs nothing else: no script, no request, dark and light, also on paper.

It is made of the report and of the comparisons that the job has stored. Every part that has nothing to show says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import fmean

from autotune.database import Comparison
from autotune.database.evidence import tally
from autotune.suggest import counted
from autotune.tuning.jobs.owner import JobState, Owner
from autotune.tuning.report import charts
from autotune.tuning.report.charts import COLOURS, MOST, Compared
from autotune.tuning.report.html import Markup, Part, document, element, joined, table
from autotune.tuning.report.nodes import node_lines
from autotune.tuning.report.result import ModelReport, Report
from autotune.tuning.report.table import Entry, entries, total
from autotune.tuning.report.units import duration, nanoseconds

STYLE = (
    COLOURS
    + charts.STYLE
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.faint { color: var(--faint); }
.headline { background: var(--box); border-left: 4px solid var(--after); padding: .75rem 1rem; font-size: 1.15rem; }
li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--box); padding: .75rem 1rem; overflow-x: auto; }
@media print { body { max-width: none; font-size: 11px; } h2 { break-after: avoid; } tr, svg { break-inside: avoid; } }
"""
)
NOTHING_LOADED = Markup(
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def page(
    state: JobState,
    report: Report | None,
    target: str,
    compared: Sequence[Compared],
    first: Sequence[Markup] = (),
) -> str:
    """Return the page of a job; what comes ``first`` stands above its report, if it has one."""
    below = () if report is None else sections(state, report, compared)
    body = element("main", _about(state, target), *first, *below)
    return document(f"{state.job.model}: tuning report", STYLE, body, head=NOTHING_LOADED)


def sections(state: JobState, report: Report, compared: Sequence[Compared]) -> Iterator[Markup]:
    """Yield all that stands below the heading of a job."""
    for each in report.models:
        yield from _model(each, state, compared, several=len(report.models) > 1)
    yield from _lost(compared)
    yield from _failures(report)
    yield from _noise(report, compared)
    yield from _nodes(state, report)
    yield from _deploy(state, report)


def _about(state: JobState, target: str) -> Markup:
    job = state.job
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))
    text = (
        f"Job {job.id} on {Owner.parse(job.owner).host}, for {target or 'an unknown target'}: {state.life.value}. "
        f"Begun {begun}, worked {duration(job.elapsed_s)} of {state.said.get('budget', 'an unknown budget')}."
    )
    why = [element("p", state.explained)] if state.explained else []
    forecast = (state.said.get("forecast") or {}).get("text")
    ahead = f" Forecast: {forecast}." if forecast else ""
    interim = (
        [] if state.ended else [element("p", f"An interim report: of the job's last comparison.{ahead}")]
    )
    return element("header", element("h1", job.model), element("p", text, class_="faint"), *why, *interim)


def _model(
    report: ModelReport, state: JobState, compared: Sequence[Compared], *, several: bool
) -> Iterator[Markup]:
    """Yield the sections of one model."""
    if several:
        yield element("h2", report.model)
    gain = report.gain or f"not timed: {report.untimed}"
    yield element("p", f"Whole model: {gain}", class_="headline")
    yield element("p", tally(row.evidence.state for row in report.dispatches for _ in range(row.count)))
    yield from _gains(report, state, compared)
    found = entries(report)
    yield from _dispatches(found, sum(row.runs for row in report.dispatches))
    yield from _rooflines(report)
    yield from _decisions(report, found)
    yield from _untried(report)


def _gains(report: ModelReport, state: JobState, compared: Sequence[Compared]) -> Iterator[Markup]:
    yield element("h2", "Gain over the time")
    made = charts.over_time(report, compared, state.job.created, state.job.elapsed_s)
    if made is None:
        yield element("p", "No comparison in the model has confirmed a gain.")
        return
    text = "What comparisons had confirmed of the sum of the dispatches, with 95 %"
    yield element("p", text + ("; the dot is the whole model." if made.dots else "."), class_="faint")
    yield made.svg()


def _rooflines(report: ModelReport) -> Iterator[Markup]:
    yield element("h2", "Distance to the roofline, before and after")
    made = charts.rooflines(report)
    if made is None:
        yield element(
            "p", "No roofline is known: nothing was timed, or an older version has stored the report."
        )
        return
    yield element(
        "p",
        "A dot a dispatch, grey before and blue after: far below 100 % on the right there is most to gain.",
        class_="faint",
    )
    yield made.svg()


def _dispatches(found: Sequence[Entry], runs: int) -> Iterator[Markup]:
    yield element("h2", "Time by dispatch, before and after")
    yield from charts.times(found)
    if not found:
        return
    rows = [row for each in found for row in _rows(each)]
    heading = ("dispatch", "before", "after", "measured", "runs", "speed-up", "nodes")
    yield table(heading, [*rows, *_rows(total(found, runs))], (1, 2, 4))


def _rows(entry: Entry, indent: str = "") -> Iterator[list[Part]]:
    """Yield the row of an entry and those of its parts."""
    where = entry.where or ("in the model" if entry.measured else "not measured")
    times = [nanoseconds(entry.before_ns), nanoseconds(entry.after_ns)]
    name = indent + entry.title + ("" if indent else charts.of_several(entry))
    yield [name, *times, where, str(entry.runs), entry.gain, ", ".join(entry.nodes)]
    for part in entry.parts:
        yield from _rows(part, "\N{EM SPACE}")


def _decisions(report: ModelReport, found: Sequence[Entry]) -> Iterator[Markup]:
    """Yield what each changed decision brings, the largest first: an option, or a schedule, also of a part of an option
    that brings nothing itself; then how much of the whole model's gain that is."""
    yield element("h2", "What each decision brings")
    changed = [
        (each, title + charts.of_several(each))
        for entry in found
        for each in entry.decided
        for title in [entry.title if each is entry else f"{entry.title}: {each.title}"]
        if _is_confirmed(each)
    ]
    whole = sum(each.share for each in found)
    rows = [
        [title, _saving(_saved(each)), _percent(_saved(each) / whole), each.gain]
        for each, title in sorted(changed, key=lambda one: _saved(one[0]), reverse=True)
    ]
    if rows:
        explained = sum(_saved(each) for each, _ in changed)
        rows += _summed(report, explained, whole)
        yield table(("decision", "saves", "of the latency", "speed-up of its own"), rows, (1, 2))
        yield element("p", _why_unexplained(report), class_="faint")
    else:
        yield element("p", "Nothing was confirmed faster than the default.")
    if report.decisions:
        yield element("ul", *(element("li", line) for line in report.decisions))


def _is_confirmed(entry: Entry) -> bool:
    gained = "×" in entry.gain and not entry.gain.startswith("no change")
    return gained and entry.share > 0 and entry.after_ns is not None and _saved(entry) > 0


def _summed(report: ModelReport, explained: float, whole: float) -> Iterator[list[str]]:
    """Yield the sum of the decisions, the gain of the whole model, and what of that the decisions do not explain."""
    yield ["sum of these", _saving(explained), _percent(explained / whole), ""]
    if report.gain is not None:
        before, ratio = report.gain.before.median_ns, report.gain.ratio
        timed = before * (1 - ratio.median)
        yield ["whole model, timed at the end", _saving(timed), _percent(1 - ratio.median), str(ratio)]
        yield [
            "not explained by these",
            _saving(timed - explained),
            _percent((timed - explained) / before),
            "",
        ]


def _why_unexplained(report: ModelReport) -> str:
    """Return what the sum of the decisions leaves open."""
    if report.gain is None:
        return f"The whole model was not timed: {report.untimed}."
    rest = "schedules in use that no comparison has confirmed, and what dispatches do to each other"
    if report.gain.ratio.interval is None:
        return f"What is not explained are {rest}."
    low, high = report.gain.ratio.interval
    error = nanoseconds(report.gain.before.median_ns * (high - low) / 2)
    return f"What is not explained are {rest}, beside errors: the whole model's saving is known to ± {error}."


def _saving(ns: float) -> str:
    return f"{'−' if ns < 0 else ''}{nanoseconds(abs(ns))}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %".replace("-", "−")


def _saved(entry: Entry) -> float:
    return entry.share - entry.count * (entry.after_ns or 0.0)


def _untried(report: ModelReport) -> Iterator[Markup]:
    yield element("h2", "Never tried")
    rows = [row for row in report.dispatches if not row.evidence.searched]
    if not rows:
        yield element("p", "Candidates were measured for every dispatch that has a choice.")
        return
    shown = [[row.name + (f" ×{row.count}" if row.count > 1 else ""), str(row.evidence)] for row in rows]
    yield table(("dispatch", "why"), shown[:MOST])
    yield from _more(len(shown))


def _more(count: int) -> Iterator[Markup]:
    if count > MOST:
        yield element("p", f"… and {count - MOST} more.", class_="faint")


def _lost(compared: Sequence[Compared]) -> Iterator[Markup]:
    yield element("h2", "Tried and lost")
    lost = [each for each in compared if not each.found.won and each.found.ratio is not None]
    if not lost:
        yield element("p", "No candidate of this job was compared in the model and was slower.")
        return
    lost.sort(key=lambda each: each.found.ratio.median if each.found.ratio else 0.0)
    shown = [
        [each.dispatch, each.site, each.found.name[:16], _ratio_text(each.found), f"{each.found.load:.1f}"]
        for each in lost[:MOST]
    ]
    heading = ("dispatch", "kind", "candidate", "latency over that of what it was compared with", "load")
    yield table(heading, shown, (4,))
    yield from _more(len(lost))


def _ratio_text(found: Comparison) -> str:
    if found.ratio is None:
        return found.message or "not timed"
    if found.ratio.interval is None:
        return f"{found.ratio.median:.3f}"
    low, high = found.ratio.interval
    return f"{found.ratio.median:.3f} ({low:.3f} to {high:.3f})"


def _failures(report: Report) -> Iterator[Markup]:
    yield element("h2", "Failures")
    bad = {name: count for name, count in report.outcomes.items() if name != "ok"}
    rows = [[name, str(count), report.failures.get(name, "")] for name, count in sorted(bad.items())]
    rows += [["crashed inside the model", name, "; ".join(found)] for name, found in report.crashes.items()]
    rows += [["not tuned", name, reason] for name, reason in report.left_out.items()]
    if rows:
        yield table(("what", "how many, or which", "for example"), rows)
    else:
        yield element("p", f"None of {counted(report.session_trials, 'candidate')} failed.")


def _noise(report: Report, compared: Sequence[Compared]) -> Iterator[Markup]:
    yield element("h2", "Noise")
    loads = [each.found.load for each in compared]
    lines = []
    if loads:
        lines.append(
            f"While candidates were compared, other processes took {fmean(loads):.2f} processors in the mean, "
            f"{max(loads):.2f} at most."
        )
    for each in report.models:
        if each.gain is not None:
            lines.append(
                f"{each.model}: while the whole model was timed it was {each.gain.load:.2f}; the quartiles of the "
                f"tuned latency are {nanoseconds(each.gain.after.spread_ns)} apart."
            )
    yield joined(element("p", line) for line in lines or ["Nothing was measured in the model by this job."])


def _nodes(state: JobState, report: Report) -> Iterator[Markup]:
    """Yield the nodes of the fleet that has measured; nothing where one machine has."""
    if lines := [*node_lines(state.said, report)]:
        yield element("h2", "Nodes")
        yield element("ul", *(element("li", line) for line in lines))


def _deploy(state: JobState, report: Report) -> Iterator[Markup]:
    yield element("h2", "Deploy")
    models = [each.model for each in report.models]
    commands = "\n".join(f"autotune compile {m} -o model.atm --db {report.database}" for m in models)
    yield element("pre", commands, tabindex="0")
    trials = counted(report.trials, "trial")
    text = f"{trials} in the job, at {report.trials_per_second:.1f} a second in its last session"
    left = f"; left: {report.left}" if report.left else ""
    yield element("p", f"{text}{left}. Job {state.job.id}.", class_="faint")


__all__ = ["MOST", "NOTHING_LOADED", "STYLE", "Compared", "page", "sections"]
