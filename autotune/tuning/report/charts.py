"""Charts of a job: its gain over the time, time by dispatch, and the distance of each dispatch to its roofline."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.compiler.plan import OPTION
from autotune.database import Comparison
from autotune.database.inside import claim_of
from autotune.database.posterior import standings
from autotune.database.records import Ratio
from autotune.suggest import counted
from autotune.tuning.compare.paired import total
from autotune.tuning.report import plot
from autotune.tuning.report.html import Markup, bars, element, joined
from autotune.tuning.report.plot import Dot, Plot, PlotAxis
from autotune.tuning.report.result import ModelReport, Report, summary
from autotune.tuning.report.table import Entry, entries
from autotune.tuning.report.units import duration, nanoseconds

MOST = 40
"""Rows of a chart or of a list, those with the most time first; the rest is counted."""
_TIMES, _BURST_S = 60, 1.0
"""Of a job the most at which its gain is estimated, and the least seconds between them."""
COLOURS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #5b636d; --line: #d5dae0;
  --before: #9aa5b1; --after: #0b6bcb; --box: #f5f7f9; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8eaed; --faint: #a3abb5; --line: #363c43;
  --before: #6b7580; --after: #5cadff; --box: #1d2125; } }
"""
STYLE = (
    plot.STYLE
    + """
.bar { margin: .4rem 0; font-size: .9rem; overflow-wrap: anywhere; break-inside: avoid; }
.bar span { margin-right: .8em; }
.bar svg { display: block; width: 100%; }
.before { fill: var(--before); } .after { fill: var(--after); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
.key.before { background: var(--before); } .key.after { background: var(--after); }
"""
)


@dataclass(frozen=True)
class Compared:
    """A candidate that was compared in the model: at a dispatch, by its kind of site ("schedule" or "option"), of a
    workload by its key."""

    dispatch: str
    site: str
    found: Comparison
    workload: str


def times(found: Sequence[Entry]) -> Iterator[Markup]:
    """Yield the bars of what is timed, those with the most time first, or why there are none."""
    timed = [each for each in found if each.before_ns is not None and each.after_ns is not None]
    if not timed:
        yield element("p", "No dispatch was timed before the job ended.")
        return
    keys = [
        part for kind in ("before", "after") for part in (element("span", class_=f"key {kind}"), f"{kind} ")
    ]
    yield element("p", *keys, class_="faint")
    yield bars(
        [
            (
                each.title + of_several(each),
                (each.count * (each.before_ns or 0.0), each.count * (each.after_ns or 0.0)),
                f"{nanoseconds(each.before_ns)} → {nanoseconds(each.after_ns)}, {each.gain}",
            )
            for each in timed[:MOST]
        ]
    )


def of_several(entry: Entry) -> str:
    """Return how many dispatches an entry stands for, if there are several."""
    return f" ×{entry.count}" if entry.count > 1 else ""


def gains(report: ModelReport, compared: Sequence[Compared], begun: float) -> list[tuple[float, Ratio]]:
    """Return the seconds after which what was confirmed of the sum of the dispatches has changed, and to what.

    It follows at each time from all comparisons until then, as the evidence of a dispatch does.
    """
    places = [place for each in entries(report) for place in each.decided]
    sites, workloads = {each.site for each in places}, {each.workload for each in places}
    rows = sorted(
        (
            each
            for each in compared
            if (each.dispatch in sites if each.site == OPTION else each.workload in workloads)
        ),
        key=lambda each: each.found.created,
    )
    found = list[tuple[float, Ratio]]()
    for now in _times(rows):
        ratio_of = _confirmed([each for each in rows if each.found.created <= now])
        parts = [(each.share, ratio_of(each)) for each in places]
        if found or any(ratio is not None for _, ratio in parts):
            found.append((max(0.0, now - begun), total(parts)))
    return found


