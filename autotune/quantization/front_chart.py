"""The front of latency and error drawn: every measured point, those that none beats joined, and a table of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from autotune.quantization.front import PrecisionPoint, front
from autotune.quantization.precision import PRECISIONS, products_in
from autotune.suggest import counted
from autotune.tuning.report.html import Markup, Part, element, joined, table
from autotune.tuning.report.plot import Dot, Plot, PlotAxis
from autotune.tuning.report.units import nanoseconds

_LINEAR = "top1"
"""The kind of error that may be 0 or less, as labels may be won."""
_NAMES = {"relative": "relative error", "cosine": "1 - cosine", "top1": "labels lost"}


def sections(points: Sequence[PrecisionPoint]) -> Iterator[Markup]:
    """Yield the chart and the table of points of each kind of error; nothing where there are none."""
    for kind in dict.fromkeys(point.kind for point in points):
        yield from _of_kind(
            kind, [point for point in points if point.kind == kind and _is_drawn(point, kind)]
        )


def _of_kind(kind: str, points: Sequence[PrecisionPoint]) -> Iterator[Markup]:
    best = front(points)
    inputs = "random" if any(point.random_inputs for point in points) else "held-back"
    about = (
        f"{counted(len(points), 'measured point')}, each in fresh processes interleaved with float32; the "
        f"{len(best)} that none beats in both are joined. Errors are of {inputs} inputs."
    )
    yield element("h2", "Latency and error by precision")
    yield element("p", about, class_="faint")
    if points:
        yield plot(kind, points, best).svg()
        yield _table(kind, [*best, *_beaten(points, best)], best)


def plot(kind: str, points: Sequence[PrecisionPoint], best: Sequence[PrecisionPoint]) -> Plot:
    """Return the points, the error over the latency, and the line of the ``best``, the fastest of which comes first."""
    dots = [
        Dot(
            *_at(point),
            str(point),
            "after" if point in best else "before",
            5.0 if point in best else 3.5,
        )
        for point in [*_beaten(points, best), *best]
    ]
    corners = [_at(point) for point in best]
    stairs = [at for (x, y), (u, _) in pairwise(corners) for at in ((x, y), (u, y))]
    across = PlotAxis("latency over float32's", shown="{:.3g}".format)
    up = PlotAxis(_NAMES.get(kind, "error"), log=kind != _LINEAR, shown="{:.2g}".format)
    return Plot(
        across,
        up,
        f"{counted(len(points), 'plan')}, {len(best)} on the front",
        dots,
        [("after", [*stairs, *corners[-1:]])] if best else [],
    )


def _is_drawn(point: PrecisionPoint, kind: str) -> bool:
    return point.ratio is not None and (kind == _LINEAR or point.held_back.error > 0)


def _at(point: PrecisionPoint) -> tuple[float, float]:
    return point.over_float32, point.held_back.error


def _beaten(points: Iterable[PrecisionPoint], best: Sequence[PrecisionPoint]) -> list[PrecisionPoint]:
    return sorted((point for point in points if point not in best), key=lambda point: point.over_float32)


def _table(kind: str, points: Sequence[PrecisionPoint], best: Sequence[PrecisionPoint]) -> Markup:
    used = [one for one in PRECISIONS if any(products_in(point.precisions, one) for point in points)]
    heading = ("over float32's", "latency", _NAMES.get(kind, "error"), *used, "front", "names")
    return table(heading, (_row(point, used, point in best) for point in points), range(3 + len(used)))


def _row(point: PrecisionPoint, used: Sequence[str], is_best: bool) -> list[Part]:
    ratio = point.ratio
    interval = (
        "" if ratio is None or ratio.interval is None else " ({:.2f} to {:.2f})".format(*ratio.interval)
    )
    counts = [str(len(products_in(point.precisions, one))) for one in used]
    latency = "" if point.median_ns is None else nanoseconds(point.median_ns)
    return [
        f"{point.over_float32:.3f}{interval}",
        latency,
        f"{point.held_back.error:.2g}",
        *counts,
        "yes" if is_best else "",
        _products(point),
    ]


def _products(point: PrecisionPoint) -> Markup:
    """Return the names of products by their precision, folded up."""
    lines = [
        element("div", f"{one}: {', '.join(products)}")
        for one in PRECISIONS
        if (products := products_in(point.precisions, one))
    ]
    return element("details", element("summary", "show"), joined(lines))


__all__ = ["plot", "sections"]
