"""HTML that says nothing but what it was given: elements whose texts and attributes are escaped, tables and bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from autotune.foreign import printable


@dataclass(frozen=True)
class Markup:
    """A piece of HTML; a plain text is not one, and is escaped where it is put into one."""

    text: str


Part = Markup | str


def element(name: str, *parts: Part, **attributes: object) -> Markup:
    """Return an element; ``class_`` is its class, and a ``_`` in the name of an attribute is a ``-``.

    >>> element("p", "a < b", element("b", "c"), class_="note").text
    '<p class="note">a &lt; b<b>c</b></p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(f' {key}="{escape(printable(str(value)))}"' for key, value in given.items())
    return Markup(f"<{name}{shown}>{joined(parts).text}</{name}>")


def joined(parts: Iterable[Part]) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(p.text if isinstance(p, Markup) else escape(printable(p)) for p in parts))


def table(heading: Sequence[str], rows: Iterable[Sequence[Part]], numbers: Sequence[int] = ()) -> Markup:
    """Return a table that scrolls by itself on a narrow screen; ``numbers`` are the columns that stand to the right."""

    def cells(name: str, row: Sequence[Part]) -> Markup:
        made = [
            element(name, part, **({"class_": "number"} if at in numbers else {}))
            for at, part in enumerate(row)
        ]
        return element("tr", *made)

    body = element("tbody", *(cells("td", row) for row in rows))
    inner = element("table", element("thead", cells("th", heading)), body)
    return element("div", inner, class_="wide", tabindex="0")


def bars(rows: Sequence[tuple[str, float, float, str]]) -> Markup:
    """Return a chart: for each name a bar of what it was before and one of what it is after, with a text."""
    most = max([1e-9, *(max(before, after) for _, before, after, _ in rows)])
    return element("div", *(_bar(row, most) for row in rows), class_="chart")


def _bar(row: tuple[str, float, float, str], most: float) -> Markup:
    name, before, after, text = row
    wide = {"before": 100 * before / most, "after": 100 * after / most}
    drawn = [
        element("rect", y=10 * number, width=f"{max(0.2, wide[kind]):.2f}", height=9, class_=kind)
        for number, kind in enumerate(wide)
    ]
    picture = element("svg", *drawn, viewBox="0 0 100 20", preserveAspectRatio="none", aria_hidden="true")
    return element("div", element("span", name), element("span", text, class_="faint"), picture, class_="bar")


__all__ = ["Markup", "Part", "bars", "element", "joined", "table"]
