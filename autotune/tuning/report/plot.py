"""Plots as SVG that takes its colours from the page: dots, lines and bands between two axes, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.tuning.report.html import Markup, element

Point = tuple[float, float]

_WIDE, _HIGH, _LEFT, _BELOW, _ABOVE, _RIGHT = 480, 300, 84, 42, 12, 14
_ROOM = 0.04
"""Of an axis, beside what is plotted."""
_LETTER = 8.0
"""The width of one where letters are large, about."""

STYLE = """
.figure { display: block; width: 100%; max-width: 40rem; font: 12px system-ui, sans-serif; margin: .5rem 0; }
@media (max-width: 40rem) { .figure { font-size: 15px; } }
.figure text { fill: var(--faint); } .figure .axis { stroke: var(--line); }
.figure path { fill: none; stroke: var(--faint); } .figure path.after { stroke: var(--after); stroke-width: 2; }
.figure path.band { fill: var(--after); fill-opacity: .18; stroke: none; }
.figure path.move { stroke-width: .7; }
.figure circle { fill: var(--before); fill-opacity: .8; } .figure circle.after { fill: var(--after); }
"""


@dataclass(frozen=True)
class PlotAxis:
    """An axis: its label, whether it is logarithmic, and how it shows a value."""

    label: str
    log: bool = False
    shown: Callable[[float], str] = "{:g}".format

    def scale(self, value: float) -> float:
        """Return a value as it lies on the axis."""
        return math.log10(value) if self.log else value

    def ticks(self, low: float, high: float) -> list[float]:
        """Return round values between two, which are as on the axis.

        >>> PlotAxis("x").ticks(0.0, 1.0), PlotAxis("x", log=True).ticks(0.0, 3.0)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 10.0, 100.0, 1000.0])
        """
        if self.log:
            kept = (1.0,) if high - low > 2 else (1.0, 2.0, 5.0)
            tens = range(math.floor(low), math.ceil(high) + 1)
            every = max(1, len(tens) // 6)
            found = [digit * 10.0**ten for ten in tens[::every] for digit in kept]
            return [value for value in found if low - 1e-9 <= math.log10(value) <= high + 1e-9]
        step = 10.0 ** math.floor(math.log10(high - low))
        step *= next(
            part for part in (0.1, 0.2, 0.5, 1.0) if (high - low) / (step * part) <= 6 or part == 1.0
        )
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True)
class Dot:
    """A point with what is shown where it is pointed at; ``kind`` is its class."""

    x: float
    y: float
    text: str
    kind: str = "after"
    radius: float = 4.0


@dataclass(frozen=True)
class Plot:
    """Dots, lines by their classes, and ranges of y (x, low, high); ``about`` is what those hear who see no picture."""

    across: PlotAxis
    up: PlotAxis
    about: str
    dots: Sequence[Dot] = ()
    lines: Sequence[tuple[str, Sequence[Point]]] = ()
    band: Sequence[tuple[float, float, float]] = ()
    notes: Sequence[tuple[Point, str]] = field(default_factory=tuple)

    def svg(self) -> Markup:
        """Return the element."""
        xs, ys = self._ends()
        along, up = (
            _Scale(self.across, *xs, _LEFT, _WIDE - _RIGHT),
            _Scale(self.up, *ys, _HIGH - _BELOW, _ABOVE),
        )
        parts = [*_across(along), *_upward(up)]
        if self.band:
            edge = [(x, high) for x, _, high in self.band] + [(x, low) for x, low, _ in reversed(self.band)]
            parts.append(element("path", d=_path(edge, along, up) + "Z", class_="band"))
        parts += [element("path", d=_path(points, along, up), class_=kind) for kind, points in self.lines]
        parts += [
            element(
                "circle", element("title", d.text), cx=along.at(d.x), cy=up.at(d.y), r=d.radius, class_=d.kind
            )
            for d in self.dots
        ]
        parts += [
            _text(float(along.at(x)) + 4, float(up.at(y)) - 4, text, "start") for (x, y), text in self.notes
        ]
        return element(
            "svg", *parts, viewBox=f"0 0 {_WIDE} {_HIGH}", class_="figure", role="img", aria_label=self.about
        )

    def _ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        points = [(dot.x, dot.y) for dot in self.dots] + [point for _, line in self.lines for point in line]
        points += [(x, y) for x, *range_ in self.band for y in range_] + [at for at, _ in self.notes]
        return _range([self.across.scale(x) for x, _ in points]), _range(
            [self.up.scale(y) for _, y in points]
        )


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = _ROOM * (high - low) or 0.5
    return low - room, high + room


@dataclass(frozen=True)
class _Scale:
    axis: PlotAxis
    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> str:
        share = (self.axis.scale(value) - self.low) / (self.high - self.low)
        return f"{self.begin + share * (self.end - self.begin):.1f}"


def _path(points: Sequence[Point], along: _Scale, up: _Scale) -> str:
    return "M" + "L".join(f"{along.at(x)} {up.at(y)}" for x, y in points)


def _across(scale: _Scale) -> list[Markup]:
    bottom = _HIGH - _BELOW
    parts = [_rule(_LEFT, bottom, _WIDE - _RIGHT, bottom)]
    free = 0.0
    for value in scale.axis.ticks(scale.low, scale.high):
        text, x = scale.axis.shown(value), float(scale.at(value))
        half = len(text) * _LETTER / 2
        if x - half >= free and x + half <= _WIDE:
            parts.append(_text(x, bottom + 16, text, "middle"))
            free = x + half + 6
    return [*parts, _text((_LEFT + _WIDE) / 2, _HIGH - 8, scale.axis.label, "middle")]


def _upward(scale: _Scale) -> list[Markup]:
    parts = []
    for value in scale.axis.ticks(scale.low, scale.high):
        y = float(scale.at(value))
        parts += [_rule(_LEFT, y, _WIDE - _RIGHT, y), _text(_LEFT - 6, y + 4, scale.axis.shown(value), "end")]
    middle = (_HIGH - _BELOW) / 2
    turned = element(
        "g", _text(0, 0, scale.axis.label, "middle"), transform=f"translate(18 {middle}) rotate(-90)"
    )
    return [*parts, turned]


def _rule(x: float, y: float, u: float, v: float) -> Markup:
    return element("line", x1=x, y1=f"{y:.1f}", x2=u, y2=f"{v:.1f}", class_="axis")


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


__all__ = ["STYLE", "Dot", "Plot", "PlotAxis"]
