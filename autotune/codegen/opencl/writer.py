"""Lines of OpenCL C as they are written: blocks, names, values that are named already, functions in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.opencl.types import Value
from autotune.codegen.source_text import SourceWriter


class Writer(SourceWriter[Value]):
    """The body of one kernel in OpenCL C.

    The same part of another backend is :class:`autotune.codegen.llvm.writer.Writer`.
    """

    indent = "  "

    def __init__(self, functions: set[str]) -> None:
        super().__init__(functions)
        self.local: list[tuple[str, str, int]] = []
        """Memory that the work items of a group share: type, name and number of elements."""
        self._names = 0

    def fresh(self, stem: str) -> str:
        """Return a new name."""
        self._names += 1
        letters = "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)
        return f"{letters}_{self._names}"

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Write lines in braces; values that are named inside are not known after."""
        self.line(f"{head} {{" if head else "{")
        self._indent += 1
        with self.scope():
            yield
        self._indent -= 1
        self.line("}")

    def named(self, value: Value, stem: str = "t", ctype: str = "") -> Value:
        """Return the value under a name of its own."""
        name = self.fresh(stem)
        self.line(f"const {ctype or value.ctype} {name} = {value.text};")
        return value._replace(text=name, depth=0)


__all__ = ["Writer"]
