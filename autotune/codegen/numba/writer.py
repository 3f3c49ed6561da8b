"""Lines of Python as they are written: blocks, names, values that are named already, functions in use."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from autotune.codegen.numba.types import Value
from autotune.codegen.source_text import SourceWriter

_TAKEN = frozenset({*keyword.kwlist, *dir(builtins), "np", "math", "njit", "prange", "library"})


class Names:
    """Identifiers of Python, each given once."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._taken = {*_TAKEN, *taken}

    def fresh(self, stem: str) -> str:
        """Return a new name that looks like ``stem``."""
        name = identifier(stem)
        number = 1
        unique = name
        while unique in self._taken:
            unique, number = f"{name}_{number}", number + 1
        self._taken.add(unique)
        return unique

    def release(self, name: str) -> None:
        """Allow a name again."""
        self._taken.discard(name)


def identifier(text: str) -> str:
    """Return the nearest identifier.

    >>> identifier("B.local"), identifier("0th")
    ('B_local', 'v0th')
    """
    letters = "".join(c if c.isalnum() and c.isascii() else "_" for c in text).strip("_")
    return letters if letters[:1].isalpha() else f"v{letters}"


class Writer(SourceWriter[Value]):
    """The body of one function in Python.

    The same part of another backend is :class:`autotune.codegen.opencl.writer.Writer`.
    """

    indent = "    "

    def __init__(self, functions: set[str], names: Names) -> None:
        super().__init__(functions)
        self.names = names

    def further(self, line: str) -> None:
        """Write a line that was written aside, a step further in."""
        self.lines.append(f"    {line}")

    @contextmanager
    def block(self, head: str, note: str = "") -> Iterator[None]:
        """Write lines below a head; values that are named inside are not known after."""
        self.line(f"{head}:  # {note}" if note else f"{head}:")
        count = len(self.lines)
        self._indent += 1
        with self.scope():
            yield
        if len(self.lines) == count:
            self.line("pass")
        self._indent -= 1

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Write lines into a list of their own; values that are named inside are not known after."""
        before, self.lines = self.lines, []
        written = self.lines
        with self.scope():
            yield written
        self.lines = before

    def named(self, value: Value, stem: str = "t") -> Value:
        """Return the value under a name of its own."""
        name = self.names.fresh(stem)
        self.line(f"{name} = {value.text}")
        return Value(name, value.dtype)


__all__ = ["Names", "Writer", "identifier"]
