"""Lines of OpenCL C as they are written: blocks, names, values that are named already, functions in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.opencl.types import Value


class Writer:
    """The body of one kernel.

    The same part of another backend is :class:`autotune.codegen.llvm.writer.Writer`.
    """

    def __init__(self, functions: set[str]) -> None:
        self.lines: list[str] = []
        self.local: list[tuple[str, str, int]] = []
        """Memory that the work items of a group share: type, name and number of elements."""
        self.functions = functions
        """Names of the functions that the program calls; this kernel adds its own."""
        self._indent = 1
        self._names = 0
        self._known: list[dict[int, Value]] = [{}]

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("  " * self._indent + text)

    def fresh(self, stem: str) -> str:
        """Return a new name."""
        self._names += 1
        letters = "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)
        return f"{letters}_{self._names}"

    def function(self, name: str) -> str:
        """Return the name of a function of ours, which the program then has."""
        self.functions.add(name)
        return name

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Write lines in braces; values that are named inside are not known after."""
        self.line(f"{head} {{" if head else "{")
        self._indent += 1
        with self.scope():
            yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end the values that are named from here on."""
        self._known.append({})
        yield
        self._known.pop()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Write a statement: what was worked out for others may have changed since."""
        before, self._known = self._known, [{}]
        yield
        self._known = before

    def known(self, key: int) -> Value | None:
        """Return a value that was worked out for this statement."""
        for values in reversed(self._known):
            if key in values:
                return values[key]
        return None

    def remember(self, key: int, value: Value) -> None:
        """Keep a value until the end of the innermost scope."""
        self._known[-1][key] = value

    def named(self, value: Value, stem: str = "t", ctype: str = "") -> Value:
        """Return the value under a name of its own."""
        name = self.fresh(stem)
        self.line(f"const {ctype or value.ctype} {name} = {value.text};")
        return value._replace(text=name, depth=0)


__all__ = ["Writer"]
