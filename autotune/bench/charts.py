"""Charts as SVG, and a page of them that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

Points = tuple[NDArray[np.float64], NDArray[np.float64]]

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 460, 300, 60, 45, 10
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
_STYLE = (
    "body{font:15px sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "figure{display:inline-block;margin:1em 1em 1em 0;vertical-align:top}figcaption{max-width:460px}"
    "svg{font:11px sans-serif}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
)


@dataclass(frozen=True)
class Chart:
    """Series of points by name: lines, or dots where ``dots``; ``diagonal`` draws what is right."""

    title: str
    across: str
    up: str
    series: Mapping[str, Points]
    dots: bool = False
    diagonal: bool = False

    def svg(self) -> str:
        """The chart as an element."""
        xs, ys = (
            np.concatenate([np.zeros(0), *(points[i] for points in self.series.values())]) for i in (0, 1)
        )
        frame = _Frame.around(xs, ys)
        parts = [_axes(frame, self.across, self.up)]
        if self.diagonal:
            ends = np.asarray([max(frame.x[0], frame.y[0]), min(frame.x[1], frame.y[1])])
            parts.append(frame.line((ends, ends), "#999", "4 3"))
        for number, (name, points) in enumerate(self.series.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(frame.circles(points, colour) if self.dots else frame.line(points, colour))
            if len(self.series) > 1:
                parts.append(_text(_WIDTH - 8, _ABOVE + 14 + 14 * number, name, "end", colour))
        return _svg(parts, _HEIGHT)


@dataclass(frozen=True)
class Bars:
    """Values by name, the largest first."""

    title: str
    values: Mapping[str, float]

    def svg(self) -> str:
        """The bars as an element."""
        most = max(self.values.values(), default=0.0) or 1.0
        parts = []
        for number, (name, value) in enumerate(self.values.items()):
            y = 4 + 16 * number
            length = (_WIDTH - 170) * value / most
            parts.append(_text(150, y + 11, name, "end"))
            parts.append(f'<rect x="155" y="{y}" width="{length:.1f}" height="12" fill="{_COLOURS[0]}"/>')
        return _svg(parts, 16 * len(self.values) + 8)


@dataclass(frozen=True)
class _Frame:
    """Scales from values to positions on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]

    @staticmethod
    def around(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> _Frame:
        return _Frame(_ends(xs), _ends(ys))

    def at(self, points: Points) -> list[str]:
        across = _LEFT + (points[0] - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - _LEFT - 10)
        down = (
            _HEIGHT - _BELOW - (points[1] - self.y[0]) / (self.y[1] - self.y[0]) * (_HEIGHT - _BELOW - _ABOVE)
        )
        return [f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True)]

    def line(self, points: Points, colour: str, dashes: str = "none") -> str:
        drawn = " ".join(self.at(points))
        return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-dasharray="{dashes}"/>'

    def circles(self, points: Points, colour: str) -> str:
        places = (place.split(",") for place in self.at(points))
        dots = "".join(f'<circle cx="{x}" cy="{y}" r="1.5"/>' for x, y in places)
        return f'<g fill="{colour}" fill-opacity="0.4">{dots}</g>'


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _axes(frame: _Frame, across: str, up: str) -> str:
    bottom, right, middle = _HEIGHT - _BELOW, _WIDTH - 10, (_HEIGHT - _BELOW) // 2
    parts = [f'<path d="M{_LEFT},{_ABOVE}V{bottom}H{right}" fill="none" stroke="#222"/>']
    for share in np.linspace(0, 1, 5):
        x, y = (end[0] + share * (end[1] - end[0]) for end in (frame.x, frame.y))
        parts.append(_text(_LEFT + share * (right - _LEFT), bottom + 15, f"{x:.3g}", "middle"))
        parts.append(_text(_LEFT - 5, bottom - share * (bottom - _ABOVE) + 4, f"{y:.3g}", "end"))
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 8, across, "middle"))
    parts.append(f'<g transform="translate(12,{middle}) rotate(-90)">{_text(0, 0, up, "middle")}</g>')
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: int) -> str:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'


def write_page(
    path: Path, title: str, about: Sequence[str], tables: Sequence[str], charts: Sequence[Chart | Bars]
) -> None:
    """Write one HTML file; ``tables`` are HTML already. Raises UsageError where that is not possible."""
    figures = "".join(
        f"<figure>{chart.svg()}<figcaption>{escape(chart.title)}</figcaption></figure>" for chart in charts
    )
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in about)
    page = (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>{paragraphs}{''.join(tables)}{figures}</html>\n"
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


__all__ = ["Bars", "Chart", "write_page"]
