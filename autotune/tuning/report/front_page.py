"""Pareto fronts of workloads as one page of HTML: latency over memory, the larger the dot the larger the artifact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autotune.database import Hit
from autotune.suggest import counted
from autotune.tuning.report.html import Markup, document, element, table
from autotune.tuning.report.page import NOTHING_LOADED, STYLE
from autotune.tuning.report.plot import Dot, Plot, PlotAxis
from autotune.tuning.report.units import size

if TYPE_CHECKING:
    from autotune.database.front import FrontPoint
    from autotune.tuning.report.answer import Answer

_LEAST, _MOST = 4.0, 12.0
"""Radii of dots."""


def front_page(title: str, answers: Sequence[Answer], whole: Sequence[Markup] = ()) -> str:
    """Return the page of the fronts of a query, that of the ``whole`` model first, then those with the most points."""
    shown = sorted((each for each in answers if each.front), key=lambda each: -len(each.front))
    about = "Runs that none beats in latency, memory and bytes of the artifact; a dot is larger with its artifact."
    left = f"{len(answers) - len(shown)} of {counted(len(answers), 'workload')} without a run of known footprint."
    body = [
        element("header", element("h1", title)),
        *whole,
        element("h2", "Dispatches"),
        element("p", about, class_="faint"),
        *(part for each in shown for part in _front(each)),
        *([element("p", left)] if len(shown) < len(answers) else []),
    ]
    return document(f"{title}: Pareto fronts", STYLE, element("main", *body), head=NOTHING_LOADED)


def _front(answer: Answer) -> Iterator[Markup]:
    yield element("h3", answer.title)
    points = [(point, _used(answer, point)) for point in answer.front]
    most = max(point.footprint.artifact_bytes for point, _ in points) or 1
    dots = [
        Dot(
            point.ratio.median,
            point.footprint.memory_bytes,
            ", ".join(_figures(point, used)),
            "after" if used else "before",
            _LEAST + (_MOST - _LEAST) * point.footprint.artifact_bytes / most,
        )
        for point, used in points
    ]
    across, up = (
        PlotAxis("latency over the default's", shown="{:.3g}".format),
        PlotAxis("memory", shown=_bytes),
    )
    yield Plot(across, up, f"Pareto front of {counted(len(dots), 'run')}", dots).svg()
    heading = ("latency over the default's", "memory", "artifact", "error", "measured", "")
    yield table(heading, [_figures(point, used) for point, used in points], (0, 1, 2, 3))


def _bytes(value: float) -> str:
    return size(round(value))


def _figures(point: FrontPoint, used: bool) -> list[str]:
    sizes = (point.footprint.memory_bytes, point.footprint.artifact_bytes)
    error = "" if point.run.error is None else f"{point.run.error:.1e}"
    in_use = "in use" if used else ""
    return [f"{point.ratio.median:.3f}", *map(size, sizes), error, point.read.value, in_use]


def _used(answer: Answer, point: FrontPoint) -> bool:
    return isinstance(answer.answer, Hit) and answer.answer.best.trace_key == point.run.trace_key


__all__ = ["front_page"]