def _times(compared: Sequence[Compared]) -> Sequence[float]:
    """Return when comparisons were stored, those of several dispatches in one measurement once; of many some."""
    known = sorted({each.found.created for each in compared})
    ends = [now for now, after in pairwise([*known, math.inf]) if after - now >= _BURST_S]
    step = max(1, -(-len(ends) // _TIMES))
    return ends[::-step][::-1]


def _confirmed(compared: Sequence[Compared]) -> Callable[[Entry], Ratio | None]:
    """Return what gives the confirmed ratio of a dispatch or of a part: its option's, else its schedule's."""
    options, schedules = defaultdict[str, list[Comparison]](list), defaultdict[str, list[Comparison]](list)
    for each in compared:
        (options[each.dispatch] if each.site == OPTION else schedules[each.workload]).append(each.found)
    known = {
        name: ranked.order[0].claim
        for name, ranked in standings(options).items()
        if ranked.order and not ranked.order[0].is_reference
    }
    claims = {key: claim_of(rows, _winner(rows)) for key, rows in schedules.items()}

    def ratio_of(place: Entry) -> Ratio | None:
        found = known.get(place.site) or claims.get(place.workload)
        return found if found is not None and found.changed else None

    return ratio_of


def _winner(rows: Sequence[Comparison]) -> str:
    """Return the name of the last that won; empty where none has."""
    return next((row.name for row in reversed(rows) if row.won), "")


def over_time(
    report: ModelReport, compared: Sequence[Compared], begun: float, elapsed_s: float
) -> Plot | None:
    """Return the confirmed gain over the time of a job, with its interval; None where nothing was."""
    steps = gains(report, compared, begun)
    if not steps:
        return None
    known = [(0.0, Ratio(1.0, (1.0, 1.0))), *steps, (max(elapsed_s, steps[-1][0]), steps[-1][1])]
    stairs = [
        (at, ratio)
        for (_, before), (at, ratio) in zip([known[0], *known], known, strict=False)
        for ratio in (before, ratio)
    ]
    dots = []
    if report.gain is not None and report.gain.ratio.interval is not None:
        dots = [Dot(known[-1][0], 1 / report.gain.ratio.median, f"the whole model: {report.gain.ratio}")]
    line = [(at, 1 / ratio.median) for at, ratio in stairs]
    band = [(at, 1 / r.interval[1], 1 / r.interval[0]) for at, r in stairs if r.interval is not None]
    about = f"speed-up of the dispatches over the time, at last {steps[-1][1]}"
    return Plot(
        PlotAxis("time", shown=duration),
        PlotAxis("speed-up", shown="{:.3g}×".format),
        about,
        dots,
        [("after", line)],
        band,
    )


def rooflines(report: ModelReport) -> Plot | None:
    """Return how near to its roofline each dispatch was before and is after, over its time; None where no roofline is
    known."""
    timed = [
        (row, row.floor_ns, row.before_ns, row.after_ns)
        for row in report.dispatches
        if row.floor_ns and row.before_ns and row.after_ns
    ]
    if not timed:
        return None
    dots, lines = list[Dot](), []
    for row, floor, before, after in timed:
        points = [(ns * row.count, 100 * floor / ns) for ns in (before, after)]
        said = [
            f"{row.name}: {nanoseconds(ns)}, {100 * floor / ns:.0f} % of its roofline"
            for ns in (before, after)
        ]
        lines.append(("move", points))
        dots += [
            Dot(*at, text, kind) for at, text, kind in zip(points, said, ("before", "after"), strict=True)
        ]
    about = f"{counted(len(timed), 'dispatch')}: the share of their roofline that they reach, over their time"
    across = PlotAxis("time, of all its uses", log=True, shown=_round)
    return Plot(across, PlotAxis("% of the roofline"), about, dots, lines)


def _round(ns: float) -> str:
    """Return a power of ten of ns with a unit.

    >>> _round(1e4), _round(1e6)
    ('10 µs', '1 ms')
    """
    number, _, unit = nanoseconds(ns).partition(" ")
    return f"{float(number):g} {unit}"


def figure(report: Report) -> Markup:
    """Return the charts of a report, for a notebook."""
    parts = list[Markup]()
    for each in report.models:
        parts += [element("h4", each.model), *times(entries(each))]
        roofs = rooflines(each)
        parts += [] if roofs is None else [roofs.svg()]
    style = COLOURS.replace(":root", ".autotune") + STYLE
    return element("div", element("style", Markup(style)), *parts, class_="autotune")


def in_notebook(report: Report) -> Markup:
    """Return a report as a notebook shows it: charts, and the last lines below."""
    return joined([figure(report), *(element("div", line) for line in summary(report))])


__all__ = [
    "COLOURS",
    "MOST",
    "STYLE",
    "Compared",
    "figure",
    "gains",
    "in_notebook",
    "of_several",
    "over_time",
    "rooflines",
    "times",
]
