"""The page of primitives, made from their docstrings: ``python -m autotune.schedule.document > docs/primitives.md``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from autotune.schedule.trace import PRIMITIVES

ROOMS = (
    "loops",
    "kinds",
    "hardware",
    "place",
    "reverse",
    "storage",
    "reductions",
    "dataflow",
    "layout",
)
"""Modules of ``autotune.schedule.primitives``, in the order of the page."""

HEADINGS = ("Args", "Returns", "Before", "After", "Raises")

_INTRODUCTION = """\
# Schedule primitives

Generated from the docstrings by `python -m autotune.schedule.document`; a test runs every example and
compares this page. Names, argument order and meaning are those of TVM 0.18's `te` where it has the
primitive. Each call is checked at once, leaves one step in `s.trace`, and changes nothing when it raises.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    by_room = {room: [p for p in PRIMITIVES.values() if _room(p) == room] for room in ROOMS}
    parts = [_INTRODUCTION]
    for room, primitives in by_room.items():
        summary = _summary(room)
        parts.append(f"## {summary}\n")
        parts += [section(primitive) for primitive in primitives]
    return "\n".join(parts)


def section(primitive: Callable[..., Any]) -> str:
    """Return one primitive: signature, description, arguments, examples that were run, a refusal that was run."""
    name = primitive.__name__
    lines = [f"### {name}\n", f"```python\n{name}{_signature(primitive)}\n```\n"]
    for heading, body in _blocks(inspect.cleandoc(primitive.__doc__ or "")):
        if not heading:
            lines.append(body.replace("``", "`") + "\n")
        elif heading in ("Before", "After", "Raises"):
            lines.append(f"{heading}:\n\n```python\n{body}\n```\n")
        elif heading == "Args":
            lines.append("\n".join(_arguments(body)) + "\n")
        else:
            lines.append(f"{heading}: {body.replace('``', '`')}\n")
    return "\n".join(lines)


def _room(primitive: Callable[..., Any]) -> str:
    return primitive.__module__.rsplit(".", 1)[-1]


def _summary(room: str) -> str:
    module = sys.modules[f"autotune.schedule.primitives.{room}"]
    first = inspect.cleandoc(module.__doc__ or room).splitlines()[0]
    return first.rstrip(".").replace("``", "`")


def _signature(primitive: Callable[..., Any]) -> str:
    signature = inspect.signature(primitive)
    parameters = [p for n, p in signature.parameters.items() if n != "self"]
    return re.sub(r"(: |-> )'([^']+)'", r"\1\2", str(signature.replace(parameters=parameters)))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield ``(heading, body)`` of each part of a docstring; the description has no heading."""
    heading, lines = "", list[str]()
    for line in [*text.splitlines(), "End:"]:
        found = re.fullmatch(rf"({'|'.join(HEADINGS)}|End):", line)
        if found is None and line.strip() and not line.startswith(" ") and heading:
            found, rest = re.fullmatch("()", ""), line
        else:
            rest = ""
        if found is None:
            lines.append(line)
            continue
        body = inspect.cleandoc("\n".join(["", *lines])).strip("\n")
        if body:
            yield heading, body
        heading, lines = found.group(1), [rest] if rest else []


def _arguments(body: str) -> Iterator[str]:
    for line in body.splitlines():
        if line.startswith(" "):
            yield f"  {line.strip()}".replace("``", "`")
        else:
            names, _, text = line.partition(": ")
            yield f"- `{names}`: {text}".replace("``", "`")


def main() -> None:
    """Print the page."""
    import autotune.schedule  # noqa: F401  # all primitives register themselves

    sys.stdout.write(page())


if __name__ == "__main__":
    main()

__all__ = ["HEADINGS", "ROOMS", "main", "page", "section"]
