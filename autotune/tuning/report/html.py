"""HTML that says nothing but what it was given: elements whose texts and attributes are escaped, tables and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from autotune.foreign import printable


@dataclass(frozen=True)
class Markup:
    """A piece of HTML; a plain text is not one, and is escaped where it is put into one."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


Part = Markup | str
_VOID = ("input", "link", "meta")
"""Elements without contents and end."""


def element(name: str, /, *parts: Part, **attributes: object) -> Markup:
    """Return an element; ``class_`` is its class, and a ``_`` in the name of an attribute is a ``-``.

    >>> element("p", "a < b", element("b", "c"), class_="note").text
    '<p class="note">a &lt; b<b>c</b></p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(f' {key}="{escape(printable(str(value)))}"' for key, value in given.items())
    return Markup(f"<{name}{shown}>" + ("" if name in _VOID else f"{joined(parts).text}</{name}>"))


def joined(parts: Iterable[Part]) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(p.text if isinstance(p, Markup) else escape(printable(p)) for p in parts))


def document(title: str, style: str, *body: Part, head: Part = "") -> str:
    """Return a whole page; ``head`` is what else stands in its head."""
    about = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        head,
        element("title", title),
        element("style", Markup(style)),
    )
    return f"<!doctype html>\n{element('html', about, element('body', *body), lang='en').text}\n"


def table(
    heading: Sequence[Part],
    rows: Iterable[Sequence[Part]],
    numbers: Sequence[int] = (),
    less: Sequence[int] = (),
) -> Markup:
    """Return a table that scrolls by itself on a narrow screen; ``numbers`` are the columns that stand to the right,
    ``less`` those that a style may leave out."""
    classes = {
        at: " ".join(name for name, of in (("number", numbers), ("less", less)) if at in of)
        for at in (*numbers, *less)
    }

    def cells(name: str, row: Sequence[Part]) -> Markup:
        made = [
            element(name, part, **({"class_": classes[at]} if at in classes else {}))
            for at, part in enumerate(row)
        ]
        return element("tr", *made)

    body = element("tbody", *(cells("td", row) for row in rows))
    inner = element("table", element("thead", cells("th", heading)), body)
    return element("div", inner, class_="wide", tabindex="0")


def bars(rows: Sequence[tuple[str, Sequence[float], str]]) -> Markup:
    """Return a chart: for each name a bar of what it was before, if known, and one of what it is, with a text."""
    most = max([1e-9, *(value for _, values, _ in rows for value in values)])
    return element("div", *(_bar(row, most) for row in rows), class_="chart")


def _bar(row: tuple[str, Sequence[float], str], most: float) -> Markup:
    name, values, text = row
    kinds = ("before", "after")[-len(values) :]
    drawn = [
        element("rect", y=10 * at, width=f"{max(0.2, 100 * value / most):.2f}", height=9, class_=kind)
        for at, (kind, value) in enumerate(zip(kinds, values, strict=True))
    ]
    size = {"viewBox": f"0 0 100 {10 * len(values)}", "height": 10 * len(values)}
    picture = element("svg", *drawn, preserveAspectRatio="none", aria_hidden="true", **size)
    return element("div", element("span", name), element("span", text, class_="faint"), picture, class_="bar")


def dots(values: Sequence[float | None], about: str) -> Markup:
    """Return a plot of positive values in their order, by their logarithms, and of the least up to each; those that are
    None leave a gap."""
    known = [(at, math.log(value)) for at, value in enumerate(values) if value is not None]
    low, high = min(y for _, y in known), max(y for _, y in known)
    wide, high = max(1, len(values) - 1), max(high, low + 1e-9)
    points = [(5 + 990 * at / wide, 190 - 180 * (y - low) / (high - low)) for at, y in known]
    least = zip(points, accumulate((y for _, y in points), max), strict=True)
    line = "M" + "L".join(f"{x:.0f} {y:.0f}" for (x, _), y in least)
    drawn = element("path", d="".join(f"M{x:.0f} {y:.0f}h0" for x, y in points), class_="dots")
    box = {"viewBox": "0 0 1000 200", "preserveAspectRatio": "none", "role": "img", "aria_label": about}
    return element("svg", drawn, element("path", d=line), class_="plot", **box)


__all__ = ["Markup", "Part", "bars", "document", "dots", "element", "joined", "table"]
