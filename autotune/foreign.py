"""Texts of others, made harmless where they leave: for a terminal, as the name of a file, and as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but for tabs and ends of lines, marks that turn the direction of text, and half surrogates."""
_UNUSUAL = re.compile(r"[^\w.-]")
_MOST_NAME = 60
"""Characters of a file's name: of four bytes at most, where a file system takes 255."""
_MOST_DEPTH = 200
"""Of lists and objects in JSON; what we write has at most a dozen."""


def printable(text: str) -> str:
    r"""Return a text in which nothing moves the cursor, changes colours or hides what stands there.

    >>> print(printable("a\x1b[31mb"))
    a\x1b[31mb
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def preformatted(text: str) -> str:
    """Return a text as HTML that a notebook shows as it stands.

    >>> preformatted("a < b")
    '<pre>a &lt; b</pre>'
    """
    from html import escape  # its table of entities takes milliseconds; only notebooks need it

    return f"<pre>{escape(printable(text))}</pre>"


def file_name(text: str, otherwise: str = "graph") -> str:
    """Return a name for a file or folder that stays where it is put, and is short enough; equal texts have equal names.

    >>> file_name("encoder/layer 1"), file_name(".."), file_name("")
    ('encoder_layer_1', '__', 'graph')
    >>> len(file_name("long" * 100))
    60
    """
    name = _UNUSUAL.sub("_", text) or otherwise
    if not name.strip("."):
        return "_" * len(name)
    if len(name) <= _MOST_NAME:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name[: _MOST_NAME - len(digest) - 1]}_{digest}"


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Return the value of a JSON text, with the hooks of ``json.loads``.

    Raises ValueError for what is no JSON, or nests so deep that whoever goes through it might not come back.
    """
    try:
        found = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(f"it nests deeper than {_MOST_DEPTH} lists and objects") from None
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) > _MOST_DEPTH:  # type: ignore[arg-type]  # both are of the text's type
        _check_depth(found)
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ValueError(f"it nests deeper than {_MOST_DEPTH} lists and objects")


__all__ = ["file_name", "parse_json", "preformatted", "printable"]
