"""Text in the width of a terminal: lines that go on below, and names cut so that they stay different."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

from autotune.tuning.report.units import cut

_HELD = "\N{NO-BREAK SPACE}"
_COMMAND = re.compile("`[^`]*`")
"""A command that a reader may paste: it is not divided."""
_FURTHER = 4
"""Columns by which what goes on below is indented."""


def columns_of(out: TextIO) -> int | None:
    """Return the width of a terminal; None for a file or a pipe, where nothing is cut."""
    if not out.isatty():
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or None
    except OSError:
        return None


def wrapped(texts: Iterable[str], columns: int | None, indent: int | None = None) -> list[str]:
    """Return texts as lines that are not wider than ``columns``; what goes on below begins at ``indent``, or a little
    further in than its line. Commands and single words stay whole.

    >>> wrapped(["  12 dispatches left: `autotune tune m`"], 22)
    ['  12 dispatches left:', '      `autotune tune m`']
    >>> wrapped(["9.7 µs  a/contraction ×2  searched"], 16, indent=8)
    ['9.7 µs', '   a/contraction', '   ×2  searched']
    """
    if columns is None:
        return list(texts)
    return [line for text in texts for line in _wrapped(text, columns, indent)]


def _wrapped(text: str, columns: int, indent: int | None) -> list[str]:
    if len(text) <= columns:
        return [text]
    further = len(text) - len(text.lstrip()) + _FURTHER if indent is None else indent
    held = _COMMAND.sub(lambda found: found[0].replace(" ", _HELD), text)
    room = columns - max(map(len, held.split()))  # a long word begins further to the left
    lines = textwrap.wrap(
        held,
        columns,
        subsequent_indent=" " * max(0, min(further, columns // 2, room)),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_HELD, " ") for line in lines]


def cut_apart(names: Sequence[str], width: int | None) -> list[str]:
    """Return names in not more than so many characters, different names as different texts.

    >>> cut_apart(["block_1_conv_relu", "block_2_conv_relu"], 10)
    ['block_1…lu', 'block_2…lu']
    >>> cut_apart(["aaaaaaaaaa", "aaaaabaaaa", "aaaaacaaaa"], 4)
    ['1…aa', '2…aa', '3…aa']
    """
    if width is None:
        return list(names)
    known = list(dict.fromkeys(names))
    for head in sorted(range(1, width - 1), key=lambda head: abs(head - width // 2)):
        made = [cut(name, width, head) for name in known]
        if len({*made}) == len(known):
            break
    else:
        made = [f"{n}{cut(name, width - len(str(n)), 0)}" for n, name in enumerate(known, 1)]
    found = dict(zip(known, made, strict=True))
    return [found[name] for name in names]


__all__ = ["columns_of", "cut_apart", "wrapped"]
