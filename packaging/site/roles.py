"""Docstrings as Markdown: their roles (``:func:`autotune.load```) and double backticks are code of the page."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?([^`]+)`")


class Roles(Extension):  # type: ignore[misc]
    """Rewrite the docstring of each object as it is read."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Replace roles by the last part of the name that they refer to."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = text.replace("``", "`")
