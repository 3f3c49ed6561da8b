"""Lists that are narrowed by a word and shown page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from autotune.cli.web.frame import Page, link
from autotune.tuning.report.html import Markup, element, joined

T = TypeVar("T")
ROWS = 100
"""Rows of a page."""


@dataclass(frozen=True)
class Wanted:
    """The part of the list at ``path`` that is asked for: of what ``find`` occurs in, the page ``number``."""

    path: str
    find: str = ""
    number: int = 1

    def holds(self, *words: str) -> bool:
        """Return whether what is described by some words is asked for."""
        return self.find.lower() in " ".join(words).lower()

    def part(self, found: Sequence[T]) -> Sequence[T]:
        """Return those of the page."""
        return found[ROWS * (self.number - 1) : ROWS * self.number]

    def page(self, title: str, about: str, shown: Markup, count: int, *, live: bool) -> Page:
        """Return the page: what it is ``about``, and the rows ``shown`` of ``count``."""
        body = [
            element("p", about, class_="faint"),
            element("div", shown, class_="list"),
            self._others(count),
        ]
        parts = {"search": joined([element("h1", title), self._form()]), "list": joined(body)}
        return Page(title, parts, self.path, live=live)

    def _form(self) -> Markup:
        field = element("input", id="find", name="find", value=self.find, type="search")
        parts = [element("label", "Find", for_="find"), field, element("button", "Show")]
        return element("form", *parts, action=self.path, role="search")

    def _others(self, count: int) -> Markup:
        """Return links to the pages before and after this one."""
        there = [("Previous", self.number - 1), ("Next", self.number + 1)]
        links = [
            link(f"{self.path}?{urlencode({'find': self.find, 'page': at})}", f"{text} {ROWS}")
            for text, at in there
            if 0 < at <= -(-count // ROWS)
        ]
        return element("p", *(part for each in links for part in (each, " ")))


__all__ = ["ROWS", "Wanted"]
