"""The words and marks of graphs' text form, with where they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.errors import GraphError

WORD = re.compile(r"[A-Za-z0-9_./+-]+")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)|(?P<string>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<word>[A-Za-z0-9_./+-]+)|(?P<mark>[\[\](){}=,:@*])"""
)
_SIZE = re.compile(r"(?:[A-Za-z_]\w*|\d+)(?:[*+-](?:[A-Za-z_]\w*|\d+))*")


@dataclass(frozen=True)
class Token:
    """A word, a string, a mark or the end; lines and columns count from 1."""

    kind: str
    text: str
    line: int
    column: int

    @property
    def place(self) -> str:
        """Return its place in the text, as errors say it."""
        return f"line {self.line}, column {self.column}"


def tokens(text: str) -> list[Token]:
    """Return all of a text, the end as the last. Raises GraphError for a character that begins none."""
    found, position, line, begin = list[Token](), 0, 1, 0
    while position < len(text):
        column = position - begin + 1
        match = _TOKEN.match(text, position)
        if match is None:
            raise GraphError(f"line {line}, column {column}: unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        position = match.end()
        if kind == "newline":
            line, begin = line + 1, position
        elif kind != "space":
            found.append(Token(kind, match.group(), line, column))
    return [*found, Token("end", "end of text", line, position - begin + 1)]


def size_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of a size such as ``4*batch+1``; None for what is no size.

    Raises KeyError with the name of a size that is open.

    >>> size_of("4*batch+1", {"batch": 2})
    9
    """
    if not _SIZE.fullmatch(text):
        return None
    total = 0
    for sign, product in re.findall(r"([+-]?)([^+-]+)", text):
        value = 1
        for factor in product.split("*"):
            value *= int(factor) if factor.isdecimal() else sizes[factor]
        total += -value if sign == "-" else value
    return total


__all__ = ["WORD", "Token", "size_of", "tokens"]
